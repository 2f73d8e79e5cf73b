//! One model of an experiment: a folder, perhaps padded.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A model in `[models]`: `"models/L"`, or `{ path = "models/L", pad_layers = 12 }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfig {
    /// Model folder, relative to the working directory, or `hf:owner/name[@revision]`.
    pub path: PathBuf,
    /// Blocks added that cost what a block costs and change nothing
    /// ([`lm::Checkpoint::pad_layers`]).
    pub pad_layers: usize,
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.pad_layers == 0 {
            return self.path.serialize(serializer);
        }
        let mut table = serializer.serialize_struct("ModelConfig", 2)?;
        table.serialize_field("path", &self.path)?;
        table.serialize_field("pad_layers", &self.pad_layers)?;
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
                f.write_str("a model folder or { path = FOLDER, pad_layers = N }")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<ModelConfig, E> {
                Ok(ModelConfig {
                    path: path.into(),
                    pad_layers: 0,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelConfig, A::Error> {
                #[derive(serde::Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Table {
                    path: PathBuf,
                    #[serde(default)]
                    pad_layers: usize,
                }
                let Table { path, pad_layers } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelConfig { path, pad_layers })
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
        let text = "L = \"models/L\"\nbig = { path = \"models/L\", pad_layers = 12 }\n";
        let targets: BTreeMap<String, ModelConfig> = toml::from_str(text).unwrap();
        assert_eq!(targets["L"].pad_layers, 0);
        assert_eq!(targets["big"].pad_layers, 12);
        assert_eq!(targets["big"].path, targets["L"].path);
        let json = serde_json::to_value(&targets).unwrap();
        assert_eq!(json["L"], "models/L");
        assert_eq!(json["big"]["pad_layers"], 12);
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
