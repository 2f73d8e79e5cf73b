//! Comparison of the learner with the drafter's frozen weights, on the same text.

use serde::{Deserialize, Serialize};

/// Weight of comparisons after which one has weight 1/e. It is small because the learner soon
/// changes.
const MEMORY: f64 = 8.0;
/// Number of positions of a comparison of weight 1, and the largest weight.
// A comparison of eight positions, of the same weight as one of two hundred, decided which weights
// draft: results/LOG.md, 2026-12-01.
const POSITIONS: f64 = 128.0;
const MOST: f64 = 2.0;
/// Number of draft tokens of a round in the conversion of agreement to tokens.
const DRAFT: i32 = 4;
/// Weight, in comparisons, of the estimate after a change.
const DOUBTED: f64 = 0.5;

/// Shares of the same text, from 0 to 1, with which two drafters agree. Neither has learnt from the
/// text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreed {
    /// Share of the learner.
    pub learner: f64,
    /// Share of the frozen weights.
    pub frozen: f64,
    /// Number of positions of the text, more than 0.
    pub positions: f64,
}

impl Agreed {
    /// Logarithm of the ratio of tokens per round, learner over frozen weights.
    pub(super) fn gain(self) -> f64 {
        (tokens(self.learner) / tokens(self.frozen)).ln()
    }

    /// Weight of the comparison.
    pub(super) fn weight(self) -> f64 {
        (self.positions / POSITIONS).clamp(0.0, MOST)
    }
}

/// Number of tokens per round if each draft token is accepted with this probability.
fn tokens(agreed: f64) -> f64 {
    (0..=DRAFT).map(|i| agreed.clamp(0.0, 1.0).powi(i)).sum()
}

/// A running mean of comparisons. Savings differ between answers by ten times as much as between
/// two drafters on the same answer, so this mean finds the better drafter long before measured
/// times do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pairs {
    weight: f64,
    gain: f64,
}

impl Pairs {
    pub(super) fn add(&mut self, agreed: Agreed) {
        let weight = agreed.weight();
        self.weight = (1.0 - weight / MEMORY) * self.weight + weight;
        if self.weight > 0.0 {
            self.gain += (agreed.gain() - self.gain) * weight / self.weight;
        }
    }

    /// Logarithm of the ratio of speeds at which rounds make tokens, learner over frozen weights;
    /// `None` before the first comparison.
    pub(super) fn gain(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.gain)
    }

    /// Reduces the weight of the estimate after a change.
    pub(super) fn doubt(&mut self) {
        self.weight = self.weight.min(DOUBTED);
    }
}
