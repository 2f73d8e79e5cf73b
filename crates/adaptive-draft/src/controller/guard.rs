//! A bound on the loss of any window of consecutive answers.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Number of answers of a window.
const WINDOW: usize = 32;
/// Part of the allowed loss that is planned with. The rest is for unforeseen losses.
const PLANNED: f64 = 0.75;

/// One answer with the learning from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Passed {
    /// Seconds lost in comparison with plain decoding, learning included; negative if they were
    /// saved.
    lost: f64,
    plain: f64,
    learning: f64,
    /// True for one of the first answers, whose losses do not count.
    first: bool,
}

/// The last answers, at most 31. Answers to come may save nothing. The loss that is still allowed
/// is therefore the bound of a window less the largest loss of any run of answers that ends now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Guard {
    last: VecDeque<Passed>,
}

impl Guard {
    /// Adds an answer. The loss of one of the `first` answers does not count.
    pub(super) fn pass(&mut self, lost: f64, plain: f64, first: bool) {
        self.last.push_back(Passed {
            lost: if first { 0.0 } else { lost },
            plain,
            learning: 0.0,
            first,
        });
        if self.last.len() >= WINDOW {
            self.last.pop_front();
        }
    }

    /// Adds seconds of learning from the last answer.
    pub(super) fn charge(&mut self, seconds: f64) {
        if let Some(last) = self.last.back_mut() {
            last.lost += if last.first { 0.0 } else { seconds };
            last.learning += seconds;
        }
    }

    /// True if `seconds` more may be lost, given that a mean answer takes `mean` seconds and that a
    /// window may lose a `share` of its time.
    pub(super) fn allows(&self, seconds: f64, mean: f64, share: f64) -> bool {
        let known: f64 = self.last.iter().map(|passed| passed.plain).sum();
        let to_come = mean * (WINDOW - self.last.len().min(WINDOW)) as f64;
        // A speed of 1 - s is a time of 1 / (1 - s).
        let most = PLANNED * share / (1.0 - share) * (known + to_come);
        self.worst() + seconds.max(0.0) <= most
    }

    /// The largest loss of a run of answers that ends now.
    fn worst(&self) -> f64 {
        let (mut sum, mut worst) = (0.0, 0.0);
        for passed in self.last.iter().rev() {
            sum += passed.lost;
            worst = f64::max(worst, sum);
        }
        worst
    }

    /// True if `seconds` of learning are within a share of the last answers' time.
    pub(super) fn has_share(&self, seconds: f64, share: f64) -> bool {
        let learning: f64 = self.last.iter().map(|passed| passed.learning).sum();
        let time: f64 = self.last.iter().map(|p| p.plain + p.lost).sum();
        learning + seconds <= share * (time + seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answers_may_lose_and_learn() {
        let mut guard = Guard::default();
        for _ in 0..8 {
            guard.pass(5.0, 1.0, true);
            guard.charge(2.0);
        }
        assert!(guard.allows(0.1, 1.0, 0.02));
        // Their learning is part of the share that learning takes.
        assert!(!guard.has_share(0.1, 0.06));
        guard.pass(0.0, 1.0, false);
        guard.charge(2.0);
        assert!(!guard.allows(0.1, 1.0, 0.02));
    }
}
