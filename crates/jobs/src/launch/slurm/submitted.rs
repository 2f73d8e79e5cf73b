//! `slurm/submitted.json`: the Slurm task of every job.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::{read_if_there, write_json};
use crate::{JobId, JobsError, RunRoot};

/// A task of an array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct TaskRef {
    /// Slurm's number of the array.
    pub(super) job: String,
    /// Number of the task in the array.
    pub(super) task: u32,
}

/// The latest task of every job that was ever submitted.
pub(super) type Submitted = BTreeMap<JobId, TaskRef>;

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    id: JobId,
    #[serde(flatten)]
    task: TaskRef,
}

fn path(root: &RunRoot) -> PathBuf {
    root.slurm().join("submitted.json")
}

pub(super) fn read(root: &RunRoot) -> Result<Submitted, JobsError> {
    let path = path(root);
    let Some(text) = read_if_there(&path)? else {
        return Ok(Submitted::new());
    };
    let lines: Vec<Line> = serde_json::from_str(&text).map_err(|e| JobsError::json(&path, &e))?;
    let tasks = lines.into_iter().map(|line| (line.id, line.task));
    Ok(tasks.collect())
}

pub(super) fn write(root: &RunRoot, submitted: &Submitted) -> Result<(), JobsError> {
    let line = |(id, task): (&JobId, &TaskRef)| Line {
        id: id.clone(),
        task: task.clone(),
    };
    let lines: Vec<Line> = submitted.iter().map(line).collect();
    write_json(&path(root), &lines)
}
