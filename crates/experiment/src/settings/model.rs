//! `[models]`: model folders, perhaps padded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// The drafter and the targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// The drafter. Padding costs on held-out prompts, and on streamed ones with `pad_stream`.
    pub drafter: ModelConfig,
    /// Targets by the names that grid, segments and tables call them.
    #[serde(default)]
    pub targets: BTreeMap<String, ModelConfig>,
    /// Whether padding costs on the stream too: what is measured there is then that of models of
    /// that size, but for updates, which learn no padding.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub pad_stream: bool,
}

/// A model folder: `"models/L"`, or `{ path = "models/L", pad_layers = 12, pad_width = 512 }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfig {
    /// Model folder, relative to the working directory, or `hf:owner/name[@revision]`.
    pub path: PathBuf,
    /// What it is padded with.
    pub padding: CostPadding,
}

/// Idle weights that make a model as slow as a larger one and leave its outputs as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct CostPadding {
    /// Blocks added that cost what a block costs ([`lm::Checkpoint::pad_layers`]).
    pub layers: usize,
    /// Inner columns added to every MLP ([`lm::Checkpoint::pad_width`]).
    pub width: usize,
}

impl CostPadding {
    /// Whether nothing is added.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Adds it.
    pub fn pad(self, checkpoint: lm::Checkpoint) -> lm::Checkpoint {
        checkpoint.pad_width(self.width).pad_layers(self.layers)
    }
}

impl fmt::Display for CostPadding {
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

/// A model folder as a table; its path alone may stand for it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelTable {
    /// Model folder, relative to the working directory, or `hf:owner/name[@revision]`.
    path: PathBuf,
    /// Idle blocks added, each as dear as a block of the model; outputs stay as they are.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = 0))]
    pad_layers: usize,
    /// Idle inner columns added to every MLP; outputs stay as they are.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = 0))]
    pad_width: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.padding.is_none() {
            return self.path.serialize(serializer);
        }
        let table = ModelTable {
            path: self.path.clone(),
            pad_layers: self.padding.layers,
            pad_width: self.padding.width,
        };
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand, because an untagged enum would hide which key of the table is wrong.
        struct PathOrTable;
        impl<'de> Visitor<'de> for PathOrTable {
            type Value = ModelConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model folder or { path = FOLDER, pad_layers = N, pad_width = N }")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<ModelConfig, E> {
                Ok(ModelConfig {
                    path: path.into(),
                    padding: CostPadding::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelConfig, A::Error> {
                let table = ModelTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelConfig {
                    path: table.path,
                    padding: CostPadding {
                        layers: table.pad_layers,
                        width: table.pad_width,
                    },
                })
            }
        }
        deserializer.deserialize_any(PathOrTable)
    }
}

impl JsonSchema for ModelConfig {
    fn schema_name() -> Cow<'static, str> {
        "ModelConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<ModelTable>();
        json_schema!({ "title": "path or table", "anyOf": [{ "type": "string" }, table] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_written_back() {
        let text = "L = \"models/L\"\nbig = { path = \"models/L\", pad_layers = 12 }\n\
             wide = { path = \"models/L\", pad_width = 64 }\n";
        let targets: BTreeMap<String, ModelConfig> = toml::from_str(text).unwrap();
        assert!(targets["L"].padding.is_none());
        assert_eq!(targets["big"].padding.layers, 12);
        assert_eq!(targets["wide"].padding.width, 64);
        assert_eq!(targets["big"].path, targets["L"].path);
        let json = serde_json::to_value(&targets).unwrap();
        assert_eq!(json["L"], "models/L");
        assert_eq!(json["big"]["pad_layers"], 12);
        assert_eq!(json["wide"].as_object().unwrap().len(), 2);
        let again: BTreeMap<String, ModelConfig> = serde_json::from_value(json).unwrap();
        assert_eq!(again, targets);
    }
}
