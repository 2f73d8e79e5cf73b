//! The learner beside the drafter's first weights, on the same text.

use serde::{Deserialize, Serialize};

/// Comparisons after which one counts 1/e: the learner becomes another one soon.
const MEMORY: f64 = 8.0;
/// Draft tokens of a round by which agreement is turned into tokens.
const DRAFT: i32 = 4;
/// Weight, in comparisons, of what was found before something changed.
const DOUBTED: f64 = 0.5;

/// Shares of the same text, from 0 to 1, that two drafters agree with. Neither has learnt from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreed {
    /// The weights that learn.
    pub learner: f64,
    /// The weights as they were at first.
    pub frozen: f64,
}

impl Agreed {
    /// Logarithm of the tokens of a round by the learner over those by the first weights.
    pub(super) fn gain(self) -> f64 {
        (tokens(self.learner) / tokens(self.frozen)).ln()
    }
}

/// Tokens of a round whose drafts are accepted as often as that.
fn tokens(agreed: f64) -> f64 {
    (0..=DRAFT).map(|i| agreed.clamp(0.0, 1.0).powi(i)).sum()
}

/// A running mean of comparisons. What an answer saves differs from the next one's by ten times as much
/// as two drafters do on the same answer, so that this knows the better one long before the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pairs {
    weight: f64,
    gain: f64,
}

impl Pairs {
    pub(super) fn add(&mut self, agreed: Agreed) {
        self.weight = (1.0 - 1.0 / MEMORY) * self.weight + 1.0;
        self.gain += (agreed.gain() - self.gain) / self.weight;
    }

    /// Logarithm of how many times as fast the learner's rounds make tokens; `None` while nothing was
    /// compared.
    pub(super) fn gain(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.gain)
    }

    /// Something has changed.
    pub(super) fn doubt(&mut self) {
        self.weight = self.weight.min(DOUBTED);
    }
}
