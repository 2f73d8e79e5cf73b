//! Views of a run: bars on a terminal, lines otherwise. Both are made from
//! [`Event`](crate::Event)s.

mod bars;
mod lines;
mod tracker;

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::Event;
use bars::Bars;
use lines::Lines;
use tracker::Tracker;

/// Form of a [`ProgressView`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ViewMode {
    /// Bars if stderr is a terminal, else lines.
    #[default]
    Auto,
    /// A line whenever a job starts, resumes, waits, ends, fails or is blocked.
    Lines,
    /// Nothing.
    Hidden,
}

/// One view over all jobs of a run, on stderr.
pub struct ProgressView {
    started: Instant,
    state: Mutex<(Tracker, Screen)>,
}

enum Screen {
    Bars(Bars),
    Lines(Lines),
    Hidden,
}

impl ProgressView {
    /// A view of a run with that many workers. The run's clock starts now.
    pub fn new(workers: usize, mode: ViewMode) -> Self {
        let screen = match mode {
            ViewMode::Hidden => Screen::Hidden,
            ViewMode::Auto if std::io::stderr().is_terminal() => Screen::Bars(Bars::new()),
            ViewMode::Auto | ViewMode::Lines => {
                Screen::Lines(Lines::new(Box::new(std::io::stderr())))
            }
        };
        Self {
            started: Instant::now(),
            state: Mutex::new((Tracker::new(workers), screen)),
        }
    }

    /// Shows an event; to be passed to [`run_local`](crate::run_local).
    pub fn show(&self, event: &Event) {
        let now = self.started.elapsed();
        let (tracker, screen) = &mut *self.lock();
        tracker.apply(event, now);
        match screen {
            Screen::Bars(bars) => bars.draw(event, tracker, now),
            Screen::Lines(lines) => lines.draw(event, tracker, now),
            Screen::Hidden => {}
        }
    }

    /// Progress of the run in one line: jobs, prompts, time left.
    pub fn summary(&self) -> String {
        let now = self.started.elapsed();
        self.lock().0.total_line(now)
    }

    /// Prints a line without disturbing the bars; nothing in a hidden view.
    pub fn println(&self, text: &str) {
        match &mut self.lock().1 {
            Screen::Bars(bars) => bars.println(text),
            Screen::Lines(lines) => lines.println(text),
            Screen::Hidden => {}
        }
    }

    /// Removes the bars and prints a line of totals.
    pub fn finish(&self) {
        let now = self.started.elapsed();
        let (tracker, screen) = &mut *self.lock();
        match screen {
            Screen::Bars(bars) => bars.finish(tracker, now),
            Screen::Lines(lines) => lines.finish(tracker, now),
            Screen::Hidden => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Tracker, Screen)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
