//! A choice of the method, or `"none"`: the form of an `Option` in files.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

const NONE: &str = "none";

/// Writes the choice's name, or `"none"`.
pub(super) fn serialize<T: Serialize, S: Serializer>(
    choice: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match choice {
        Some(choice) => choice.serialize(serializer),
        None => serializer.serialize_str(NONE),
    }
}

/// Reads a choice or `"none"`.
pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name == NONE {
        return Ok(None);
    }
    let choice = T::deserialize(name.as_str().into_deserializer());
    choice
        .map(Some)
        .map_err(|error: serde::de::value::Error| D::Error::custom(format!("{error}, `{NONE}`")))
}

/// The names of the type, and `"none"` with this meaning.
pub(super) fn schema<T: JsonSchema>(generator: &mut SchemaGenerator, meaning: &str) -> Schema {
    let mut schema = T::json_schema(generator);
    if let Some(Value::Array(names)) = schema.get_mut("oneOf") {
        names.push(json!({"type": "string", "const": NONE, "description": meaning}));
    }
    schema
}
