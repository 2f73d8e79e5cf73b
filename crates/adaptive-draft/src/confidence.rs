//! Stop where the drafter itself no longer believes in the draft.

use spec_decode::{DraftPolicy, DraftStep};

use crate::PolicyError;

/// At most k tokens; stops behind the token with which the product of the drafter's probabilities
/// falls below the threshold.
#[derive(Clone, Debug)]
pub struct Confidence {
    longest: usize,
    threshold: f64,
    joint: f64,
}

impl Confidence {
    /// Drafts of at most `longest` tokens, ended below `threshold`.
    ///
    /// # Errors
    /// [`PolicyError::Threshold`] outside `0..=1`, [`PolicyError::Bounds`] for `longest` 0.
    pub fn new(longest: usize, threshold: f64) -> Result<Self, PolicyError> {
        if !(0.0..=1.0).contains(&threshold) {
            return Err(PolicyError::Threshold(threshold));
        }
        if longest == 0 {
            return Err(PolicyError::Bounds {
                start: 0,
                low: 1,
                high: longest,
            });
        }
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
        self.joint *= step.probability;
        self.joint < self.threshold
    }
}
