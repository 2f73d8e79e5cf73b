//! Errors of requests to the hub and of the files it sends.

use std::path::PathBuf;

use hf_hub::api::sync::ApiError;

/// Reason why a model or dataset of the hub cannot be used; [`HubError::hint`] says what to do.
///
/// `file` is the file in the repository, or `list of files` if the request was for that list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Neither `HF_HOME` nor a home folder is known.
    #[error("there is no home folder to keep downloads in")]
    NoHome,
    /// A text, which is the value, does not name a model of the hub.
    #[error("`{0}` does not name a model of the hub")]
    BadName(String),
    /// A file cannot be had from the hub, or is not what it should be.
    #[error("{repo}: {file}: {fault}")]
    File {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// The fault.
        fault: FileFault,
    },
    /// A download cannot be written to disk.
    #[error("{repo}: {file}: cannot be stored: {source}")]
    Store {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A repository lacks a file that is needed.
    #[error("{repo}: has no {file}")]
    MissingFile {
        /// Repository.
        repo: String,
        /// The file.
        file: String,
    },
    /// A dataset holds no record of one half of the published split.
    #[error("{repo}: holds no record of the {half} split of `{task}`")]
    NoSplit {
        /// Repository.
        repo: String,
        /// The half: `train` or `test`.
        half: &'static str,
        /// Task.
        task: &'static str,
    },
    /// A local file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// A fault of a file of a repository, or of the request for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The hub answers the request with an error status.
    #[error("the hub answers with status {0}")]
    Status(u16),
    /// The hub does not answer; the value is the message of the underlying error.
    #[error("the hub cannot be reached: {0}")]
    Unreachable(String),
    /// A download broke off; the value is the message of the underlying error.
    #[error("the download broke off: {0}")]
    Interrupted(String),
    /// The partial file of an earlier download is longer than the file at the hub.
    #[error("the part downloaded earlier cannot be continued")]
    StalePart,
    /// Another process downloads the same file.
    #[error("another process is downloading it")]
    Busy,
    /// A file arrived whole, but its SHA-256 is not the one that the hub announced.
    #[error("the file that arrived is not the one that the hub announced")]
    Damaged,
    /// An answer has another form than a hub's; the value describes it.
    #[error("not the answer of a hub: {0}")]
    Reply(String),
    /// A table cannot be read, or lacks a column; the value describes the fault.
    #[error("{0}")]
    Table(String),
}

impl FileFault {
    pub(super) fn of(self, repo: &str, file: &str) -> HubError {
        HubError::File {
            repo: repo.to_owned(),
            file: file.to_owned(),
            fault: self,
        }
    }

    /// True if the same request may succeed a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Interrupted(_) | Self::StalePart => true,
            Self::Status(status) => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Status(401) => {
                "the name is wrong, or the repository is private or gated: accept its terms on its page and set \
                 HF_TOKEN to an access token"
            }
            Self::Status(403) => {
                "the token may not read this repository: accept its terms on its page, or use another HF_TOKEN"
            }
            Self::Status(404) => {
                "check owner, name and revision; the hub also answers so for a private repository without access"
            }
            Self::Status(_) => "the hub has a problem; try again later, nothing downloaded is lost",
            Self::Unreachable(_) => {
                "is there a network? HF_ENDPOINT names another hub; model folders and --data-dir DIR need none"
            }
            Self::Interrupted(_) | Self::StalePart | Self::Damaged => {
                "run the command again: complete files are kept, the rest is continued"
            }
            Self::Busy => "wait for it, then run the command again",
            Self::Reply(_) => "does HF_ENDPOINT name a hub?",
            Self::Table(_) => OTHER_DATA,
        }
    }
}

/// Hint for a dataset that is not what it was.
const OTHER_DATA: &str =
    "the dataset has changed on the hub; --data-dir DIR reads local files instead";

impl HubError {
    /// The fault, if it is one of a file at the hub.
    pub fn fault(&self) -> Option<&FileFault> {
        match self {
            Self::File { fault, .. } => Some(fault),
            _ => None,
        }
    }

    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(super) fn from_api(repo: &str, file: &str, error: ApiError) -> Self {
        use std::io::ErrorKind;
        let fault = match error {
            ApiError::RequestError(error) => match *error {
                // The range asked for begins after the end of the file.
                ureq::Error::StatusCode(416) => FileFault::StalePart,
                ureq::Error::StatusCode(status) => FileFault::Status(status),
                ureq::Error::Json(error) => FileFault::Reply(error.to_string()),
                ureq::Error::Io(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof
                            | ErrorKind::ConnectionReset
                            | ErrorKind::ConnectionAborted
                    ) =>
                {
                    FileFault::Interrupted(error.to_string())
                }
                other => FileFault::Unreachable(other.to_string()),
            },
            ApiError::InvalidResume => FileFault::StalePart,
            // Both ends of the copy report here; these kinds come from the disk.
            ApiError::IoError(source)
                if matches!(
                    source.kind(),
                    ErrorKind::PermissionDenied
                        | ErrorKind::StorageFull
                        | ErrorKind::ReadOnlyFilesystem
                        | ErrorKind::QuotaExceeded
                        | ErrorKind::NotADirectory
                        | ErrorKind::AlreadyExists
                ) =>
            {
                let (repo, file) = (repo.to_owned(), file.to_owned());
                return Self::Store { repo, file, source };
            }
            ApiError::IoError(source) => FileFault::Interrupted(source.to_string()),
            ApiError::TooManyRetries(error) => return Self::from_api(repo, file, *error),
            ApiError::LockAcquisition(_) => FileFault::Busy,
            other => FileFault::Reply(other.to_string()),
        };
        fault.of(repo, file)
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoHome => "set HF_HOME to a folder",
            Self::BadName(_) => {
                "a model is written hf:owner/name or hf:owner/name@revision, for example hf:Qwen/Qwen2.5-0.5B-Instruct"
            }
            Self::File { fault, .. } => fault.hint(),
            Self::MissingFile { file, .. } if file.ends_with(".safetensors") => {
                "weights are read from safetensors and from pytorch_model.bin; where the hub converted others, they are at @refs/pr/N"
            }
            Self::MissingFile { file, .. } if file.ends_with(".parquet") => OTHER_DATA,
            Self::MissingFile { .. } => {
                "a model needs config.json, tokenizer.json and weights; choose another repository or revision"
            }
            Self::NoSplit { .. } => OTHER_DATA,
            Self::Store { .. } | Self::Io { .. } => {
                "HF_HOME names the folder that downloads are kept in"
            }
        };
        Some(text.to_owned())
    }
}
