//! What the last answers have lost, so that no stretch of them loses too much.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Answers of a stretch.
const WINDOW: usize = 32;
/// Part of what may be lost that is planned with; the rest is for what nobody foresees.
const PLANNED: f64 = 0.75;

/// One answer with what was learnt from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Passed {
    /// Seconds more than by plain decoding; below 0 where they were saved. Learning included.
    lost: f64,
    plain: f64,
    learning: f64,
}

/// The last answers. A stretch of 32 that begins among them may end with answers that save nothing, so
/// what may still be lost is what is left by the worst stretch up to now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Guard {
    last: VecDeque<Passed>,
}

impl Guard {
    /// Takes in an answer; one of the `first` may have lost what it did.
    pub(super) fn pass(&mut self, lost: f64, plain: f64, first: bool) {
        self.last.push_back(Passed {
            lost: if first { 0.0 } else { lost },
            plain,
            learning: 0.0,
        });
        if self.last.len() >= WINDOW {
            self.last.pop_front();
        }
    }

    /// Takes in seconds of learning.
    pub(super) fn charge(&mut self, seconds: f64) {
        if let Some(last) = self.last.back_mut() {
            last.lost += seconds;
            last.learning += seconds;
        }
    }

    /// Whether `seconds` more may be lost where a mean answer takes `mean` and a stretch of answers may
    /// lose a `share` of its time.
    pub(super) fn allows(&self, seconds: f64, mean: f64, share: f64) -> bool {
        let known: f64 = self.last.iter().map(|passed| passed.plain).sum();
        let to_come = mean * (WINDOW - self.last.len().min(WINDOW)) as f64;
        // A speed of 1 - s is a time of 1 / (1 - s).
        let most = PLANNED * share / (1.0 - share) * (known + to_come);
        self.worst() + seconds.max(0.0) <= most
    }

    /// The most that was lost in a row until now.
    fn worst(&self) -> f64 {
        let (mut sum, mut worst) = (0.0, 0.0);
        for passed in self.last.iter().rev() {
            sum += passed.lost;
            worst = f64::max(worst, sum);
        }
        worst
    }

    /// Whether `seconds` of learning are within a share of the last answers' time.
    pub(super) fn has_share(&self, seconds: f64, share: f64) -> bool {
        let learning: f64 = self.last.iter().map(|passed| passed.learning).sum();
        let time: f64 = self.last.iter().map(|p| p.plain + p.lost).sum();
        learning + seconds <= share * (time + seconds)
    }
}
