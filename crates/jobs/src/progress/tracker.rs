//! Progress of a run, computed from its events: counts, and the remaining time.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Event, EventKind, JobId, Progress};

/// The progress of all jobs of a run.
#[derive(Debug)]
pub(super) struct Tracker {
    workers: usize,
    jobs: Vec<JobProgress>,
    index: HashMap<JobId, usize>,
}

#[derive(Debug)]
struct JobProgress {
    id: JobId,
    exclusive: bool,
    prompts: Option<u64>,
    progress: Option<Progress>,
    /// Number of prompts answered before the checkpoint that this process started from.
    before: u64,
    state: JobState,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum JobState {
    Open,
    Running {
        since: Duration,
    },
    /// Finished by this process, in that time.
    Finished {
        took: Duration,
    },
    Skipped,
    Failed,
    Blocked,
}

/// Work of one stage, in prompts.
#[derive(Debug, Default)]
struct Work {
    done: u64,
    spent: Duration,
    open: u64,
    open_jobs: usize,
    exclusive: bool,
}

/// Numbers of jobs by state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) all: usize,
    pub(super) complete: usize,
    pub(super) running: usize,
    pub(super) failed: usize,
    pub(super) blocked: usize,
}

impl Tracker {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            jobs: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Applies an event. `now` is the time since the start of the run.
    pub(super) fn apply(&mut self, event: &Event, now: Duration) {
        if let EventKind::Planned { exclusive, prompts } = event.kind {
            self.index.insert(event.id.clone(), self.jobs.len());
            self.jobs.push(JobProgress {
                id: event.id.clone(),
                exclusive,
                prompts,
                progress: None,
                before: 0,
                state: JobState::Open,
            });
            return;
        }
        let index = self.index.get(&event.id);
        let Some(job) = index.and_then(|&i| self.jobs.get_mut(i)) else {
            return;
        };
        match &event.kind {
            EventKind::Planned { .. } | EventKind::Waiting(_) => {}
            EventKind::Resumed(done) => job.before = *done,
            EventKind::Skipped => job.state = JobState::Skipped,
            EventKind::Started => job.state = JobState::Running { since: now },
            EventKind::Progress(progress) => {
                job.prompts = Some(progress.of);
                job.progress = Some(*progress);
            }
            EventKind::Finished(seconds) => {
                let took = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                job.state = JobState::Finished { took };
            }
            EventKind::Failed(_) => job.state = JobState::Failed,
            EventKind::Blocked(_) => job.state = JobState::Blocked,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts {
            all: self.jobs.len(),
            ..Counts::default()
        };
        for job in &self.jobs {
            match job.state {
                JobState::Open => {}
                JobState::Running { .. } => counts.running += 1,
                JobState::Finished { .. } | JobState::Skipped => counts.complete += 1,
                JobState::Failed => counts.failed += 1,
                JobState::Blocked => counts.blocked += 1,
            }
        }
        counts
    }

    /// Estimate of the remaining time. The prompts left of each stage take that stage's mean time
    /// so far, or the overall mean if it has not begun; the workers share them, except in timed
    /// stages.
    pub(super) fn time_left(&self, now: Duration) -> Option<Duration> {
        let stages = self.work(now);
        let done: u64 = stages.values().map(|s| s.done).sum();
        let spent: Duration = stages.values().map(|s| s.spent).sum();
        if done == 0 {
            return None;
        }
        let pace = |spent: Duration, done: u64| spent.as_secs_f64() / done as f64;
        let seconds = stages.values().map(|stage| {
            let pace = match stage.done {
                0 => pace(spent, done),
                n => pace(stage.spent, n),
            };
            let side_by_side = match stage.exclusive {
                true => 1,
                false => self.workers.min(stage.open_jobs).max(1),
            };
            pace * stage.open as f64 / side_by_side as f64
        });
        Duration::try_from_secs_f64(seconds.sum()).ok()
    }

    fn work(&self, now: Duration) -> HashMap<&str, Work> {
        let mut stages: HashMap<&str, Work> = HashMap::new();
        for job in &self.jobs {
            let stage = stages.entry(job.id.stage()).or_default();
            stage.exclusive |= job.exclusive;
            let done = job.progress.map_or(0, |p| p.done);
            let all = job.prompts.unwrap_or(0);
            match job.state {
                JobState::Running { since } => {
                    // The time since the last prompt counts too, so that the estimate is rather too
                    // long than too short.
                    stage.done += done.saturating_sub(job.before);
                    if done > job.before {
                        stage.spent += now.saturating_sub(since);
                    }
                    stage.open += all.saturating_sub(done);
                    stage.open_jobs += 1;
                }
                JobState::Open => {
                    stage.open += all;
                    stage.open_jobs += 1;
                }
                JobState::Finished { took } => {
                    stage.done += all.saturating_sub(job.before);
                    stage.spent += took;
                }
                JobState::Skipped | JobState::Failed | JobState::Blocked => {}
            }
        }
        stages
    }

    /// Numbers of answered prompts and of all prompts, of jobs that neither failed nor are blocked.
    pub(super) fn prompts(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for job in &self.jobs {
            let all = job.prompts.unwrap_or(0);
            let done = match job.state {
                JobState::Finished { .. } | JobState::Skipped => all,
                JobState::Failed | JobState::Blocked => continue,
                JobState::Open | JobState::Running { .. } => job.progress.map_or(0, |p| p.done),
            };
            sums = (sums.0 + done, sums.1 + all);
        }
        sums
    }

    /// `3/24 jobs, 2 running, 1 failed · 310/2400 prompts · 12 min left`.
    pub(super) fn total_line(&self, now: Duration) -> String {
        let counts = self.counts();
        let mut line = format!("{}/{} jobs", counts.complete, counts.all);
        for (number, word) in [
            (counts.running, "running"),
            (counts.failed, "failed"),
            (counts.blocked, "blocked"),
        ] {
            if number > 0 {
                line += &format!(", {number} {word}");
            }
        }
        let (done, all) = self.prompts();
        if all > 0 {
            line += &format!(" · {done}/{all} prompts");
        }
        match self.time_left(now) {
            Some(left) if !left.is_zero() => line + &format!(" · {} left", duration_text(left)),
            _ => line,
        }
    }

    /// The totals of a run that has ended, with its time.
    pub(super) fn last_line(&self, now: Duration) -> String {
        format!("{} in {}", self.total_line(now), duration_text(now))
    }

    /// A line for each running job, in order.
    pub(super) fn job_lines(&self) -> Vec<String> {
        let running = |job: &&JobProgress| matches!(job.state, JobState::Running { .. });
        self.jobs.iter().filter(running).map(job_line).collect()
    }
}

fn job_line(job: &JobProgress) -> String {
    let mut line = format!("{} {}", job.id.stage(), job.id.cell());
    let Some(progress) = job.progress else {
        return line + " · loading";
    };
    line += &format!(" · {}/{} prompts", progress.done, progress.of);
    if let Some(acceptance) = progress.acceptance {
        line += &format!(" · acceptance {acceptance:.2}");
    }
    if let Some(rate) = progress.tokens_per_s {
        line += &format!(" · {rate:.0} tokens/s");
    }
    line
}

/// `42 s`, `12 min`, `3 h 05 min`.
pub(super) fn duration_text(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5399 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
