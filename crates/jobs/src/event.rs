//! Events of jobs, from which views of a run are made.

use crate::JobId;

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Number of answered prompts.
    pub done: u64,
    /// Number of all prompts.
    pub of: u64,
    /// Mean acceptance rate so far, if something was drafted.
    pub acceptance: Option<f64>,
    /// Tokens per second so far.
    pub tokens_per_s: Option<f64>,
}

/// An event of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The job.
    pub id: JobId,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an [`Event`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The job is part of this run. It is the first event of every job.
    Planned {
        /// True if the job is timed.
        exclusive: bool,
        /// Number of prompts, if known.
        prompts: Option<u64>,
    },
    /// The job was completed before this run, or meanwhile by another process.
    Skipped,
    /// The job waits; the words say for what.
    Waiting(String),
    /// The job has started.
    Started,
    /// The job continues from a checkpoint of an earlier attempt, after that many answered prompts.
    Resumed(u64),
    /// The job has made progress.
    Progress(Progress),
    /// The job has been completed, that many seconds after its start.
    Finished(f64),
    /// The job has failed with this error.
    Failed(String),
    /// The job cannot run because of another one, for this reason.
    Blocked(String),
}

impl Event {
    pub(crate) fn new(id: &JobId, kind: EventKind) -> Self {
        Self {
            id: id.clone(),
            kind,
        }
    }
}
