//! The order of jobs. A plain state machine: no clock, no threads, no files.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::{JobId, JobSpec, Need};

/// State of a job on the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryState {
    /// Not begun.
    Pending,
    /// A worker of this process runs it.
    Busy,
    /// Another process runs it; to be checked again at that time.
    HeldByOther(Instant),
    Complete,
    Failed,
    /// Not complete, and not made by a job of this run.
    Missing,
    /// Cannot run because of another job.
    Blocked,
}

/// One job of the run, or a job outside the run that one of them needs.
#[derive(Debug)]
struct Entry {
    id: JobId,
    /// Index of the entry that it needs.
    needs: Option<usize>,
    exclusive: bool,
    state: EntryState,
}

/// Instruction for a free worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try this entry.
    Try(usize),
    /// Wait until something changes, or until that much time has passed.
    Wait(Option<Duration>),
    /// Nothing is left to do.
    Over,
}

/// The jobs of a run in order, followed by the needed jobs outside the run.
#[derive(Debug)]
pub(super) struct JobQueue {
    entries: Vec<Entry>,
    /// True if no job is to start any more.
    pub(super) stopped: bool,
}

impl JobQueue {
    /// A queue with all entries pending, and the needed jobs outside the run in the order of their
    /// entries.
    pub(super) fn new(jobs: &[JobSpec]) -> (Self, Vec<Need>) {
        let mut index: HashMap<&JobId, usize> =
            jobs.iter().enumerate().map(|(i, j)| (&j.id, i)).collect();
        let mut outside: Vec<&Need> = Vec::new();
        for need in jobs.iter().filter_map(|job| job.needs.as_ref()) {
            let next = jobs.len() + outside.len();
            if *index.entry(&need.id).or_insert(next) == next {
                outside.push(need);
            }
        }
        let entry = |id: &JobId, needs: Option<&Need>, exclusive| Entry {
            id: id.clone(),
            needs: needs.and_then(|need| index.get(&need.id).copied()),
            exclusive,
            state: EntryState::Pending,
        };
        let ours = jobs
            .iter()
            .map(|job| entry(&job.id, job.needs.as_ref(), job.exclusive));
        let others = outside.iter().map(|need| entry(&need.id, None, false));
        let queue = Self {
            entries: ours.chain(others).collect(),
            stopped: false,
        };
        (queue, outside.into_iter().cloned().collect())
    }

    pub(super) fn set(&mut self, entry: usize, state: EntryState) {
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.state = state;
        }
    }

    /// Entries that were neither completed nor failed nor blocked, in order.
    pub(super) fn left(&self) -> Vec<usize> {
        let open = |e: &Entry| matches!(e.state, EntryState::Pending | EntryState::HeldByOther(_));
        let open = |&i: &usize| self.entries.get(i).is_some_and(open);
        (0..self.entries.len()).filter(open).collect()
    }

    /// Blocks all entries that need a failed, blocked or missing one; returns them with the reason.
    pub(super) fn block(&mut self) -> Vec<(usize, String)> {
        let mut blocked = Vec::new();
        // Entries blocked in one pass may block further ones in the next.
        loop {
            let round: Vec<(usize, String)> = (0..self.entries.len())
                .filter_map(|i| Some((i, self.obstacle(i)?)))
                .collect();
            if round.is_empty() {
                return blocked;
            }
            for (entry, _) in &round {
                self.set(*entry, EntryState::Blocked);
            }
            blocked.extend(round);
        }
    }

    fn obstacle(&self, entry: usize) -> Option<String> {
        let entry = self.entries.get(entry)?;
        if entry.state != EntryState::Pending {
            return None;
        }
        let need = self.entries.get(entry.needs?)?;
        match need.state {
            EntryState::Failed => Some(format!("it starts from {}, which failed", need.id)),
            EntryState::Blocked => Some(format!("it starts from {}, which cannot run", need.id)),
            EntryState::Missing => Some(format!(
                "it starts from {}, which is not complete: run the stage `{}` first",
                need.id,
                need.id.stage()
            )),
            _ => None,
        }
    }

    /// The instruction for a free worker; an entry to be tried becomes busy. Call
    /// [`block`](Self::block) before.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let busy = self.count(|e| e.state == EntryState::Busy);
        if self.stopped {
            return if busy == 0 {
                Next::Over
            } else {
                Next::Wait(None)
            };
        }
        if self.count(|e| e.state == EntryState::Busy && e.exclusive) > 0 {
            return Next::Wait(None);
        }
        let may_start = |e: &Entry| (!e.exclusive || busy == 0) && self.is_ready(e);
        let due = |e: &Entry| matches!(e.state, EntryState::HeldByOther(at) if at <= now);
        let position = |test: &dyn Fn(&Entry) -> bool| self.entries.iter().position(test);
        let found = position(&|e| e.state == EntryState::Pending && may_start(e))
            .or_else(|| position(&|e| due(e) && may_start(e)));
        if let Some(found) = found {
            self.set(found, EntryState::Busy);
            return Next::Try(found);
        }
        if busy > 0 {
            return Next::Wait(self.next_check(now, |e| !e.exclusive));
        }
        match self.next_check(now, |_| true) {
            Some(pause) => Next::Wait(Some(pause)),
            None => Next::Over,
        }
    }

    fn is_ready(&self, entry: &Entry) -> bool {
        entry.needs.is_none_or(|need| {
            self.entries
                .get(need)
                .is_some_and(|e| e.state == EntryState::Complete)
        })
    }

    fn count(&self, test: impl Fn(&Entry) -> bool) -> usize {
        self.entries.iter().filter(|e| test(e)).count()
    }

    /// Time until the next check of an entry that another process runs.
    fn next_check(&self, now: Instant, test: impl Fn(&Entry) -> bool) -> Option<Duration> {
        let times = self.entries.iter().filter_map(|e| match e.state {
            EntryState::HeldByOther(at) if test(e) && self.is_ready(e) => {
                Some(at.saturating_duration_since(now))
            }
            _ => None,
        });
        times.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests;

    fn job(name: &str, needs: Option<&str>, exclusive: bool) -> JobSpec {
        let needs = needs.map(|name| format!("s/{name}"));
        JobSpec {
            exclusive,
            ..tests::job(&format!("s/{name}"), needs.as_deref())
        }
    }

    /// Lets workers take jobs until none can start.
    fn take(queue: &mut JobQueue) -> Vec<usize> {
        let mut taken = Vec::new();
        while let Next::Try(entry) = queue.next(Instant::now()) {
            taken.push(entry);
        }
        taken
    }

    #[test]
    fn in_order_and_alone() {
        let jobs = [
            job("a", None, false),
            job("b", Some("a"), true),
            job("c", None, false),
            job("d", Some("c"), true),
        ];
        let (mut queue, outside) = JobQueue::new(&jobs);
        assert!(outside.is_empty());
        assert_eq!(take(&mut queue), [0, 2]);
        queue.set(0, EntryState::Complete);
        assert!(take(&mut queue).is_empty(), "b is timed and c runs");
        queue.set(2, EntryState::Complete);
        assert_eq!(take(&mut queue), [1], "b alone");
        queue.set(1, EntryState::Complete);
        assert_eq!(take(&mut queue), [3]);
        queue.set(3, EntryState::Complete);
        assert_eq!(queue.next(Instant::now()), Next::Over);
    }

    #[test]
    fn failures_block_all_that_follows_from_them() {
        let jobs = [
            job("c", Some("b"), false),
            job("b", Some("a"), false),
            job("a", None, false),
            job("z", None, false),
        ];
        let (mut queue, _) = JobQueue::new(&jobs);
        assert_eq!(take(&mut queue), [2, 3]);
        queue.set(2, EntryState::Failed);
        let blocked = queue.block();
        let reasons: Vec<_> = blocked.iter().map(|(i, why)| (*i, why.as_str())).collect();
        assert_eq!(
            reasons,
            [
                (1, "it starts from s/a, which failed"),
                (0, "it starts from s/b, which cannot run")
            ]
        );
        assert_eq!(queue.next(Instant::now()), Next::Wait(None));
        queue.set(3, EntryState::Complete);
        assert_eq!(queue.next(Instant::now()), Next::Over);
    }

    #[test]
    fn what_another_process_has_comes_last() {
        let jobs = [
            job("a", None, false),
            job("b", Some("a"), false),
            job("c", None, false),
        ];
        let (mut queue, _) = JobQueue::new(&jobs);
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        queue.set(0, EntryState::HeldByOther(later));
        assert_eq!(queue.next(now), Next::Try(2));
        queue.set(2, EntryState::Complete);
        assert_eq!(queue.next(now), Next::Wait(Some(Duration::from_secs(5))));
        assert_eq!(queue.next(later), Next::Try(0));
        queue.set(0, EntryState::Complete);
        assert_eq!(queue.next(later), Next::Try(1));
    }

    #[test]
    fn a_timed_job_elsewhere_does_not_keep_workers_spinning() {
        let jobs = [job("a", None, true), job("b", None, false)];
        let (mut queue, _) = JobQueue::new(&jobs);
        let now = Instant::now();
        queue.set(0, EntryState::HeldByOther(now));
        assert_eq!(queue.next(now), Next::Try(1));
        assert_eq!(queue.next(now), Next::Wait(None));
    }

    #[test]
    fn needs_from_outside_follow_the_jobs_once_each() {
        let jobs = [job("a", Some("x"), false), job("b", Some("x"), false)];
        let (mut queue, outside) = JobQueue::new(&jobs);
        let names: Vec<_> = outside.iter().map(|need| need.id.cell()).collect();
        assert_eq!(names, ["x"]);
        queue.set(2, EntryState::Complete);
        assert_eq!(take(&mut queue), [0, 1]);
    }

    #[test]
    fn a_circle_ends_and_is_left() {
        let jobs = [job("a", Some("b"), false), job("b", Some("a"), false)];
        let (mut queue, _) = JobQueue::new(&jobs);
        assert_eq!(queue.next(Instant::now()), Next::Over);
        assert_eq!(queue.left(), [0, 1]);
    }

    #[test]
    fn stopping_waits_for_what_runs() {
        let jobs = [job("a", None, false), job("b", None, false)];
        let (mut queue, _) = JobQueue::new(&jobs);
        assert_eq!(queue.next(Instant::now()), Next::Try(0));
        queue.stopped = true;
        assert_eq!(queue.next(Instant::now()), Next::Wait(None));
        queue.set(0, EntryState::Failed);
        assert_eq!(queue.next(Instant::now()), Next::Over);
        assert_eq!(queue.left(), [1]);
    }
}
