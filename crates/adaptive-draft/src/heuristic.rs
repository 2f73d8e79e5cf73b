//! Additive increase, additive decrease.

use std::ops::RangeInclusive;

use spec_decode::{DraftPolicy, RoundOutcome};

use crate::PolicyError;

/// Number of tokens added after a round whose draft was accepted whole.
const RISE: usize = 2;

/// Draft length that rises by two tokens after full acceptance and falls by one otherwise, within
/// bounds.
#[derive(Clone, Debug)]
pub struct Heuristic {
    len: usize,
    bounds: RangeInclusive<usize>,
}

impl Heuristic {
    /// Starts with drafts of `start` tokens.
    ///
    /// # Errors
    /// [`PolicyError::Bounds`] if `start` is outside `bounds`, or if these include 0.
    pub fn new(start: usize, bounds: RangeInclusive<usize>) -> Result<Self, PolicyError> {
        if !bounds.contains(&start) || *bounds.start() == 0 {
            let (low, high) = (*bounds.start(), *bounds.end());
            return Err(PolicyError::Bounds { start, low, high });
        }
        Ok(Self { len: start, bounds })
    }

    /// Updates the length; `whole` is true if a draft was accepted whole.
    pub fn adapt(&mut self, whole: bool) {
        let wanted = if whole {
            self.len.saturating_add(RISE)
        } else {
            self.len - 1
        };
        self.len = wanted.clamp(*self.bounds.start(), *self.bounds.end());
    }
}

impl DraftPolicy for Heuristic {
    fn next_len(&mut self) -> usize {
        self.len
    }

    fn reads_drafter(&self) -> bool {
        false
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        // A round without proposals says nothing about acceptance.
        if outcome.proposed() > 0 {
            self.adapt(outcome.accepted == outcome.proposed());
        }
    }
}
