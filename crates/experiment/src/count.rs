//! Numbers of prompts.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Number of prompts of a split; in files a number or `"all"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Count {
    /// All prompts of the split.
    All,
    /// At most this many.
    Number(usize),
}

impl Count {
    /// True if there are none.
    pub fn is_none(self) -> bool {
        self.limit() == Some(0)
    }

    /// The maximum number; `None` for all.
    pub fn limit(self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Number(number) => Some(number),
        }
    }
}

impl Default for Count {
    /// No prompts.
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.limit() {
            None => serializer.serialize_str("all"),
            Some(number) => number.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrAll;
        impl Visitor<'_> for NumberOrAll {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of prompts or \"all\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
                let number = usize::try_from(number).map_err(E::custom)?;
                Ok(Count::Number(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
                let number = number
                    .try_into()
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))?;
                self.visit_u64(number)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Count, E> {
                match word {
                    "all" => Ok(Count::All),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(NumberOrAll)
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "number or \"all\"",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": "all" }],
        })
    }
}

/// Numbers of prompts by split; a split that is left out has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromptCounts {
    /// Streamed prompts, each once, in a seeded order; drafters learn from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<Count>,
    /// Held-out prompts, answered after the streamed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<Count>,
}

impl PromptCounts {
    /// These numbers, with those of `other` for the splits that are requested here.
    pub(crate) fn narrowed(self, other: Self) -> Self {
        let pick = |own: Option<Count>, other: Option<Count>| match own {
            Some(own) if !own.is_none() => other.or(Some(own)),
            _ => own,
        };
        Self {
            train: pick(self.train, other.train),
            test: pick(self.test, other.test),
        }
    }

    /// True if no prompts are requested.
    pub(crate) fn is_none(self) -> bool {
        let none = |count: Option<Count>| count.is_none_or(Count::is_none);
        none(self.train) && none(self.test)
    }
}
