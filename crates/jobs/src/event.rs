//! What happens to jobs: all that a view of a run, or a record of it, is made from.

use serde::{Deserialize, Serialize};

use crate::{JobId, JobSpec};

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Prompts answered.
    pub done: u64,
    /// Prompts in all.
    pub of: u64,
    /// Mean acceptance so far, where something was drafted.
    pub acceptance: Option<f64>,
    /// Tokens a second so far.
    pub tokens_per_s: Option<f64>,
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The job is part of this run. Every job begins with this.
    Planned {
        /// The job.
        job: JobSpec,
    },
    /// The job is complete without this process: before it, or meanwhile by another.
    Skipped {
        /// The job.
        id: JobId,
    },
    /// The job is held up.
    Waiting {
        /// The job.
        id: JobId,
        /// What for, in words.
        what: String,
    },
    /// The job runs.
    Started {
        /// The job.
        id: JobId,
    },
    /// The job goes on from a checkpoint of an earlier attempt.
    Resumed {
        /// The job.
        id: JobId,
        /// Prompts answered until there.
        done: u64,
    },
    /// The job got on.
    Progress {
        /// The job.
        id: JobId,
        /// How far.
        progress: Progress,
    },
    /// The job is complete.
    Finished {
        /// The job.
        id: JobId,
        /// Time since it started.
        seconds: f64,
    },
    /// The job ended by an error.
    Failed {
        /// The job.
        id: JobId,
        /// The error.
        message: String,
    },
    /// The job cannot run, because of another.
    Blocked {
        /// The job.
        id: JobId,
        /// Why, in words.
        reason: String,
    },
}

impl Event {
    /// The job it is about.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_json_lines() {
        let id = JobId::new("stream", "seed=1").unwrap();
        let event = Event::Finished {
            id: id.clone(),
            seconds: 1.5,
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(
            text,
            r#"{"event":"finished","id":{"stage":"stream","cell":"seed=1"},"seconds":1.5}"#
        );
        let read: Event = serde_json::from_str(&text).unwrap();
        assert_eq!(read, event);
        assert_eq!(read.id(), &id);
    }
}
