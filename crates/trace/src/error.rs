//! What can be wrong with a trace, with the file and the row.

use std::path::PathBuf;

/// Errors of this crate. Rows of a file are counted from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// `read`, `write`, ...
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The parquet library cannot make sense of the file.
    #[error("{}: damaged, cut short, or no trace: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The library's words.
        message: String,
    },
    /// The file's metadata are missing, malformed or impossible.
    #[error("{}: {message}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A row is not what it should be.
    #[error("{}: row {row} (prompt `{id}`): {fault}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Row, from 1.
        row: usize,
        /// Id of the prompt; empty where it could not be read.
        id: String,
        /// What is wrong.
        fault: RowFault,
    },
    /// A trace of another tokenizer.
    #[error(
        "{}: recorded with the tokenizer {expected}, but {} is {found}",
        path.display(),
        tokenizer.display()
    )]
    Tokenizer {
        /// The trace.
        path: PathBuf,
        /// SHA-256 of the `tokenizer.json` it was recorded with.
        expected: String,
        /// The `tokenizer.json` at hand.
        tokenizer: PathBuf,
        /// Its SHA-256.
        found: String,
    },
    /// More tokens a position than there are.
    #[error("{top} tokens a position, but the vocabulary has {vocab}")]
    Top {
        /// K.
        top: usize,
        /// Rows of the target's head.
        vocab: usize,
    },
    /// Files of one target that do not belong together.
    #[error("{}: another {what} than {}", path.display(), other.display())]
    Mixed {
        /// This file.
        path: PathBuf,
        /// The first file.
        other: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// A prompt that no row has.
    #[error("{files}: no row for this prompt of {tokens} tokens")]
    UnknownPrompt {
        /// The trace, or the first of several.
        files: String,
        /// Tokens in the context.
        tokens: usize,
    },
    /// A row was asked for that the last forward did not score.
    #[error("row {row} was asked for, which the last forward did not score")]
    NotScored {
        /// Counted from the first token of the forward.
        row: usize,
    },
    /// Verification looked at a row that is not on the recorded path.
    #[error(
        "{files}: a row was judged that was not recorded: behind a token that the target never says, or behind the \
         end of what was recorded"
    )]
    Unrecorded {
        /// The trace, or the first of several.
        files: String,
        /// What verification made of it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Prompts shortened otherwise than those that were recorded.
    #[error(
        "{files}: prompts were recorded up to {recorded} tokens, decode.context leaves room for {room}"
    )]
    PromptRoom {
        /// The trace, or the first of several.
        files: String,
        /// Most tokens of a recorded prompt.
        recorded: usize,
        /// Most tokens of a prompt now.
        room: usize,
    },
    /// Another template than the one that was recorded with.
    #[error(
        "{files}: recorded with a {recorded:?} template, {} has a {found:?} one",
        tokenizer.display()
    )]
    OtherTemplate {
        /// The trace, or the first of several.
        files: String,
        /// What was recorded.
        recorded: crate::Template,
        /// The tokenizer's folder.
        tokenizer: PathBuf,
        /// Its template.
        found: crate::Template,
    },
    /// Answers longer than what was recorded.
    #[error(
        "{}: answers were recorded up to {recorded} tokens, {asked} are asked for",
        path.display()
    )]
    AnswerLimit {
        /// The file.
        path: PathBuf,
        /// Most tokens of a recorded answer.
        recorded: usize,
        /// Most tokens of an answer now.
        asked: usize,
    },
    /// A partial recording that was made with other settings.
    #[error("{}: begun with other settings: {difference}", path.display())]
    OtherRecording {
        /// The partial file.
        path: PathBuf,
        /// Which setting differs, and how.
        difference: String,
    },
    /// The file to be recorded is there already.
    #[error("{}: there is such a file already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A law of reference text that is none.
    #[error("{key} = {value}: must be {expected}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RowFault {
    /// A column has another length than the others imply.
    #[error("column `{column}` has length {found} instead of {expected}")]
    Length {
        /// The column.
        column: &'static str,
        /// What it has.
        found: usize,
        /// What the answer's length and K imply.
        expected: usize,
    },
    /// Text that is no UTF-8.
    #[error("column `{0}` is not UTF-8")]
    Text(&'static str),
    /// The content is not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// A token that the vocabulary does not have.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        token: u32,
        /// Rows of the target's head.
        vocab: usize,
    },
    /// The most probable token is not the one that follows: no greedy answer.
    #[error("at position {position} the answer has token {answer}, but {best} is more probable")]
    NotGreedy {
        /// Position in the answer, from 0.
        position: usize,
        /// Token of the answer.
        answer: u32,
        /// Most probable token.
        best: u32,
    },
    /// A probability that is none, or tokens out of order.
    #[error("at position {position}: {what}")]
    Law {
        /// Position in the answer, from 0.
        position: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A row without prompt or without answer.
    #[error("it has no {0}")]
    Empty(&'static str),
}

impl TraceError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            path,
            action,
            source,
        }
    }

    /// Whether no row has the prompt.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::UnknownPrompt { .. })
    }

    /// What the user can do about it, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Damaged { .. } | Self::Row { .. } => {
                "the file was not copied whole or was changed; fetch or record it again (`omnidraft trace verify` reads every row)"
            }
            Self::Tokenizer { .. } => {
                "a trace replays under the tokenizer it was recorded with; `omnidraft trace show` names the model"
            }
            Self::Top { .. } => "lower --top; --top all records the whole vocabulary",
            Self::Mixed { .. } => "name one target for each recorded model",
            Self::UnknownPrompt { .. } => {
                "record the task and the split that the experiment streams, all of its prompts, with the same template"
            }
            Self::Unrecorded { .. } => {
                "drafts longer than the recorded tail need `--tail` when the target is recorded; anything else is a \
                 fault of the loop"
            }
            Self::PromptRoom { .. } => "leave decode.context out: a recording keeps no KV cache",
            Self::OtherTemplate { .. } => {
                "chat_template.jinja or tokenizer_config.json beside the tokenizer hold the template"
            }
            Self::AnswerLimit { .. } => {
                "lower decode.max_new_tokens, or record with a larger --max-tokens"
            }
            Self::OtherRecording { .. } => "finish it with its own settings, or remove it",
            Self::Exists { .. } => "remove it, or give another --out",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
