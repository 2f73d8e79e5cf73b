//! One model of an experiment: a folder, perhaps padded.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// What makes a model cost as much as a larger one and changes none of its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Idle {
    /// Blocks added that cost what a block costs ([`lm::Checkpoint::pad_layers`]).
    pub layers: usize,
    /// Inner columns added to every MLP ([`lm::Checkpoint::pad_width`]).
    pub width: usize,
}

impl Idle {
    /// Whether nothing is added.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Adds it.
    pub fn pad(self, checkpoint: lm::Checkpoint) -> lm::Checkpoint {
        checkpoint.pad_width(self.width).pad_layers(self.layers)
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = format!("{} inner columns an MLP", self.width);
        let blocks = match self.layers {
            1 => "1 block".to_owned(),
            layers => format!("{layers} blocks"),
        };
        match (self.layers, self.width) {
            (_, 0) => f.write_str(&blocks),
            (0, _) => f.write_str(&columns),
            _ => write!(f, "{columns} and {blocks}"),
        }
    }
}

/// A model in `[models]`: `"models/L"`, or `{ path = "models/L", pad_layers = 12, pad_width = 512 }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfig {
    /// Model folder, relative to the working directory, or `hf:owner/name[@revision]`.
    pub path: PathBuf,
    /// What it is padded with.
    pub idle: Idle,
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.idle.is_none() {
            return self.path.serialize(serializer);
        }
        let mut table = serializer.serialize_struct("ModelConfig", 3)?;
        table.serialize_field("path", &self.path)?;
        for (key, value) in [
            ("pad_layers", self.idle.layers),
            ("pad_width", self.idle.width),
        ] {
            if value == 0 {
                table.skip_field(key)?;
            } else {
                table.serialize_field(key, &value)?;
            }
        }
        table.end()
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand, because an untagged enum would hide which key of the table is wrong.
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ModelConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model folder or { path = FOLDER, pad_layers = N, pad_width = N }")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<ModelConfig, E> {
                Ok(ModelConfig {
                    path: path.into(),
                    idle: Idle::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelConfig, A::Error> {
                #[derive(serde::Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Table {
                    path: PathBuf,
                    #[serde(default)]
                    pad_layers: usize,
                    #[serde(default)]
                    pad_width: usize,
                }
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelConfig {
                    path: table.path,
                    idle: Idle {
                        layers: table.pad_layers,
                        width: table.pad_width,
                    },
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn both_forms_are_read_and_written_back() {
        let text = "L = \"models/L\"\nbig = { path = \"models/L\", pad_layers = 12 }\n\
             wide = { path = \"models/L\", pad_width = 64 }\n";
        let targets: BTreeMap<String, ModelConfig> = toml::from_str(text).unwrap();
        assert!(targets["L"].idle.is_none());
        assert_eq!(targets["big"].idle.layers, 12);
        assert_eq!(targets["wide"].idle.width, 64);
        assert_eq!(targets["big"].path, targets["L"].path);
        let json = serde_json::to_value(&targets).unwrap();
        assert_eq!(json["L"], "models/L");
        assert_eq!(json["big"]["pad_layers"], 12);
        assert_eq!(json["wide"].as_object().unwrap().len(), 2);
        let again: BTreeMap<String, ModelConfig> = serde_json::from_value(json).unwrap();
        assert_eq!(again, targets);
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line() {
        let error = |text: &str| {
            toml::from_str::<BTreeMap<String, ModelConfig>>(text)
                .unwrap_err()
                .to_string()
        };
        let message = error("\nL = { path = \"models/L\", pad = 12 }\n");
        assert!(
            message.contains("`pad`") && message.contains("line 2"),
            "{message}"
        );
        assert!(error("L = { pad_layers = 1 }").contains("`path`"));
        assert!(error("L = { path = \"x\", pad_layers = -1 }").contains("-1"));
        assert!(error("L = 3").contains("pad_layers"));
    }
}
