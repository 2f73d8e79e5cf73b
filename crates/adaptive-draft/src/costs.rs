//! Costs of a round, as numbers of a configuration.

use crate::PolicyError;

/// Costs in steps of the target; a step is a forward over one position. Decisions based on them do
/// not depend on the speed of a particular run.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Cost of drafting 1, 2, 3, ... tokens, with masking and sampling. Longer drafts follow a line
    /// through the last two. The first token costs the most, because its step finds the processor's
    /// caches as the target's forward left them.
    pub draft: Vec<f64>,
    /// Cost of a target forward over 1, 2, 3, ... positions. Longer ones follow a line through the
    /// last two.
    pub verify: Vec<f64>,
    /// Further cost of every round: translation, verification, roll-back.
    pub round: f64,
}

impl Costs {
    /// Checks that the numbers are possible costs.
    ///
    /// # Errors
    /// [`PolicyError::Costs`] unless all are finite and not negative, no list is empty or falls,
    /// and the first of `verify` is positive.
    pub fn check(&self) -> Result<(), PolicyError> {
        let fault = |key, value| Err(PolicyError::Costs { key, value });
        let bad = |x: &f64| !(x.is_finite() && *x >= 0.0);
        if bad(&self.round) {
            return fault("round", self.round);
        }
        for (key, list) in [("draft", &self.draft), ("verify", &self.verify)] {
            if let Some(&value) = list.iter().find(|x| bad(x)) {
                return fault(key, value);
            }
            if let Some(pair) = list.windows(2).find(|pair| pair[1] < pair[0]) {
                return fault(key, pair[1]);
            }
        }
        if self.draft.is_empty() {
            return fault("draft", f64::NAN);
        }
        match self.verify.first() {
            Some(first) if *first > 0.0 => Ok(()),
            Some(first) => fault("verify", *first),
            None => fault("verify", f64::NAN),
        }
    }

    /// Cost of a draft of `tokens`; 0 for none. If only one length is known, it gives the cost per
    /// token.
    pub fn draft(&self, tokens: usize) -> f64 {
        match (tokens, self.draft.as_slice()) {
            (0, _) => 0.0,
            (_, [one]) => one * tokens as f64,
            _ => line(&self.draft, tokens),
        }
    }

    /// Cost of a target forward over `positions`, at least 1.
    pub fn verify(&self, positions: usize) -> f64 {
        line(&self.verify, positions)
    }
}

/// The `count`th cost, from 1. Beyond the list it is on the line through the last two.
fn line(known: &[f64], count: usize) -> f64 {
    if let Some(cost) = known.get(count.saturating_sub(1)) {
        return *cost;
    }
    match known {
        [] => 1.0,
        [only] => *only,
        [.., before, last] => last + (last - before) * (count - known.len()) as f64,
    }
}

impl Default for Costs {
    /// Costs of the padded models of this repository on a processor: `omnidraft costs`, the mean of
    /// five processes on a Zen 4 with two threads. Longer drafts and forwards follow a line through
    /// the last two costs, so the list ends before it becomes flat.
    fn default() -> Self {
        Self {
            draft: vec![0.134, 0.201, 0.254, 0.301, 0.335, 0.375, 0.413, 0.453],
            verify: vec![1.0, 1.026, 1.089, 1.158, 1.259, 1.279],
            round: 0.015,
        }
    }
}
