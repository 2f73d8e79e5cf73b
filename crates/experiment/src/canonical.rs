//! Canonical JSON for hashes: sorted keys, no spaces.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of the canonical form, hexadecimal.
pub(crate) fn hash(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    hex::encode(Sha256::digest(text.as_bytes()))
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        leaf => text.push_str(&leaf.to_string()),
    }
}
