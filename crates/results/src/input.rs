//! Input files of a cell, identified by content.

use crate::ResultsError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;

/// An input file of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Role of the file: `drafter model`, `target tokenizer`, `stream`, ...
    pub role: String,
    /// File name, without the folders of this machine.
    pub name: String,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of rows, for a data set.
    pub rows: Option<u64>,
}

impl InputFile {
    /// Hashes the file at `path`.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn hash(role: &str, path: &Path) -> Result<Self, ResultsError> {
        let io = |source| ResultsError::io("read", path, source);
        let mut file = std::fs::File::open(path).map_err(io)?;
        let mut hasher = Sha256::new();
        let bytes = std::io::copy(&mut file, &mut hasher).map_err(io)?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            role: role.to_owned(),
            name: name.to_string_lossy().into_owned(),
            sha256: hex::encode(hasher.finalize()),
            bytes,
            rows: None,
        })
    }

    /// The prompts of a stream, hashed from memory.
    pub fn stream(name: &str, content: &[u8], rows: u64) -> Self {
        Self {
            role: "stream".to_owned(),
            name: name.to_owned(),
            sha256: hex::encode(Sha256::digest(content)),
            bytes: content.len() as u64,
            rows: Some(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha256() {
        let file = InputFile::stream("abc", b"abc", 1);
        assert_eq!(
            file.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
