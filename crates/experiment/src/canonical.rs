//! Canonical JSON for hashes: sorted keys, no spaces.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of the canonical form, hexadecimal.
pub(crate) fn hash(mut value: Value) -> String {
    value.sort_all_objects();
    hex::encode(Sha256::digest(value.to_string()))
}
