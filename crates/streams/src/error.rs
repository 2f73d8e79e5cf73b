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
    /// A line is not UTF-8.
    #[error("{}:{line}: invalid UTF-8 at byte {byte} of the line", path.display())]
    InvalidUtf8 {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Offset of the first bad byte in the line, from 0.
        byte: usize,
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
    /// The content of a file does not match its ending.
    #[error("{}:{line}: is {format}, not lines of JSON objects", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Description of the content that was found.
        format: &'static str,
    },
    /// A file that ends in `.json` holds no array, or the array breaks off.
    #[error("{}:{line}: not a JSON array: {wanted} is expected", path.display())]
    BrokenArray {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The value expected.
        wanted: &'static str,
    },
    /// A record lacks a field.
    #[error("{}:{line}: field `{field}` is missing", path.display())]
    MissingField {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field.
        field: String,
    },
    /// A field is not a text (of an id: neither a text nor a whole number).
    #[error("{}:{line}: field `{field}` is not a text{}", path.display(), or_number(field))]
    NotAString {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field.
        field: String,
    },
    /// A field is not a list of texts.
    #[error("{}:{line}: field `{field}` is not a list of texts", path.display())]
    NotTexts {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field.
        field: String,
    },
    /// A record stands for a text that its publisher may not give away.
    #[error("{}:{line}: field `turns` holds no question but a note that it must be fetched elsewhere", path.display())]
    Withheld {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// A field that must hold text is empty or only white space.
    #[error("{}:{line}: field `{field}` is empty", path.display())]
    EmptyField {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field.
        field: String,
    },
    /// Two records of a file share an id.
    #[error("{}:{line}: id `{id}` was already used on line {first_line}", path.display())]
    DuplicateId {
        /// The file.
        path: PathBuf,
        /// Line of the second record, from 1.
        line: usize,
        /// Line of the first record, from 1.
        first_line: usize,
        /// The id.
        id: String,
    },
    /// A stream holds no prompt.
    #[error("{stream}: the stream is empty")]
    EmptyStream {
        /// File or stream name.
        stream: String,
    },
    /// A split file is not JSON of the form `{"rule": ..., "train": [ids], "test": [ids]}`.
    #[error("{}: not a split file: {source}", path.display())]
    MalformedSplit {
        /// The file.
        path: PathBuf,
        /// The parser's complaint.
        source: serde_json::Error,
    },
    /// An id selector is not of the form `FILE:LIST`.
    #[error("`{selector}` is not an id selector")]
    BadSelector {
        /// The text given.
        selector: String,
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
    /// A task is not embedded and no data directory is known.
    #[error("task `{task}` is not embedded in this program and no data directory is set")]
    NoDataDir {
        /// The task.
        task: String,
    },
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
    /// A task name that would leave the data directory.
    #[error("`{task}` is not a task name")]
    BadTaskName {
        /// The name given.
        task: String,
    },
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
            Self::InvalidUtf8 { .. } => "convert the file to UTF-8",
            Self::MalformedLine { source, .. } if source.is_eof() => {
                "the line ends in the middle of the object: is the file truncated?"
            }
            Self::MalformedLine { .. } => {
                "each line is one JSON object with the fields id and prompt"
            }
            Self::OtherFormat { format, .. } if format.contains("gzip") => {
                "files that end in .jsonl.gz and .json.gz are read as they are"
            }
            Self::OtherFormat { .. } => "an array is read from a file that ends in .json",
            Self::BrokenArray { .. } => {
                "a .json file holds one array of objects; lines of objects are read from a .jsonl file"
            }
            Self::MissingField { .. } | Self::NotAString { .. } | Self::EmptyField { .. } => {
                "each record needs id (a text or a whole number) and the text prompt; the text reference may be left out. \
                 Records of Spec-Bench, MT-Bench, SPEED-Bench, HumanEval, MBPP and CNN/DailyMail are read by their own fields"
            }
            Self::NotTexts { .. } => {
                "`turns` are the questions of a conversation, `test_list` the tests of a task: lists of texts"
            }
            Self::Withheld { .. } => {
                "SPEED-Bench as published leaves out texts of other owners; its own script fetches them and writes the whole file"
            }
            Self::SeveralFiles { .. } => {
                "name them train.jsonl and test.jsonl, or leave one file in the folder, which is both halves then"
            }
            Self::DuplicateId { .. } => "give every record of a file its own id",
            Self::BadSelector { .. } => "write FILE:LIST, for example paper_split.json:train",
            Self::MalformedSplit { .. } => {
                "a split file holds an object whose train and test are lists of ids"
            }
            Self::UnknownId { .. } => "the split file belongs to another version of the data",
            Self::TestLeak { .. } => "train on the task's train split, or remove the record",
            Self::NoDataDir { .. } => {
                "--data-dir hub downloads gsm8k, mbpp_humaneval, alpaca and xsum; --data-dir DIR, or OMNIDRAFT_SHARED \
                 naming a folder that holds datasets/, reads local files; mini-math, mini-code, mini-chat and mini-news need neither"
            }
            Self::MissingTask { .. } => {
                "the data directory holds one folder per task (gsm8k, mbpp_humaneval, alpaca, xsum) \
                 with train.jsonl and test.jsonl; --data-dir hub downloads these four"
            }
            Self::BadTaskName { .. } => "a task is the name of a folder in the data directory",
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
