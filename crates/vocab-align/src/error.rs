//! Errors of this crate, with the data that a message needs.

use std::path::PathBuf;

/// Errors of loading, aligning and re-tokenising vocabularies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlignError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is not JSON, ends too early, or a value has the wrong type.
    #[error("{file}, line {line}, column {column}{}: {message}", at_key(key))]
    Json {
        /// The file, or the name given to [`Vocabulary::from_json`](crate::Vocabulary::from_json).
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1 (0 when the line is empty).
        column: usize,
        /// Path of the offending key, `.` at the root.
        key: String,
        /// The value found and the one expected.
        message: String,
    },
    /// A key is missing or its value contradicts the rest of the file.
    #[error("{file}, key `{key}`: {message}")]
    Key {
        /// The file.
        file: String,
        /// Path of the key.
        key: String,
        /// Description of the fault.
        message: String,
    },
    /// The file is valid but uses a feature that this crate cannot express in bytes.
    #[error("{file}, key `{key}`: {what} is not supported ({hint})")]
    Unsupported {
        /// The file.
        file: String,
        /// Path of the key.
        key: String,
        /// The feature.
        what: String,
        /// Advice: an alternative.
        hint: &'static str,
    },
    /// The `tokenizers` library refuses a text.
    #[error("{file}: a text cannot be tokenised: {message}")]
    Tokenise {
        /// The tokenizer file.
        file: String,
        /// Message of the library.
        message: String,
    },
    /// A text holds a token that is beyond the rows of the model's embedding.
    #[error(
        "{file}: the text holds the token {token:?} with id {id}, for which the model's embedding of {rows} rows has none"
    )]
    Beyond {
        /// The tokenizer file.
        file: String,
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// Number of rows of the embedding.
        rows: usize,
    },
    /// An alignment is used with a vocabulary that it was not built from.
    #[error("the alignment was built from another revision of {side} tokenizer {file}")]
    StaleAlignment {
        /// `drafter` or `target`.
        side: &'static str,
        /// The tokenizer file.
        file: String,
    },
}

fn at_key(key: &str) -> String {
    match key {
        "." | "" => String::new(),
        key => format!(", key `{key}`"),
    }
}
