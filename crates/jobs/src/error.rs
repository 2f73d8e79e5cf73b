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
    /// The file system does not support locks.
    #[error("cannot lock {path}: {source}")]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
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
    /// A JSON file of the run is not valid.
    #[error("{path}, line {line}: {message}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The parser's message.
        message: String,
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
    /// A cell was written by a program with another layout or version.
    #[error("{path} was written by another version of the program: {found}, this is {expected}")]
    OtherVersion {
        /// The folder.
        path: PathBuf,
        /// Version and layout of the folder.
        found: String,
        /// Version and layout of this program.
        expected: String,
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
    /// A key of `[launcher.slurm]` is not valid.
    #[error("launcher.slurm.{key}: {problem}")]
    SlurmKey {
        /// The key.
        key: String,
        /// The problem with it.
        problem: String,
    },
    /// A program of Slurm was not found.
    #[error("`{program}` was not found: Slurm is not installed here, or not in PATH")]
    NoSlurm {
        /// The program.
        program: String,
    },
    /// A program of Slurm failed.
    #[error("{program} refused: {message}")]
    SlurmRefused {
        /// The program.
        program: String,
        /// Its error message.
        message: String,
        /// The command, quoted for a shell.
        command: String,
    },
    /// Another process is submitting the same run.
    #[error("another process is submitting {path}")]
    Submitting {
        /// The run's folder.
        path: PathBuf,
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
        Self::Malformed {
            path: path.to_path_buf(),
            line: error.line(),
            message: error.to_string(),
        }
    }

    /// Advice for the user; `None` if the message says it all.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Io { .. } => return None,
            Self::Results(error) => return error.hint(),
            Self::Lock { .. } => {
                "the run's folder must be on a file system with locks: choose another with --out"
            }
            Self::BadName { .. } => "rename the stage or the grid's value",
            Self::TwoJobs { .. } => {
                "two cells of the grid have the same values; take one of them out"
            }
            Self::NotARun { .. } => "give another folder with --out, or an empty one",
            Self::NoRun { .. } => "give the folder that `omnidraft run` wrote, as runs/NAME",
            Self::Malformed { path, .. } => {
                let folder = path.parent().unwrap_or(path);
                return Some(format!(
                    "the file was changed or damaged; remove {} to do it anew",
                    folder.display()
                ));
            }
            Self::OtherExperiment { .. } => "give another folder with --out",
            Self::Edited { path, .. } => {
                return Some(format!(
                    "undo the edit, give another folder with --out, or remove {} and whatever starts \
                     from it to do them anew",
                    path.display()
                ));
            }
            Self::OtherVersion { .. } => {
                "give another folder with --out, or go on with the program that wrote this one"
            }
            Self::OtherBuild { .. } => {
                "give another folder with --out, or mix the two with --accept-other-build"
            }
            Self::BadWord { .. } => "choose another name",
            Self::SlurmKey { .. } => {
                "a key becomes an option of sbatch: time = \"02:00:00\" is --time=02:00:00, \
                 requeue = true is --requeue"
            }
            Self::NoSlurm { .. } => {
                "run where sbatch is (a login node), or write the jobs' command lines with \
                 --print-jobs for another scheduler"
            }
            Self::SlurmRefused { command, .. } => {
                return Some(format!(
                    "options come from [launcher.slurm] of the experiment; what was tried: {command}"
                ));
            }
            Self::Submitting { .. } => "wait for it to end",
        };
        Some(text.to_owned())
    }
}
