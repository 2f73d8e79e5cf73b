//! What can go wrong, with the data a caller needs to say it.

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
        /// The system's reason.
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
        /// What was found and what was expected.
        message: String,
    },
    /// A key is missing or its value contradicts the rest of the file.
    #[error("{file}, key `{key}`: {message}")]
    Key {
        /// The file.
        file: String,
        /// Path of the key.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// The file is valid but uses a feature whose tokens have no byte spelling here.
    #[error("{file}, key `{key}`: {what} is not supported ({hint})")]
    Unsupported {
        /// The file.
        file: String,
        /// Path of the key.
        key: String,
        /// The feature.
        what: String,
        /// What to use instead.
        hint: &'static str,
    },
    /// The `tokenizers` library refused a text.
    #[error("{file}: a text cannot be tokenised: {message}")]
    Tokenise {
        /// The tokenizer file.
        file: String,
        /// The library's reason.
        message: String,
    },
    /// A text holds a token that the model has no row for.
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
        /// Rows of the embedding.
        rows: usize,
    },
    /// An alignment used with a vocabulary it was not built from.
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
