//! `omnidraft status`: the state of a run, read from its folder.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::read_if_there;
use crate::state::{self, CellState};
use crate::{JobFolder, JobId, JobsError, RunRoot};

/// State of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusReport {
    /// Name of the experiment.
    pub name: String,
    /// The run's folder.
    pub path: PathBuf,
    /// Stages, in order.
    pub stages: Vec<StageStatus>,
    /// Jobs that are running.
    pub running: Vec<RunningCell>,
    /// Jobs that failed.
    pub failed: Vec<FailedCell>,
    /// Folders of jobs that are not part of the experiment, written by an earlier version of it.
    pub strangers: Vec<JobId>,
}

/// Numbers of jobs of a stage, by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StageStatus {
    /// The stage.
    pub stage: String,
    /// Complete jobs.
    pub complete: usize,
    /// Running jobs.
    pub running: usize,
    /// Failed jobs.
    pub failed: usize,
    /// Jobs not begun, or begun by a process that is gone.
    pub waiting: usize,
}

/// A running job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningCell {
    /// The job.
    pub job: JobId,
    /// Number of prompts with an answer.
    pub prompts_done: u64,
    /// Number of all prompts, if known.
    pub prompts: Option<u64>,
    /// Description of the process.
    pub holder: String,
}

/// A job that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedCell {
    /// The job.
    pub job: JobId,
    /// First line of the error.
    pub message: String,
}

/// Reads the state of every job of the run in `root`.
///
/// # Errors
/// [`JobsError::NoRun`]; an `experiment.json` or manifest that cannot be read.
pub fn status(root: &Path) -> Result<StatusReport, JobsError> {
    let root = RunRoot::new(root);
    let Some(record) = root.read_record()? else {
        return Err(JobsError::NoRun {
            path: root.path().to_path_buf(),
        });
    };
    let planned: HashSet<&JobId> = record.jobs.iter().map(|job| &job.id).collect();
    let mut strangers = root.cells()?;
    strangers.retain(|id| !planned.contains(id));
    let mut report = StatusReport {
        name: record.name,
        path: root.path().to_path_buf(),
        stages: Vec::new(),
        running: Vec::new(),
        failed: Vec::new(),
        strangers,
    };
    for job in &record.jobs {
        let folder = root.folder(&job.id);
        let state = state::look(&folder)?;
        let stage = report.stage(job.id.stage());
        match state {
            CellState::Todo | CellState::Unfinished => stage.waiting += 1,
            CellState::Complete => stage.complete += 1,
            CellState::Running { holder } => {
                stage.running += 1;
                report.running.push(RunningCell {
                    job: job.id.clone(),
                    prompts_done: prompts_done(&folder)?,
                    prompts: job.prompts,
                    holder,
                });
            }
            CellState::Failed { message } => {
                stage.failed += 1;
                report.failed.push(FailedCell {
                    job: job.id.clone(),
                    message,
                });
            }
        }
    }
    Ok(report)
}

/// Number of prompts with an answer of at least one arm in the journal.
fn prompts_done(folder: &JobFolder) -> Result<u64, JobsError> {
    /// The columns that identify a prompt of a job.
    #[derive(Deserialize, PartialEq, Eq, Hash)]
    struct Position {
        segment: u64,
        split: String,
        prompt_index: u64,
    }
    let text = read_if_there(&folder.journal())?.unwrap_or_default();
    // A line that is being written does not parse.
    let positions: HashSet<Position> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    Ok(positions.len() as u64)
}

impl StatusReport {
    fn stage(&mut self, name: &str) -> &mut StageStatus {
        let found = self.stages.iter().position(|s| s.stage == name);
        let index = found.unwrap_or_else(|| {
            self.stages.push(StageStatus {
                stage: name.to_owned(),
                ..StageStatus::default()
            });
            self.stages.len() - 1
        });
        &mut self.stages[index]
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} in {}\n", self.name, self.path.display())?;
        let longest = self.stages.iter().map(|s| s.stage.len()).max();
        let width = longest.unwrap_or(0).max("stage".len());
        writeln!(f, "{:width$}  complete  running  failed  waiting", "stage")?;
        for s in &self.stages {
            writeln!(
                f,
                "{:width$}  {:8}  {:7}  {:6}  {:7}",
                s.stage, s.complete, s.running, s.failed, s.waiting
            )?;
        }
        for cell in &self.running {
            let of = cell.prompts.map_or(String::new(), |n| format!("/{n}"));
            let done = cell.prompts_done;
            let (job, holder) = (&cell.job, &cell.holder);
            write!(f, "\nrunning  {job}: {done}{of} prompts ({holder})")?;
        }
        for cell in &self.failed {
            write!(f, "\nfailed   {}: {}", cell.job, cell.message)?;
        }
        for job in &self.strangers {
            write!(f, "\nnot part of the experiment: {job}")?;
        }
        if !(self.running.is_empty() && self.failed.is_empty() && self.strangers.is_empty()) {
            writeln!(f)?;
        }
        Ok(())
    }
}
