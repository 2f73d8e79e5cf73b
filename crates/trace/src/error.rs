//! Errors of reading and writing traces, with the file and the row.

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
        /// The action that failed: `read`, `write`, ...
        action: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The parquet library cannot make sense of the file.
    #[error("{}: damaged, cut short, or no trace: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Message of the library.
        message: String,
    },
    /// Another process writes the partial file at this path, or has changed it.
    #[error("{}: another process writes this recording", .0.display())]
    OtherWriter(PathBuf),
    /// The metadata of a file are missing, malformed or impossible.
    #[error("{}: {message}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        message: String,
    },
    /// A row has a fault.
    #[error("{}: row {row} (prompt `{id}`): {fault}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Row, from 1.
        row: usize,
        /// Id of the prompt; empty if it could not be read.
        id: String,
        /// The fault.
        fault: RowFault,
    },
    /// The trace was recorded with another tokenizer.
    #[error(
        "{}: recorded with the tokenizer {expected}, but {} is {found}",
        path.display(),
        tokenizer.display()
    )]
    Tokenizer {
        /// The trace.
        path: PathBuf,
        /// First 12 digits of the SHA-256 of the `tokenizer.json` it was recorded with.
        expected: String,
        /// The `tokenizer.json` at hand.
        tokenizer: PathBuf,
        /// First 12 digits of its SHA-256.
        found: String,
    },
    /// More tokens are to be recorded per position than the vocabulary has.
    #[error("{top} tokens a position, but the vocabulary has {vocab}")]
    Top {
        /// K, the number of tokens per position.
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
        /// Name of the part that differs.
        what: &'static str,
    },
    /// The traces have no row for a prompt.
    #[error("{files}: no row for this prompt of {tokens} tokens")]
    UnknownPrompt {
        /// The trace, or the first of several.
        files: String,
        /// Number of tokens in the context.
        tokens: usize,
    },
    /// A row was asked for that the last forward did not score; the value is its index, counted
    /// from the first token of the forward.
    #[error("row {0} was asked for, which the last forward did not score")]
    NotScored(usize),
    /// Verification read a row that is not on the recorded path.
    #[error(
        "{files}: verification read a row that was not recorded: one after a token that the target never emits, or \
         after the end of the recording"
    )]
    Unrecorded {
        /// The trace, or the first of several.
        files: String,
        /// Error of the verification.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Prompts are shortened to a smaller length than the recorded ones.
    #[error(
        "{files}: prompts were recorded up to {recorded} tokens, decode.context leaves room for {room}"
    )]
    PromptRoom {
        /// The trace, or the first of several.
        files: String,
        /// Largest number of tokens of a recorded prompt.
        recorded: usize,
        /// Largest number of tokens of a prompt now.
        room: usize,
    },
    /// The trace was recorded with another template.
    #[error(
        "{files}: recorded with a {recorded:?} template, {} has a {found:?} one",
        tokenizer.display()
    )]
    OtherTemplate {
        /// The trace, or the first of several.
        files: String,
        /// Template of the recording.
        recorded: crate::Template,
        /// The tokenizer's folder.
        tokenizer: PathBuf,
        /// Template of the tokenizer.
        found: crate::Template,
    },
    /// Answers may be longer than the recorded ones.
    #[error(
        "{}: answers were recorded up to {recorded} tokens, {asked} are asked for",
        path.display()
    )]
    AnswerLimit {
        /// The file.
        path: PathBuf,
        /// Largest number of tokens of a recorded answer.
        recorded: usize,
        /// Largest number of tokens of an answer now.
        asked: usize,
    },
    /// A recording, finished or not, that was made with other settings.
    #[error("{}: begun with other settings: {difference}", path.display())]
    OtherRecording {
        /// The file or the partial file.
        path: PathBuf,
        /// Name of the setting that differs, with both values.
        difference: String,
    },
    /// A setting of the distribution of reference text is outside its range.
    #[error("{key} = {value}: must be {expected}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// Description of the values that it may have.
        expected: &'static str,
    },
}

/// A fault of a row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RowFault {
    /// A column has another length than the others imply.
    #[error("column `{column}` has length {found} instead of {expected}")]
    Length {
        /// The column.
        column: &'static str,
        /// Its length.
        found: usize,
        /// The length that the answer's length and K imply.
        expected: usize,
    },
    /// A text is not UTF-8.
    #[error("column `{0}` is not UTF-8")]
    Text(&'static str),
    /// The checksum does not match the content.
    #[error("its checksum is wrong")]
    Checksum,
    /// A token is outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        token: u32,
        /// Rows of the target's head.
        vocab: usize,
    },
    /// The most probable token is not the next one, so the answer is not greedy.
    #[error("at position {position} the answer has token {answer}, but {best} is more probable")]
    NotGreedy {
        /// Position in the answer, from 0.
        position: usize,
        /// Token of the answer.
        answer: u32,
        /// The most probable token.
        best: u32,
    },
    /// A log-probability is impossible, or tokens are out of order.
    #[error("at position {position}: {what}")]
    Law {
        /// Position in the answer, from 0.
        position: usize,
        /// Description of the fault.
        what: &'static str,
    },
    /// A row has no prompt or no answer.
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

    /// Advice for the user, if there is any.
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
                "if drafts are longer than the recorded tail, record the target with a larger `--tail`; otherwise this is \
                 a fault of the program"
            }
            Self::PromptRoom { .. } => "leave decode.context out: a recording keeps no KV cache",
            Self::OtherTemplate { .. } => {
                "chat_template.jinja or tokenizer_config.json beside the tokenizer hold the template"
            }
            Self::AnswerLimit { .. } => {
                "lower decode.max_new_tokens, or record with a larger --max-tokens"
            }
            Self::OtherWriter(_) => "wait for it or end it, or give another --out",
            Self::OtherRecording { .. } => {
                "go on with its own settings, remove it, or give another --out"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
