//! Events of jobs, from which views of a run are made.

use crate::{JobId, JobSpec};

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
#[non_exhaustive]
pub enum Event {
    /// The job is part of this run. It is the first event of every job.
    Planned {
        /// The job.
        job: JobSpec,
    },
    /// The job was completed before this run, or meanwhile by another process.
    Skipped {
        /// The job.
        id: JobId,
    },
    /// The job waits.
    Waiting {
        /// The job.
        id: JobId,
        /// The cause, in words.
        what: String,
    },
    /// The job has started.
    Started {
        /// The job.
        id: JobId,
    },
    /// The job continues from a checkpoint of an earlier attempt.
    Resumed {
        /// The job.
        id: JobId,
        /// Number of prompts answered before the checkpoint.
        done: u64,
    },
    /// The job has made progress.
    Progress {
        /// The job.
        id: JobId,
        /// Progress so far.
        progress: Progress,
    },
    /// The job has been completed.
    Finished {
        /// The job.
        id: JobId,
        /// Time since it started.
        seconds: f64,
    },
    /// The job has failed.
    Failed {
        /// The job.
        id: JobId,
        /// The error.
        message: String,
    },
    /// The job cannot run because of another one.
    Blocked {
        /// The job.
        id: JobId,
        /// The reason, in words.
        reason: String,
    },
}

impl Event {
    /// The job that the event belongs to.
    pub fn id(&self) -> &JobId {
        match self {
            Self::Planned { job } => &job.id,
            Self::Skipped { id }
            | Self::Waiting { id, .. }
            | Self::Started { id }
            | Self::Resumed { id, .. }
            | Self::Progress { id, .. }
            | Self::Finished { id, .. }
            | Self::Failed { id, .. }
            | Self::Blocked { id, .. } => id,
        }
    }
}
