//! Errors of saving, loading, checking and replaying.

use std::io;
use std::path::PathBuf;

use vocab_align::{AlignError, DraftId, TargetId};

/// An error outside the cache's own memory. Operations on a cache in memory cannot fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The operating system refused a file operation.
    #[error("cannot {action} the n-gram cache {path}: {source}")]
    Io {
        /// `read`, `write`, `replace`, ...
        action: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file does not start with the format's magic bytes.
    #[error("{path} is not an n-gram cache file")]
    NotACache {
        /// The file concerned.
        path: PathBuf,
    },
    /// The file has another version of the format.
    #[error("{path} has n-gram cache format {found}, this build reads format {supported}")]
    Version {
        /// The file concerned.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version this build reads and writes.
        supported: u32,
    },
    /// The file's length differs from the length in its header.
    #[error("{path} is truncated or overlong: {found} bytes, expected {expected}; copy it again")]
    Length {
        /// The file concerned.
        path: PathBuf,
        /// Length in bytes that the header gives, or the least length of a header.
        expected: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// The content does not match its checksum.
    #[error("{path} is damaged: its SHA-256 checksum does not match its content")]
    Checksum {
        /// The file concerned.
        path: PathBuf,
    },
    /// The content passes its checksum but breaks a rule of the format.
    #[error("{path} is malformed at n-gram {entry}: {reason}")]
    Malformed {
        /// The file concerned.
        path: PathBuf,
        /// Zero-based number of the n-gram in the file.
        entry: usize,
        /// The broken rule.
        reason: &'static str,
    },
    /// The bytes of an n-gram differ from those of its target token: the cache belongs to other
    /// tokenizers.
    #[error(
        "n-gram {draft:?} spells {draft_text:?} but target token {target} is {target_text:?}; \
         was the cache made with other tokenizers?"
    )]
    WrongVocabulary {
        /// The n-gram.
        draft: Vec<DraftId>,
        /// The target token it is mapped to.
        target: TargetId,
        /// Text of the draft tokens, made printable.
        draft_text: String,
        /// Text of the target token, made printable; empty for a special or unknown id.
        target_text: String,
    },
    /// A replayed text could not be tokenised.
    #[error("cannot tokenise text {text}: {source}")]
    Tokenise {
        /// Zero-based number of the text in the stream.
        text: usize,
        /// Error of the tokenizer.
        source: AlignError,
    },
}
