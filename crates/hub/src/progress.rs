//! Progress of downloads on stderr.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hf_hub::api::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Time after which a download shows a progress bar. A shorter one needs none.
const SILENT: Duration = Duration::from_secs(2);

/// True if bars are shown. It is global, like logging, because downloads start deep inside the
/// loading of models.
static SHOWN: AtomicBool = AtomicBool::new(true);

/// Turns the progress bars of downloads on or off. They are on by default, and drawn only if stderr
/// is a terminal.
pub fn show_progress(shown: bool) {
    SHOWN.store(shown, Ordering::Relaxed);
}

/// A progress bar that appears once the download has lasted two seconds.
pub(super) struct LateBar {
    began: Instant,
    name: String,
    total: u64,
    done: u64,
    bar: Option<ProgressBar>,
}

impl LateBar {
    pub(super) fn new(repo: &str, file: &str) -> Self {
        Self {
            began: Instant::now(),
            name: format!("{repo} {file}"),
            total: 0,
            done: 0,
            bar: None,
        }
    }
}

impl Progress for LateBar {
    // Called again when the transfer itself starts.
    fn init(&mut self, size: usize, _file: &str) {
        self.total = size as u64;
        self.done = 0;
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        if self.bar.is_none() && SHOWN.load(Ordering::Relaxed) && self.began.elapsed() > SILENT {
            let bar = ProgressBar::new(self.total).with_message(self.name.clone());
            let style = "{msg} [{wide_bar}] {bytes}/{total_bytes} {eta}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
