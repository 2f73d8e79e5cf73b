//! Launchers, which hand jobs over to another program: each becomes one `omnidraft job` command.

mod print;
mod shell;
mod slurm;

use std::path::{Path, PathBuf};

use crate::{CellState, Checks, JobId, JobSpec, JobsError, RunRoot};

pub use print::print_jobs;
pub use shell::quote;
pub use slurm::{Slurm, SlurmOptions};

/// The jobs to hand over, with their context.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The run's folder, [claimed](RunRoot::claim).
    pub root: &'a RunRoot,
    /// Name of the experiment.
    pub name: &'a str,
    /// The jobs, all of the experiment's or some of them: stage by stage, each stage after those
    /// that its jobs need.
    pub jobs: &'a [JobSpec],
    /// State of each job.
    pub states: &'a [CellState],
    /// Command that runs a job.
    pub command: &'a JobCommand,
    /// Rules for using earlier results.
    pub checks: &'a Checks,
}

/// Result of a submission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submission {
    /// Number of jobs handed over.
    pub submitted: usize,
    /// Number of jobs that were complete.
    pub complete: usize,
    /// Number of jobs handed over before that the launcher still has.
    pub queued: usize,
    /// Number of jobs that run in processes outside of the launcher.
    pub running: usize,
    /// Jobs that cannot be handed over, with the reason.
    pub blocked: Vec<(JobId, String)>,
    /// A description for the user.
    pub text: String,
}

/// The command for one job: `PROGRAM job FILE --stage S --cell C --out ROOT EXTRA...` in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCommand {
    /// The program.
    pub program: PathBuf,
    /// The experiment's file.
    pub file: PathBuf,
    /// Working folder: relative paths in the experiment and in `extra` start here.
    pub folder: PathBuf,
    /// Further arguments: overrides and options.
    pub extra: Vec<String>,
}

impl JobCommand {
    /// The command as one line for a shell, without the change of folder. `cell` is inserted
    /// without quoting.
    fn line(&self, root: &RunRoot, stage: &str, cell: &str) -> Result<String, JobsError> {
        let mut words = vec![
            word(&self.program)?,
            "job".to_owned(),
            word(&self.file)?,
            "--stage".to_owned(),
            quote(stage),
            "--cell".to_owned(),
            cell.to_owned(),
            "--out".to_owned(),
            word(root.path())?,
        ];
        for argument in &self.extra {
            words.push(quote(one_line(argument)?));
        }
        Ok(words.join(" "))
    }
}

/// An absolute path as a word for a shell.
fn word(path: &Path) -> Result<String, JobsError> {
    Ok(quote(&absolute(path)?))
}

/// An absolute path as text.
fn absolute(path: &Path) -> Result<String, JobsError> {
    let absolute = std::path::absolute(path).map_err(|e| JobsError::io("find", path, e))?;
    let text = absolute.to_str().ok_or_else(|| JobsError::BadWord {
        word: path.to_string_lossy().into_owned(),
        problem: "is not UTF-8",
    })?;
    one_line(text).map(str::to_owned)
}

fn one_line(text: &str) -> Result<&str, JobsError> {
    if text.contains(['\n', '\r', '\0']) {
        return Err(JobsError::BadWord {
            word: text.to_owned(),
            problem: "has a line break",
        });
    }
    Ok(text)
}
