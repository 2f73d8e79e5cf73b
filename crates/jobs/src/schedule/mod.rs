//! Running jobs on this machine.
//!
//! [`Board`] decides what comes next and runs nothing; [`run_local`] runs and decides nothing.

mod attempt;
mod board;
mod local;

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
    /// Nothing was started: bad input, or a folder that is refused.
    pub const REFUSED: u8 = 2;
    /// No job failed, but one could not start, because what it needs is not complete.
    pub const BLOCKED: u8 = 3;
}

/// How [`run_local`] runs.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Jobs at a time. Timed ones run one at a time whatever it says.
    pub workers: NonZeroUsize,
    /// Whether jobs that do not depend on a failed one still start.
    pub keep_going: bool,
    /// Which earlier results it may go on with.
    pub checks: Checks,
    /// Pause between two looks at a job that another process works on.
    pub poll: Duration,
}

impl LocalOptions {
    /// One job at a time, going on after failures.
    pub fn new(checks: Checks) -> Self {
        Self {
            workers: NonZeroUsize::MIN,
            keep_going: true,
            checks,
            poll: Duration::from_secs(1),
        }
    }
}

/// What became of the jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Complete, made by this process, in the order in which they ended.
    pub finished: Vec<JobId>,
    /// Complete without this process.
    pub skipped: Vec<JobId>,
    /// Failed, with the error.
    pub failed: Vec<(JobId, String)>,
    /// Not started because of another job, with the reason.
    pub blocked: Vec<(JobId, String)>,
    /// Not started because an earlier one failed and the rest was not wanted.
    pub left: Vec<JobId>,
}

impl Summary {
    /// One of [`exit`]'s codes.
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
