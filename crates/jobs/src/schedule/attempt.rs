//! An attempt at one job: lock it, check its state, wait for the machine, run it, check the result.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::local::Local;
use super::queue::EntryState;
use crate::lock::{FileLock, take_machine};
use crate::state::{self, CellState};
use crate::{CellLock, Event, EventKind, JobFolder, JobSpec, JobsError, Progress};

/// The interface of a running job to the scheduler.
pub struct JobContext<'a> {
    spec: &'a JobSpec,
    folder: JobFolder,
    needed: Option<JobFolder>,
    events: &'a (dyn Fn(&Event) + Sync),
}

impl JobContext<'_> {
    /// The job's folder: it exists, is locked, and holds nothing but the lock and a checkpoint if
    /// there is one.
    pub fn folder(&self) -> &JobFolder {
        &self.folder
    }

    /// Folder of the job that this one needs, which is complete.
    pub fn needed(&self) -> Option<&JobFolder> {
        self.needed.as_ref()
    }

    /// Reports progress.
    pub fn progress(&self, progress: Progress) {
        (self.events)(&Event::new(&self.spec.id, EventKind::Progress(progress)));
    }
}

impl<E: Display> Local<'_, E> {
    /// Tries a job, and returns its state afterwards.
    pub(super) fn attempt(&self, job: &JobSpec) -> EntryState {
        let tried = self.try_job(job);
        tried.unwrap_or_else(|error| self.failed(job, with_hint(&error)))
    }

    fn try_job(&self, job: &JobSpec) -> Result<EntryState, JobsError> {
        let checks = &self.options.checks;
        let folder = self.root.folder(&job.id);
        folder.create()?;
        let Some(_cell) = CellLock::try_take(&folder)? else {
            let holder = CellLock::holder(&folder)?;
            return Ok(self.held(job, &holder.unwrap_or_default()));
        };
        // Another process may have completed it since the last check.
        if state::inspect_own(self.root, job, checks)? == CellState::Complete {
            return Ok(self.skipped(job));
        }
        if let Some(need) = &job.needs
            && state::needed(self.root, need, checks)? != CellState::Complete
        {
            let reason = format!("it starts from {}, which is not complete any more", need.id);
            return Ok(self.blocked(job, reason));
        }
        let Some(_machine) = self.machine(job)? else {
            // The run is being stopped.
            return Ok(EntryState::Pending);
        };
        folder.clear()?;
        self.emit(&job.id, EventKind::Started);
        if let Some(done) = folder.resumes_after() {
            self.emit(&job.id, EventKind::Resumed(done));
        }
        let started = Instant::now();
        let context = JobContext {
            spec: job,
            needed: job.needs.as_ref().map(|need| self.root.folder(&need.id)),
            folder,
            events: self.events,
        };
        let result = catch_unwind(AssertUnwindSafe(|| (self.runner)(job, &context)));
        let failure = match result {
            Ok(Ok(())) => self.unfinished(job),
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(panic) => Some(format!("the program panicked: {}", message(&*panic))),
        };
        Ok(match failure {
            None => self.finished(job, started.elapsed().as_secs_f64()),
            // The error is written while the lock is held.
            Some(message) => self.fail_on_disk(job, message),
        })
    }

    /// Permission to use the machine; `None` if the run is being stopped.
    fn machine(&self, job: &JobSpec) -> Result<Option<FileLock>, JobsError> {
        let what = match job.exclusive {
            true => "jobs of other processes to end",
            false => "a timed job of another process to end",
        };
        let mut said = false;
        take_machine(self.root, job.exclusive, || {
            if !said {
                said = true;
                self.emit(&job.id, EventKind::Waiting(what.to_owned()));
            }
            !self.is_stopped()
        })
    }

    /// The problem of a job that ended without an error, if there is one.
    fn unfinished(&self, job: &JobSpec) -> Option<String> {
        match state::inspect(self.root, job, &self.options.checks) {
            Ok(CellState::Complete) => None,
            Ok(_) => Some("it ended, but its manifest does not say complete".to_owned()),
            Err(error) => Some(with_hint(&error)),
        }
    }

    fn fail_on_disk(&self, job: &JobSpec, message: String) -> EntryState {
        let folder = self.root.folder(&job.id);
        let text = format!("{message}\n");
        if let Err(error) = results::write_atomically(&folder.error(), text.as_bytes()) {
            return self.failed(job, format!("{message}\n({error})"));
        }
        self.failed(job, message)
    }
}

fn with_hint(error: &JobsError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
