//! Progress bars on a terminal: one for the whole run, and a line for each running job.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::tracker::Tracker;
use crate::{Event, EventKind};

/// Maximum number of lines of running jobs; further jobs are only counted.
const JOB_LINES: usize = 8;

pub(super) struct Bars {
    screen: MultiProgress,
    total: ProgressBar,
    jobs: Vec<ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let screen = MultiProgress::new();
        let total = screen.add(ProgressBar::new(0));
        // A template that does not parse must not end the run.
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:20} {wide_msg}") {
            total.set_style(style.progress_chars("━╸─"));
        }
        total.enable_steady_tick(Duration::from_secs(1));
        Self {
            screen,
            total,
            jobs: Vec::new(),
        }
    }

    pub(super) fn draw(&mut self, event: &Event, tracker: &Tracker, now: Duration) {
        let id = &event.id;
        match &event.kind {
            EventKind::Failed(message) => self.println(&format!("failed: {id}: {message}")),
            EventKind::Resumed(done) => self.println(&format!(
                "{id} goes on from its checkpoint, after {done} prompts"
            )),
            _ => {}
        }
        let (done, all) = tracker.prompts();
        let counts = tracker.counts();
        let (position, length) = match all {
            0 => (counts.complete as u64, counts.all as u64),
            _ => (done, all),
        };
        self.total.set_length(length);
        self.total.set_position(position);
        self.total.set_message(tracker.total_line(now));
        self.draw_jobs(&tracker.job_lines());
    }

    fn draw_jobs(&mut self, lines: &[String]) {
        let mut shown: Vec<String> = lines.iter().take(JOB_LINES).cloned().collect();
        if lines.len() > JOB_LINES {
            shown.push(format!("and {} more", lines.len() - JOB_LINES));
        }
        while self.jobs.len() < shown.len() {
            let bar = self.screen.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("  {wide_msg}") {
                bar.set_style(style);
            }
            self.jobs.push(bar);
        }
        for bar in self.jobs.drain(shown.len()..) {
            bar.finish_and_clear();
            self.screen.remove(&bar);
        }
        for (bar, line) in self.jobs.iter().zip(shown) {
            bar.set_message(line);
        }
    }

    pub(super) fn println(&self, text: &str) {
        // A closed stderr must not end the run.
        let _ = self.screen.println(text);
    }

    pub(super) fn clear(&mut self) {
        self.draw_jobs(&[]);
        self.total.finish_and_clear();
    }
}
