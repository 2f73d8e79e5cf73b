//! Stopping rule on the drafter's own probabilities.

use spec_decode::{DraftPolicy, DraftStep};

use crate::{DraftSignal, PolicyError};

/// A draft has at most k tokens and stops after the token with which the product of the drafter's
/// probabilities falls below the threshold. Probabilities are those of its logits at temperature 1:
/// near temperature 0 the distribution that is sampled from gives every drafted token a probability
/// of about 1.
#[derive(Clone, Debug)]
pub struct Confidence {
    longest: usize,
    threshold: f64,
    joint: f64,
}

impl Confidence {
    /// A rule for drafts of at most `longest` tokens that end below `threshold`.
    ///
    /// # Errors
    /// [`PolicyError::Threshold`] outside `0..=1`, [`PolicyError::Bounds`] for `longest` 0.
    pub fn new(longest: usize, threshold: f64) -> Result<Self, PolicyError> {
        if !(0.0..=1.0).contains(&threshold) {
            return Err(PolicyError::Threshold(threshold));
        }
        crate::at_least_one(longest)?;
        Ok(Self {
            longest,
            threshold,
            joint: 1.0,
        })
    }
}

impl DraftPolicy for Confidence {
    fn next_len(&mut self) -> usize {
        self.joint = 1.0;
        self.longest
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.joint *= DraftSignal::of(step.token, step.logits).probability();
        self.joint < self.threshold
    }
}
