//! Errors of reading and selecting the prompts of a stream.

use std::path::{Path, PathBuf};

/// The JSON parser's message without its line number, which counts from the start of the record and
/// not of the file.
fn complaint(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(text) if error.line() == 1 => format!("{text} at column {}", error.column()),
        Some(text) => text.to_owned(),
        None => text,
    }
}

/// Ending of the message for a field that may also be a number.
fn or_number(field: &str) -> &'static str {
    if matches!(field, "id" | "question_id" | "task_id") {
        " or a whole number"
    } else {
        ""
    }
}

/// Reason why a stream cannot be used.
///
/// Messages name the file and, if there is one, the line (counted from 1); [`StreamError::hint`]
/// says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line or a record has a fault.
    #[error("{}:{line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The fault.
        fault: LineFault,
    },
    /// A line is not one complete JSON object.
    #[error("{}:{line}: not a JSON object: {}", path.display(), complaint(source))]
    MalformedLine {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The parser's error. Its line numbers start at this line.
        source: serde_json::Error,
    },
    /// A stream holds no prompt; the value is its name or its file.
    #[error("{0}: the stream is empty")]
    EmptyStream(String),
    /// A split file is not JSON of the form `{"rule": ..., "train": [ids], "test": [ids]}`.
    #[error("{}: not a split file: {source}", path.display())]
    MalformedSplit {
        /// The file.
        path: PathBuf,
        /// The parser's complaint.
        source: serde_json::Error,
    },
    /// A split file has no list of that name.
    #[error("{}: no id list `{list}` (there are: {})", path.display(), known.join(", "))]
    UnknownList {
        /// The split file.
        path: PathBuf,
        /// The list asked for.
        list: String,
        /// The lists it has.
        known: Vec<String>,
    },
    /// A split names a record that the data file does not hold.
    #[error("id `{id}` of {split} is not in {data}")]
    UnknownId {
        /// The id.
        id: String,
        /// The split file and list.
        split: String,
        /// The data file.
        data: String,
    },
    /// A split lists an id twice.
    #[error("id `{id}` is listed twice in {split}")]
    RepeatedId {
        /// The id.
        id: String,
        /// The split file and list.
        split: String,
    },
    /// A training record belongs to a test split.
    #[error("{data}: id `{id}` belongs to the test ids of {split} and must not be trained on")]
    TestLeak {
        /// The id.
        id: String,
        /// Origin of the training record.
        data: String,
        /// The split file that lists it for testing.
        split: String,
    },
    /// The task of this name is not embedded and no data directory is known.
    #[error("task `{0}` is not embedded in this program and no data directory is set")]
    NoDataDir(String),
    /// The data directory lacks a task.
    #[error("task `{task}`: {} does not exist", path.display())]
    MissingTask {
        /// The task.
        task: String,
        /// The file looked for.
        path: PathBuf,
    },
    /// A task's folder has several files, none of which is named after a half.
    #[error("task `{task}`: {} holds {}, and none of them is its train or test half", folder.display(), files.join(", "))]
    SeveralFiles {
        /// The task.
        task: String,
        /// Its folder.
        folder: PathBuf,
        /// Names of the files, in order.
        files: Vec<String>,
    },
    /// A task name, which is the value, would leave the data directory.
    #[error("`{0}` is not a task name")]
    BadTaskName(String),
    /// A [`TaskSource`](crate::TaskSource) cannot provide a task.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A stream holds fewer prompts than are asked for.
    #[error(
        "stream `{stream}` has {available} prompts, but {wanted} are asked for, those skipped included"
    )]
    StreamExhausted {
        /// Task and split.
        stream: String,
        /// Number of prompts asked for, including those skipped.
        wanted: usize,
        /// Number of prompts that the stream holds.
        available: usize,
    },
}

/// A fault of a line, or of the record that begins on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// It is not UTF-8; the value is the offset of the first bad byte, from 0.
    #[error("invalid UTF-8 at byte {0} of the line")]
    InvalidUtf8(usize),
    /// The content of a file does not match its ending; the value describes it.
    #[error("is {0}, not lines of JSON objects")]
    OtherFormat(&'static str),
    /// A file that ends in `.json` holds no array, or the array breaks off; the value is what is
    /// expected.
    #[error("not a JSON array: {0} is expected")]
    BrokenArray(&'static str),
    /// There is no such field.
    #[error("field `{0}` is missing")]
    MissingField(String),
    /// A field is not a text (of an id: neither a text nor a whole number).
    #[error("field `{name}` is not a text{}", or_number(.0), name = .0)]
    NotAString(String),
    /// A field is not a list of texts.
    #[error("field `{0}` is not a list of texts")]
    NotTexts(String),
    /// A record stands for a text that its publisher may not give away.
    #[error("field `turns` holds no question but a note that it must be fetched elsewhere")]
    Withheld,
    /// A field that must hold text is empty or only white space.
    #[error("field `{0}` is empty")]
    EmptyField(String),
    /// Two records of a file share an id.
    #[error("id `{id}` was already used on line {first_line}")]
    DuplicateId {
        /// The id.
        id: String,
        /// Line of the first record, from 1.
        first_line: usize,
    },
}

impl LineFault {
    pub(crate) fn at(self, path: &Path, line: usize) -> StreamError {
        StreamError::Line {
            path: path.to_owned(),
            line,
            fault: self,
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::InvalidUtf8(_) => "convert the file to UTF-8",
            Self::OtherFormat(format) if format.contains("gzip") => {
                "files that end in .jsonl.gz and .json.gz are read as they are"
            }
            Self::OtherFormat(_) => "an array is read from a file that ends in .json",
            Self::BrokenArray(_) => {
                "a .json file holds one array of objects; lines of objects are read from a .jsonl file"
            }
            Self::MissingField(_) | Self::NotAString(_) | Self::EmptyField(_) => {
                "each record needs id (a text or a whole number) and the text prompt; the text reference may be left out. \
                 Records of Spec-Bench, MT-Bench, SPEED-Bench, HumanEval, MBPP and CNN/DailyMail are read by their own fields"
            }
            Self::NotTexts(_) => {
                "`turns` are the questions of a conversation, `test_list` the tests of a task: lists of texts"
            }
            Self::Withheld => {
                "SPEED-Bench as published leaves out texts of other owners; its own script fetches them and writes the whole file"
            }
            Self::DuplicateId { .. } => "give every record of a file its own id",
        }
    }
}

impl StreamError {
    /// The error of a file or folder that cannot be read.
    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Source(error) => return error.hint.clone(),
            Self::Line { fault, .. } => fault.hint(),
            Self::MalformedLine { source, .. } if source.is_eof() => {
                "the line ends in the middle of the object: is the file truncated?"
            }
            Self::MalformedLine { .. } => {
                "each line is one JSON object with the fields id and prompt"
            }
            Self::SeveralFiles { .. } => {
                "name them train.jsonl and test.jsonl, or leave one file in the folder, which is both halves then"
            }
            Self::MalformedSplit { .. } => {
                "a split file holds an object whose train and test are lists of ids"
            }
            Self::UnknownId { .. } => "the split file belongs to another version of the data",
            Self::TestLeak { .. } => "train on the task's train split, or remove the record",
            Self::NoDataDir(_) => {
                "--data-dir hub downloads gsm8k, mbpp_humaneval, alpaca and xsum; --data-dir DIR, or OMNIDRAFT_SHARED \
                 naming a folder that holds datasets/, reads local files; mini-math, mini-code, mini-chat and mini-news need neither"
            }
            Self::MissingTask { .. } => {
                "the data directory holds one folder per task (gsm8k, mbpp_humaneval, alpaca, xsum) \
                 with train.jsonl and test.jsonl; --data-dir hub downloads these four"
            }
            Self::BadTaskName(_) => "a task is the name of a folder in the data directory",
            Self::StreamExhausted { .. } => {
                "lower `train`: a task that comes back continues its stream and repeats no prompt"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// Reason why a [`TaskSource`](crate::TaskSource) cannot prepare a task.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// The error, with its causes.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}
