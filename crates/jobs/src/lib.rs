#![doc = include_str!("../README.md")]

mod error;
mod event;
mod files;
mod folder;
mod launch;
mod lock;
mod progress;
mod record;
mod schedule;
mod spec;
mod state;
mod status;

pub use error::JobsError;
pub use event::{Event, EventKind, Progress};
pub use folder::{JobFolder, RunRoot};
pub use launch::{Batch, JobCommand, Slurm, SlurmOptions, Submission, print_jobs, quote};
pub use lock::CellLock;
pub use progress::ProgressView;
pub use record::RootRecord;
pub use schedule::{JobContext, LocalOptions, Summary, exit, run_local};
pub use spec::{Checks, JobId, JobSpec, Need};
pub use state::{CellState, inspect, needed};
pub use status::{FailedCell, RunningCell, StageStatus, StatusReport, status};
