//! A view of a run: bars on a terminal, lines otherwise. Both are made from
//! [`Event`](crate::Event)s.

mod bars;
mod lines;
mod tracker;

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::Event;
use bars::Bars;
use lines::line;
use tracker::Tracker;

/// One view over all jobs of a run, on stderr.
pub struct ProgressView {
    started: Instant,
    state: Mutex<(Tracker, Option<Bars>)>,
}

impl ProgressView {
    /// A view of a run with that many workers: bars if stderr is a terminal and `bars` allows them,
    /// otherwise a line whenever a job starts, resumes, waits, ends, fails or is blocked. The run's
    /// clock starts now.
    pub fn new(workers: usize, bars: bool) -> Self {
        let bars = (bars && std::io::stderr().is_terminal()).then(Bars::new);
        Self {
            started: Instant::now(),
            state: Mutex::new((Tracker::new(workers), bars)),
        }
    }

    /// Shows an event; to be passed to [`run_local`](crate::run_local).
    pub fn show(&self, event: &Event) {
        let now = self.started.elapsed();
        let (tracker, bars) = &mut *self.lock();
        tracker.apply(event, now);
        match bars {
            Some(bars) => bars.draw(event, tracker, now),
            None => {
                if let Some(line) = line(event, tracker, now) {
                    print(None, &line);
                }
            }
        }
    }

    /// Progress of the run in one line: jobs, prompts, time left.
    pub fn summary(&self) -> String {
        let now = self.started.elapsed();
        self.lock().0.total_line(now)
    }

    /// Prints a line without disturbing the bars.
    pub fn println(&self, text: &str) {
        print(self.lock().1.as_ref(), text);
    }

    /// Removes the bars and prints a line of totals.
    pub fn finish(&self) {
        let now = self.started.elapsed();
        let (tracker, bars) = &mut *self.lock();
        if let Some(bars) = bars {
            bars.clear();
        }
        print(bars.as_ref(), &tracker.last_line(now));
    }

    fn lock(&self) -> MutexGuard<'_, (Tracker, Option<Bars>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints a line, above the bars if there are any. A closed stderr must not end the run.
fn print(bars: Option<&Bars>, text: &str) {
    match bars {
        Some(bars) => bars.println(text),
        None => drop(writeln!(std::io::stderr(), "{text}")),
    }
}
