//! Errors around jobs, as opposed to errors of jobs.

use std::io;
use std::path::{Path, PathBuf};

use crate::JobId;

/// Errors of folders, locks and launchers, each with a [hint](JobsError::hint) for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobsError {
    /// The operating system refused a file operation.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation that failed: `read`, `write`, `remove`, ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The record of the run cannot be read, or a file written.
    #[error(transparent)]
    Results(#[from] results::ResultsError),
    /// The name of a stage or cell is not a valid folder name.
    #[error("`{name}` cannot name a stage or a cell: it {problem}")]
    BadName {
        /// The name.
        name: String,
        /// The problem, as the end of a sentence.
        problem: &'static str,
    },
    /// Two jobs have the same name.
    #[error("there are two jobs {id}")]
    TwoJobs {
        /// The name.
        id: JobId,
    },
    /// The folder is not empty and holds no run.
    #[error("{path} is not empty and holds no run: it has no experiment.json")]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of a status request holds no run.
    #[error("there is no run in {path}: it has no experiment.json")]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder belongs to an experiment of another name.
    #[error("{path} holds the experiment `{found}`, not `{expected}`")]
    OtherExperiment {
        /// The folder.
        path: PathBuf,
        /// Its experiment.
        found: String,
        /// The experiment that should run.
        expected: String,
    },
    /// A cell was written from another configuration.
    #[error("{id} in {path} was written from another configuration: the experiment was edited")]
    Edited {
        /// The job.
        id: JobId,
        /// Its folder.
        path: PathBuf,
    },
    /// A cell was written by another commit of this version.
    #[error("{path} was written by commit {found} of the program, this is {expected}")]
    OtherBuild {
        /// The folder.
        path: PathBuf,
        /// Commit of the folder.
        found: String,
        /// Commit of this program.
        expected: String,
    },
    /// A path or argument is not valid in a command line.
    #[error("`{word}` cannot stand in a command line: it {problem}")]
    BadWord {
        /// The path or argument.
        word: String,
        /// The problem, as the end of a sentence.
        problem: &'static str,
    },
    /// Another process is submitting the same run.
    #[error("another process is submitting {path}")]
    Submitting {
        /// The run's folder.
        path: PathBuf,
    },
    /// A file, file system, program or key that cannot be used.
    #[error("{message}")]
    Refused {
        /// The whole message.
        message: String,
        /// Advice for the user.
        hint: String,
    },
}

impl JobsError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn json(path: &Path, error: &serde_json::Error) -> Self {
        let folder = path.parent().unwrap_or(path).display();
        Self::refused(
            format!("{}, line {}: {error}", path.display(), error.line()),
            format!("the file was changed or damaged; remove {folder} to do it anew"),
        )
    }

    pub(crate) fn refused(message: String, hint: impl Into<String>) -> Self {
        Self::Refused {
            message,
            hint: hint.into(),
        }
    }

    /// Advice for the user; `None` if the message says it all.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Io { .. } => return None,
            Self::Results(error) => return error.hint(),
            Self::BadName { .. } => "rename the stage or the grid's value",
            Self::TwoJobs { .. } => {
                "two cells of the grid have the same values; take one of them out"
            }
            Self::NotARun { .. } => "give another folder with --out, or an empty one",
            Self::NoRun { .. } => "give the folder that `omnidraft run` wrote, as runs/NAME",
            Self::OtherExperiment { .. } => "give another folder with --out",
            Self::Edited { path, .. } => {
                return Some(format!(
                    "undo the edit, give another folder with --out, or remove {} and whatever starts \
                     from it to do them anew",
                    path.display()
                ));
            }
            Self::OtherBuild { .. } => {
                "give another folder with --out, or mix the two with --accept-other-build"
            }
            Self::BadWord { .. } => "choose another name",
            Self::Submitting { .. } => "wait for it to end",
            Self::Refused { hint, .. } => hint.as_str(),
        };
        Some(text.to_owned())
    }
}
