//! Workers, one thread each, that take jobs from a shared queue.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::attempt::{JobContext, Outcome};
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
    /// Entries for which a `Waiting` event was sent.
    waited: HashSet<usize>,
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
                CellState::Complete => self.record(entry, job, Outcome::Skipped),
                CellState::Running { holder } => {
                    self.record(entry, job, Outcome::HeldByOther(holder));
                }
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
                self.record(entry, job, self.attempt(job));
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

    /// Records the result of an attempt.
    fn record(&self, entry: usize, job: &JobSpec, outcome: Outcome) {
        let id = job.id.clone();
        let mut shared = self.lock();
        let Shared {
            queue,
            summary,
            waited,
        } = &mut *shared;
        let state = match outcome {
            Outcome::Finished => {
                summary.finished.push(id);
                EntryState::Complete
            }
            Outcome::Skipped => {
                self.emit(&id, EventKind::Skipped);
                summary.skipped.push(id);
                EntryState::Complete
            }
            Outcome::HeldByOther(holder) => {
                if waited.insert(entry) {
                    let what = format!("{holder}, which works on it");
                    self.emit(&id, EventKind::Waiting(what));
                }
                EntryState::HeldByOther(Instant::now() + self.options.poll)
            }
            Outcome::Failed(message) => {
                summary.failed.push((id, message));
                if !self.options.keep_going {
                    queue.stop();
                }
                EntryState::Failed
            }
            Outcome::Blocked(reason) => {
                self.block(summary, &id, reason);
                EntryState::Blocked
            }
            Outcome::NotStarted => EntryState::Pending,
        };
        queue.set(entry, state);
        drop(shared);
        self.changed.notify_all();
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
        self.lock().queue.is_stopped()
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
