//! An attempt at one job: lock it, check its state, wait for the machine, run it, check the result.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::local::Local;
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

/// Result of an attempt.
pub(super) enum Outcome {
    /// This attempt completed the job.
    Finished,
    /// The job was already complete.
    Skipped,
    /// Another process holds the job.
    HeldByOther(String),
    Failed(String),
    /// The job that it needs is not complete.
    Blocked(String),
    /// The job did not start, because the run is being stopped.
    NotStarted,
}

impl<E: Display> Local<'_, E> {
    pub(super) fn attempt(&self, job: &JobSpec) -> Outcome {
        let tried = self.try_job(job);
        tried.unwrap_or_else(|error| self.fail(job, with_hint(&error)))
    }

    fn try_job(&self, job: &JobSpec) -> Result<Outcome, JobsError> {
        let checks = &self.options.checks;
        let folder = self.root.folder(&job.id);
        folder.create()?;
        let Some(_cell) = CellLock::try_take(&folder)? else {
            let holder = CellLock::holder(&folder)?;
            return Ok(Outcome::HeldByOther(holder.unwrap_or_default()));
        };
        // Another process may have completed it since the last check.
        if state::inspect_own(self.root, job, checks)? == CellState::Complete {
            return Ok(Outcome::Skipped);
        }
        if let Some(need) = &job.needs
            && state::needed(self.root, need, checks)? != CellState::Complete
        {
            return Ok(Outcome::Blocked(format!(
                "it starts from {}, which is not complete any more",
                need.id
            )));
        }
        let Some(_machine) = self.machine(job)? else {
            return Ok(Outcome::NotStarted);
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
            None => {
                let seconds = started.elapsed().as_secs_f64();
                self.emit(&job.id, EventKind::Finished(seconds));
                Outcome::Finished
            }
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

    fn fail_on_disk(&self, job: &JobSpec, message: String) -> Outcome {
        let folder = self.root.folder(&job.id);
        let text = format!("{message}\n");
        if let Err(error) = results::write_atomically(&folder.error(), text.as_bytes()) {
            return self.fail(job, format!("{message}\n({error})"));
        }
        self.fail(job, message)
    }

    fn fail(&self, job: &JobSpec, message: String) -> Outcome {
        self.emit(&job.id, EventKind::Failed(message.clone()));
        Outcome::Failed(message)
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
