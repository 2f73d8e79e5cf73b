//! Stopping rule on the drafter's entropy.

use spec_decode::{DraftPolicy, DraftStep};

use crate::{DraftSignal, PolicyError};

/// A draft has at most k tokens and stops after the first token for which `1 - sqrt(scale * H(q))`,
/// a bound on its acceptance (AdaEDL, arXiv 2410.18351), is below the threshold. H(q) is the
/// entropy in nats of the drafter's logits at temperature 1. The threshold is constant.
#[derive(Clone, Debug)]
pub struct EntropyBound {
    longest: usize,
    scale: f64,
    threshold: f64,
}

impl EntropyBound {
    /// A rule for drafts of at most `longest` tokens.
    ///
    /// # Errors
    /// [`PolicyError::Threshold`] outside `0..=1`, [`PolicyError::Scale`] for a scale that is not
    /// positive, [`PolicyError::Bounds`] for `longest` 0.
    pub fn new(longest: usize, scale: f64, threshold: f64) -> Result<Self, PolicyError> {
        if !(0.0..=1.0).contains(&threshold) {
            return Err(PolicyError::Threshold(threshold));
        }
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(PolicyError::Scale(scale));
        }
        crate::at_least_one(longest)?;
        Ok(Self {
            longest,
            scale,
            threshold,
        })
    }
}

impl DraftPolicy for EntropyBound {
    fn next_len(&mut self) -> usize {
        self.longest
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let entropy = DraftSignal::of(step.token, step.logits).entropy;
        1.0 - (self.scale * entropy).sqrt() < self.threshold
    }
}
