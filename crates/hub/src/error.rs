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
    /// A text does not name a model of the hub.
    #[error("`{given}` does not name a model of the hub")]
    BadName {
        /// The text.
        given: String,
    },
    /// The hub answers a request for a file with an error status.
    #[error("{repo}: {file}: the hub answers with status {status}")]
    Status {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// HTTP status.
        status: u16,
    },
    /// The hub does not answer.
    #[error("{repo}: {file}: the hub cannot be reached: {message}")]
    Unreachable {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// Message of the underlying error.
        message: String,
    },
    /// A download broke off.
    #[error("{repo}: {file}: the download broke off: {message}")]
    Interrupted {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// Message of the underlying error.
        message: String,
    },
    /// The partial file of an earlier download is longer than the file at the hub.
    #[error("{repo}: {file}: the part downloaded earlier cannot be continued")]
    StalePart {
        /// Repository.
        repo: String,
        /// File.
        file: String,
    },
    /// Another process downloads the same file.
    #[error("{repo}: {file}: another process is downloading it")]
    Busy {
        /// Repository.
        repo: String,
        /// File.
        file: String,
    },
    /// A file arrived whole, but its SHA-256 is not the one that the hub announced.
    #[error("{repo}: {file}: the file that arrived is not the one that the hub announced")]
    Damaged {
        /// Repository.
        repo: String,
        /// File.
        file: String,
    },
    /// An answer has another form than a hub's.
    #[error("{repo}: {file}: not the answer of a hub: {message}")]
    Reply {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// Description of the fault.
        message: String,
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
    /// A table cannot be read, or lacks a column.
    #[error("{repo}: {file}: {message}")]
    Table {
        /// Repository.
        repo: String,
        /// The table.
        file: String,
        /// Description of the fault.
        message: String,
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

impl HubError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(super) fn from_api(repo: &str, file: &str, error: ApiError) -> Self {
        use std::io::ErrorKind;
        let (repo, file) = (repo.to_owned(), file.to_owned());
        match error {
            ApiError::RequestError(error) => match *error {
                // The range asked for begins after the end of the file.
                ureq::Error::StatusCode(416) => Self::StalePart { repo, file },
                ureq::Error::StatusCode(status) => Self::Status { repo, file, status },
                ureq::Error::Json(error) => Self::Reply {
                    repo,
                    file,
                    message: error.to_string(),
                },
                ureq::Error::Io(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof
                            | ErrorKind::ConnectionReset
                            | ErrorKind::ConnectionAborted
                    ) =>
                {
                    Self::Interrupted {
                        repo,
                        file,
                        message: error.to_string(),
                    }
                }
                other => Self::Unreachable {
                    repo,
                    file,
                    message: other.to_string(),
                },
            },
            ApiError::InvalidResume => Self::StalePart { repo, file },
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
                Self::Store { repo, file, source }
            }
            ApiError::IoError(source) => Self::Interrupted {
                repo,
                file,
                message: source.to_string(),
            },
            ApiError::TooManyRetries(error) => Self::from_api(&repo, &file, *error),
            ApiError::LockAcquisition(_) => Self::Busy { repo, file },
            other => Self::Reply {
                repo,
                file,
                message: other.to_string(),
            },
        }
    }

    /// True if the same request may succeed a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Interrupted { .. } | Self::StalePart { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoHome => "set HF_HOME to a folder",
            Self::BadName { .. } => {
                "a model is written hf:owner/name or hf:owner/name@revision, for example hf:Qwen/Qwen2.5-0.5B-Instruct"
            }
            Self::Status { status: 401, .. } => {
                "the name is wrong, or the repository is private or gated: accept its terms on its page and set \
                 HF_TOKEN to an access token"
            }
            Self::Status { status: 403, .. } => {
                "the token may not read this repository: accept its terms on its page, or use another HF_TOKEN"
            }
            Self::Status { status: 404, .. } => {
                "check owner, name and revision; the hub also answers so for a private repository without access"
            }
            Self::Status { .. } => {
                "the hub has a problem; try again later, nothing downloaded is lost"
            }
            Self::Unreachable { .. } => {
                "is there a network? HF_ENDPOINT names another hub; model folders and --data-dir DIR need none"
            }
            Self::Interrupted { .. } | Self::StalePart { .. } | Self::Damaged { .. } => {
                "run the command again: complete files are kept, the rest is continued"
            }
            Self::Busy { .. } => "wait for it, then run the command again",
            Self::Reply { .. } => "does HF_ENDPOINT name a hub?",
            Self::MissingFile { file, .. } if file.ends_with(".safetensors") => {
                "weights are read from safetensors and from pytorch_model.bin; where the hub converted others, they are at @refs/pr/N"
            }
            Self::MissingFile { file, .. } if file.ends_with(".parquet") => {
                "the dataset has changed on the hub; --data-dir DIR reads local files instead"
            }
            Self::MissingFile { .. } => {
                "a model needs config.json, tokenizer.json and weights; choose another repository or revision"
            }
            Self::Table { .. } | Self::NoSplit { .. } => {
                "the dataset has changed on the hub; --data-dir DIR reads local files instead"
            }
            Self::Store { .. } | Self::Io { .. } => {
                "HF_HOME names the folder that downloads are kept in"
            }
        };
        Some(text.to_owned())
    }
}
