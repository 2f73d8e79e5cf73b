//! Workers, one thread each, that take jobs from a shared queue.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::attempt::JobContext;
use super::queue::{EntryState, JobQueue, Next};
use super::{LocalOptions, Summary};
use crate::state::{self, CellState};
use crate::{Event, EventKind, JobId, JobSpec, JobsError, Need, RunRoot};

/// Runs jobs in this process until each is complete, failed or blocked.
///
/// A job starts when the job that it needs is complete on disk, whichever process ran that. A
/// complete job is skipped. A job that another process runs is left to it, and run here if that
/// process dies. With one worker the order is that of `jobs`. The folder must be
/// [claimed](RunRoot::claim) before.
///
/// `runner` does a job. It writes into the job's folder and sets the manifest to `complete` as its
/// last write. Its error or panic is the job's failure; the text goes to `error.txt`. `events` is
/// called from several threads.
///
/// # Errors
/// Refusals of [`state::inspect`], before any job has started. Later errors are failures of jobs.
pub fn run_local<E: Display>(
    root: &RunRoot,
    jobs: &[JobSpec],
    options: &LocalOptions,
    runner: &(dyn Fn(&JobSpec, &JobContext<'_>) -> Result<(), E> + Sync),
    events: &(dyn Fn(&Event) + Sync),
) -> Result<Summary, JobsError> {
    let (queue, outside) = JobQueue::new(jobs);
    let local = Local {
        shared: Mutex::new(Shared {
            queue,
            summary: Summary::default(),
            waited: HashSet::new(),
        }),
        changed: Condvar::new(),
        root,
        jobs,
        outside,
        options,
        runner,
        events,
    };
    local.inspect_all()?;
    std::thread::scope(|scope| {
        for _ in 0..options.workers.get().min(jobs.len()) {
            scope.spawn(|| local.work());
        }
    });
    Ok(local.summary())
}

struct Shared {
    queue: JobQueue,
    summary: Summary,
    /// Jobs held by other processes for which a `Waiting` event was sent.
    waited: HashSet<JobId>,
}

/// A run of jobs in this process.
pub(super) struct Local<'a, E> {
    shared: Mutex<Shared>,
    changed: Condvar,
    pub(super) root: &'a RunRoot,
    jobs: &'a [JobSpec],
    outside: Vec<Need>,
    pub(super) options: &'a LocalOptions,
    pub(super) runner: &'a (dyn Fn(&JobSpec, &JobContext<'_>) -> Result<(), E> + Sync),
    pub(super) events: &'a (dyn Fn(&Event) + Sync),
}

impl<E: Display> Local<'_, E> {
    /// Sets every entry to its state on disk; sends events in the order of the jobs.
    fn inspect_all(&self) -> Result<(), JobsError> {
        let inspect = |job| state::inspect(self.root, job, &self.options.checks);
        let states = self
            .jobs
            .iter()
            .map(inspect)
            .collect::<Result<Vec<_>, _>>()?;
        for job in self.jobs {
            let planned = EventKind::Planned {
                exclusive: job.exclusive,
                prompts: job.prompts,
            };
            self.emit(&job.id, planned);
        }
        for (entry, (job, state)) in self.jobs.iter().zip(states).enumerate() {
            match state {
                CellState::Complete => self.set_state(entry, self.skipped(job)),
                CellState::Running { holder } => self.set_state(entry, self.held(job, &holder)),
                _ => {}
            }
        }
        for entry in self.jobs.len()..self.jobs.len() + self.outside.len() {
            self.inspect_needed(entry)?;
        }
        Ok(())
    }

    /// The loop of one worker.
    fn work(&self) {
        while let Some(entry) = self.take() {
            if let Some(job) = self.jobs.get(entry) {
                self.set_state(entry, self.attempt(job));
            } else if self.inspect_needed(entry).is_err() {
                self.set_state(entry, EntryState::Missing);
            }
        }
    }

    /// Waits for the next entry to try; `None` at the end of the run.
    fn take(&self) -> Option<usize> {
        let mut shared = self.lock();
        loop {
            for (entry, reason) in shared.queue.block() {
                if let Some(job) = self.jobs.get(entry) {
                    self.block(&mut shared.summary, &job.id, reason);
                }
            }
            shared = match shared.queue.next(Instant::now()) {
                Next::Try(entry) => return Some(entry),
                Next::Over => {
                    // Wakes the other workers so that they end too.
                    self.changed.notify_all();
                    return None;
                }
                Next::Wait(None) => {
                    let waited = self.changed.wait(shared);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Next::Wait(Some(pause)) => {
                    let waited = self.changed.wait_timeout(shared, pause);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Records that this process completed a job. Returns the job's new state.
    pub(super) fn finished(&self, job: &JobSpec, seconds: f64) -> EntryState {
        self.emit(&job.id, EventKind::Finished(seconds));
        self.lock().summary.finished.push(job.id.clone());
        EntryState::Complete
    }

    /// Records that a job was complete already.
    pub(super) fn skipped(&self, job: &JobSpec) -> EntryState {
        self.emit(&job.id, EventKind::Skipped);
        self.lock().summary.skipped.push(job.id.clone());
        EntryState::Complete
    }

    /// Records that another process holds a job.
    pub(super) fn held(&self, job: &JobSpec, holder: &str) -> EntryState {
        let first = self.lock().waited.insert(job.id.clone());
        if first {
            let what = format!("{holder}, which works on it");
            self.emit(&job.id, EventKind::Waiting(what));
        }
        EntryState::HeldByOther(Instant::now() + self.options.poll)
    }

    /// Records that a job failed.
    pub(super) fn failed(&self, job: &JobSpec, message: String) -> EntryState {
        self.emit(&job.id, EventKind::Failed(message.clone()));
        let mut shared = self.lock();
        shared.summary.failed.push((job.id.clone(), message));
        if !self.options.keep_going {
            shared.queue.stopped = true;
        }
        EntryState::Failed
    }

    /// Records that a job cannot run because the one that it needs is not complete.
    pub(super) fn blocked(&self, job: &JobSpec, reason: String) -> EntryState {
        self.block(&mut self.lock().summary, &job.id, reason);
        EntryState::Blocked
    }

    /// Checks a needed job that is not part of this run.
    fn inspect_needed(&self, entry: usize) -> Result<(), JobsError> {
        let need = entry.checked_sub(self.jobs.len());
        if let Some(need) = need.and_then(|i| self.outside.get(i)) {
            let state = state::needed(self.root, need, &self.options.checks)?;
            let state = match state {
                CellState::Complete => EntryState::Complete,
                CellState::Running { .. } => {
                    EntryState::HeldByOther(Instant::now() + self.options.poll)
                }
                _ => EntryState::Missing,
            };
            self.set_state(entry, state);
        }
        Ok(())
    }

    fn set_state(&self, entry: usize, state: EntryState) {
        self.lock().queue.set(entry, state);
        self.changed.notify_all();
    }

    fn block(&self, summary: &mut Summary, id: &JobId, reason: String) {
        self.emit(id, EventKind::Blocked(reason.clone()));
        summary.blocked.push((id.clone(), reason));
    }

    pub(super) fn emit(&self, id: &JobId, kind: EventKind) {
        (self.events)(&Event::new(id, kind));
    }

    /// True once no job is to start any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().queue.stopped
    }

    /// A poisoned lock is used: a worker that panicked outside a job leaves the queue consistent.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summary(self) -> Summary {
        let shared = self.shared.into_inner();
        let Shared {
            queue, mut summary, ..
        } = shared.unwrap_or_else(PoisonError::into_inner);
        let left = queue.left().into_iter();
        let left = left.filter_map(|entry| Some(self.jobs.get(entry)?.id.clone()));
        summary.left.extend(left);
        summary
    }
}
