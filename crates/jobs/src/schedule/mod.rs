//! Running jobs on this machine.
//!
//! [`JobQueue`] decides the order and runs nothing; [`run_local`] runs jobs and decides nothing.

mod attempt;
mod local;
mod queue;

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::{Checks, JobId};

pub use attempt::JobContext;
pub use local::run_local;

/// Exit codes of a program that runs jobs.
pub mod exit {
    /// Every job is complete.
    pub const COMPLETE: u8 = 0;
    /// A job failed.
    pub const FAILED: u8 = 1;
    /// No job failed, but one could not start, because what it needs is not complete.
    pub const BLOCKED: u8 = 3;
}

/// Options of [`run_local`].
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Number of jobs at a time. Timed jobs always run one at a time.
    pub workers: NonZeroUsize,
    /// True if jobs that do not depend on a failed one still start.
    pub keep_going: bool,
    /// Rules for using earlier results.
    pub checks: Checks,
    /// Pause between two checks of a job that another process runs.
    pub poll: Duration,
}

impl LocalOptions {
    /// One job at a time, continuing after failures.
    pub fn new(checks: Checks) -> Self {
        Self {
            workers: NonZeroUsize::MIN,
            keep_going: true,
            checks,
            poll: Duration::from_secs(1),
        }
    }
}

/// Results of the jobs of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs completed by this process, in the order in which they ended.
    pub finished: Vec<JobId>,
    /// Jobs completed by others or before.
    pub skipped: Vec<JobId>,
    /// Jobs that failed, with the error.
    pub failed: Vec<(JobId, String)>,
    /// Jobs that could not start because of another one, with the reason.
    pub blocked: Vec<(JobId, String)>,
    /// Jobs that were not started after an earlier failure, without `keep_going`.
    pub left: Vec<JobId>,
}

impl Summary {
    /// The exit code, one of [`exit`].
    pub fn exit_code(&self) -> u8 {
        if !self.failed.is_empty() {
            exit::FAILED
        } else if !self.blocked.is_empty() || !self.left.is_empty() {
            exit::BLOCKED
        } else {
            exit::COMPLETE
        }
    }
}
