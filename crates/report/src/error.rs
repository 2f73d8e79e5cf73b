//! Errors of pages.

use results::ResultsError;
use std::path::{Path, PathBuf};

/// An error of a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The rows could not be read.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The folder is not the root of an experiment's results.
    #[error("{} holds no experiment.json", dir.display())]
    NotARoot {
        /// The folder.
        dir: PathBuf,
    },
    /// A name in the report section is unknown.
    #[error("{}: {key}: unknown name `{value}`", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The name.
        value: String,
        /// The known names.
        allowed: String,
    },
    /// A file of the paper's numbers is malformed.
    #[error("{}: {key}: {message}", path.display())]
    Paper {
        /// The file.
        path: PathBuf,
        /// The key or line.
        key: String,
        /// Description of the fault.
        message: String,
    },
    /// No complete cell has an answer.
    #[error("{}: nothing to report: {message}", dir.display())]
    Empty {
        /// The root folder.
        dir: PathBuf,
        /// The state of the cells.
        message: String,
    },
    /// A figure or a page could not be made.
    #[error("cannot {action}: {message}")]
    Making {
        /// `draw curves`, `render the html page`, ...
        action: String,
        /// The cause.
        message: String,
    },
    /// A page quotes a table that does not exist.
    #[error("{}:{line}: {message}", path.display())]
    Quote {
        /// The page.
        path: PathBuf,
        /// One-based line of the comment.
        line: usize,
        /// Description of the fault.
        message: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl ReportError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Results(error) => error.hint(),
            Self::NotARoot { .. } => Some(
                "give the folder of an experiment, `runs/NAME`, not that of a stage or a cell"
                    .to_owned(),
            ),
            Self::Unknown { allowed, .. } => Some(format!("one of: {allowed}")),
            Self::Paper { .. } => Some("see experiments/paper/table1.toml for an example".into()),
            Self::Empty { .. } => Some("`omnidraft status` shows which cells are missing".into()),
            Self::Quote { .. } => Some(
                "a quotation is `<!-- quote: FOLDER; TABLE; COLUMN = VALUE -->` with `<!-- end -->` below it"
                    .to_owned(),
            ),
            Self::Making { .. } | Self::Io { .. } => None,
        }
    }

    /// An I/O error of a path.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
