//! Workers, one thread each, that take jobs from a shared board.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::attempt::{Attempts, JobContext, Outcome};
use super::board::{Board, Next, Place};
use super::{LocalOptions, Summary};
use crate::state::{self, CellState};
use crate::{Event, JobId, JobSpec, JobsError, Need, RunRoot};

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
    let (board, outside) = Board::new(jobs);
    let local = Local {
        shared: Mutex::new(Shared {
            board,
            summary: Summary::default(),
            waited: HashSet::new(),
        }),
        changed: Condvar::new(),
        jobs,
        outside,
        options,
        attempts: Attempts {
            root,
            checks: &options.checks,
            runner,
            events,
        },
    };
    local.look_at_all()?;
    std::thread::scope(|scope| {
        for _ in 0..options.workers.get().min(jobs.len()) {
            scope.spawn(|| local.work());
        }
    });
    Ok(local.summary())
}

struct Shared {
    board: Board,
    summary: Summary,
    /// Entries for which a `Waiting` event was sent.
    waited: HashSet<usize>,
}

struct Local<'a, E> {
    shared: Mutex<Shared>,
    changed: Condvar,
    jobs: &'a [JobSpec],
    outside: Vec<Need>,
    options: &'a LocalOptions,
    attempts: Attempts<'a, E>,
}

impl<E: Display> Local<'_, E> {
    /// Sets every entry to its state on disk; sends events in the order of the jobs.
    fn look_at_all(&self) -> Result<(), JobsError> {
        let root = self.attempts.root;
        let checks = &self.options.checks;
        let inspect = |job| state::inspect(root, job, checks);
        let states = self
            .jobs
            .iter()
            .map(inspect)
            .collect::<Result<Vec<_>, _>>()?;
        for job in self.jobs {
            (self.attempts.events)(&Event::Planned { job: job.clone() });
        }
        for (entry, (job, state)) in self.jobs.iter().zip(states).enumerate() {
            match state {
                CellState::Complete => self.settle(entry, job, Outcome::Skipped),
                CellState::Running { holder } => {
                    self.settle(entry, job, Outcome::Elsewhere(holder));
                }
                _ => {}
            }
        }
        for entry in self.jobs.len()..self.jobs.len() + self.outside.len() {
            self.look_outside(entry)?;
        }
        Ok(())
    }

    /// The loop of one worker.
    fn work(&self) {
        while let Some(entry) = self.take() {
            if let Some(job) = self.jobs.get(entry) {
                let stopped = || self.lock().board.is_stopped();
                let outcome = self.attempts.run(job, &stopped);
                self.settle(entry, job, outcome);
            } else if self.look_outside(entry).is_err() {
                self.put(entry, Place::Missing);
            }
        }
    }

    /// Waits for the next entry to try; `None` at the end of the run.
    fn take(&self) -> Option<usize> {
        let mut shared = self.lock();
        loop {
            for (entry, reason) in shared.board.block() {
                if let Some(job) = self.jobs.get(entry) {
                    self.block(&mut shared.summary, &job.id, reason);
                }
            }
            shared = match shared.board.next(Instant::now()) {
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
    fn settle(&self, entry: usize, job: &JobSpec, outcome: Outcome) {
        let events = self.attempts.events;
        let id = job.id.clone();
        let mut shared = self.lock();
        let Shared {
            board,
            summary,
            waited,
        } = &mut *shared;
        let place = match outcome {
            Outcome::Finished => {
                summary.finished.push(id);
                Place::Complete
            }
            Outcome::Skipped => {
                events(&Event::Skipped { id: id.clone() });
                summary.skipped.push(id);
                Place::Complete
            }
            Outcome::Elsewhere(holder) => {
                if waited.insert(entry) {
                    let what = format!("{holder}, which works on it");
                    events(&Event::Waiting { id, what });
                }
                Place::Elsewhere(Instant::now() + self.options.poll)
            }
            Outcome::Failed(message) => {
                summary.failed.push((id, message));
                if !self.options.keep_going {
                    board.stop();
                }
                Place::Failed
            }
            Outcome::Blocked(reason) => {
                self.block(summary, &id, reason);
                Place::Blocked
            }
            Outcome::GivenUp => Place::Pending,
        };
        board.set(entry, place);
        drop(shared);
        self.changed.notify_all();
    }

    /// Checks a needed job that is not part of this run.
    fn look_outside(&self, entry: usize) -> Result<(), JobsError> {
        let need = entry.checked_sub(self.jobs.len());
        if let Some(need) = need.and_then(|i| self.outside.get(i)) {
            let state = state::needed(self.attempts.root, need, &self.options.checks)?;
            let place = match state {
                CellState::Complete => Place::Complete,
                CellState::Running { .. } => Place::Elsewhere(Instant::now() + self.options.poll),
                _ => Place::Missing,
            };
            self.put(entry, place);
        }
        Ok(())
    }

    fn put(&self, entry: usize, place: Place) {
        self.lock().board.set(entry, place);
        self.changed.notify_all();
    }

    fn block(&self, summary: &mut Summary, id: &JobId, reason: String) {
        (self.attempts.events)(&Event::Blocked {
            id: id.clone(),
            reason: reason.clone(),
        });
        summary.blocked.push((id.clone(), reason));
    }

    /// A poisoned lock is used: a worker that panicked outside a job leaves the board consistent.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summary(self) -> Summary {
        let shared = self.shared.into_inner();
        let Shared {
            board, mut summary, ..
        } = shared.unwrap_or_else(PoisonError::into_inner);
        let left = board.left().into_iter();
        let left = left.filter_map(|entry| Some(self.jobs.get(entry)?.id.clone()));
        summary.left.extend(left);
        summary
    }
}
