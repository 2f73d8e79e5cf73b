//! The paper's learned stopping rule.

use spec_decode::{DraftPolicy, DraftStep};

use crate::throughput::{Score, Scorer};
use crate::{Head, PolicyError};

/// Stopping rule of Eq. 6 and 7. A draft has at most k tokens and stops once one of them is
/// probably rejected, `1 - prod P(accept_i) > gamma`, with P(accept) predicted by a head (Eq. 5).
#[derive(Clone, Debug)]
pub struct AcceptanceStop<'a> {
    head: &'a Head,
    longest: usize,
    gamma: f64,
    hold: bool,
    joint: f64,
    scorer: Scorer,
}

impl<'a> AcceptanceStop<'a> {
    /// A rule for drafts of at most `longest` tokens. With `hold`, a draft does not stop inside a
    /// cached n-gram that it could still complete, because only the whole n-gram is verified.
    ///
    /// # Errors
    /// [`PolicyError::Threshold`] for gamma outside `0..=1`, [`PolicyError::Bounds`] for `longest`
    /// 0.
    pub fn new(
        head: &'a Head,
        longest: usize,
        gamma: f64,
        hold: bool,
    ) -> Result<Self, PolicyError> {
        if !(0.0..=1.0).contains(&gamma) {
            return Err(PolicyError::Threshold(gamma));
        }
        crate::at_least_one(longest)?;
        Ok(Self {
            head,
            longest,
            gamma,
            hold,
            joint: 1.0,
            scorer: Scorer::default(),
        })
    }
}

impl DraftPolicy for AcceptanceStop<'_> {
    fn next_len(&mut self) -> usize {
        self.joint = 1.0;
        self.longest
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        // After the last token of the longest draft there is nothing to decide.
        if step.position + 1 >= self.longest {
            return false;
        }
        self.joint *= self.scorer.score(Score::Head, Some(self.head), step);
        1.0 - self.joint > self.gamma && !(self.hold && step.open)
    }
}
