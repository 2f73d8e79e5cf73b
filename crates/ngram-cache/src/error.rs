//! What can go wrong outside the cache's own memory.

use std::io;
use std::path::PathBuf;

use vocab_align::{AlignError, DraftId, TargetId};

/// Errors of saving, loading, checking and replaying. Operations on a cache in memory cannot fail.
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
        /// The system's reason.
        source: io::Error,
    },
    /// The file does not start with the format's magic bytes.
    #[error("{path} is not an n-gram cache file")]
    NotACache {
        /// The file concerned.
        path: PathBuf,
    },
    /// The file was written in another version of the format.
    #[error("{path} has n-gram cache format {found}, this build reads format {supported}")]
    Version {
        /// The file concerned.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version this build reads and writes.
        supported: u32,
    },
    /// The file's length is not the one it announces.
    #[error("{path} is truncated or overlong: {found} bytes, expected {expected}; copy it again")]
    Length {
        /// The file concerned.
        path: PathBuf,
        /// Bytes the header announces (or the least a header needs).
        expected: u64,
        /// Bytes there are.
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
        /// The rule broken.
        reason: &'static str,
    },
    /// An n-gram spells other bytes than its target token: the cache belongs to other tokenizers.
    #[error(
        "n-gram {draft:?} spells {draft_text:?} but target token {target} is {target_text:?}; \
         was the cache made with other tokenizers?"
    )]
    WrongVocabulary {
        /// The n-gram.
        draft: Vec<DraftId>,
        /// The target token it is mapped to.
        target: TargetId,
        /// What the draft tokens spell, made printable.
        draft_text: String,
        /// What the target token is, made printable; empty for a special or unknown id.
        target_text: String,
    },
    /// A replayed text could not be tokenised.
    #[error("cannot tokenise text {text}: {source}")]
    Tokenise {
        /// Zero-based number of the text in the stream.
        text: usize,
        /// The tokenizer's reason.
        source: AlignError,
    },
}
