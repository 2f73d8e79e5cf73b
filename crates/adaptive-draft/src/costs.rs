//! What a round costs, as numbers that a configuration holds.

use crate::PolicyError;

/// Costs in steps of the target, that is forwards over one position. Decisions made from them do
/// not depend on how fast a run happens to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Drafting 1, 2, 3, ... tokens with masking and sampling; longer drafts follow the last two in a
    /// line. The first token costs the most: its step finds the caches as the target left them.
    pub draft: Vec<f64>,
    /// Target forward over 1, 2, 3, ... positions; longer ones follow the last two in a line.
    pub verify: Vec<f64>,
    /// What every round costs besides: translation, judging, roll-back.
    pub round: f64,
}

impl Costs {
    /// Checks that the numbers can be costs.
    ///
    /// # Errors
    /// [`PolicyError::Costs`] unless all are finite and not negative, no list falls and the first of
    /// `verify` is positive.
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

    /// A draft of `tokens`, nothing for none. One known length alone says what a token costs.
    pub fn draft(&self, tokens: usize) -> f64 {
        match (tokens, self.draft.as_slice()) {
            (0, _) => 0.0,
            (_, [one]) => one * tokens as f64,
            _ => line(&self.draft, tokens),
        }
    }

    /// Target forward over `positions`, at least 1.
    pub fn verify(&self, positions: usize) -> f64 {
        line(&self.verify, positions)
    }
}

/// The `count`th cost, from 1, on a line through the last two behind them.
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
    /// A drafter and a target on a processor: the padded models of this repository, `omnidraft costs`,
    /// the mean of five processes on a Zen 4 with two threads. What is longer follows the last two in
    /// a line, so the list ends before it is flat.
    fn default() -> Self {
        Self {
            draft: vec![0.134, 0.201, 0.254, 0.301, 0.335, 0.375, 0.413, 0.453],
            verify: vec![1.0, 1.026, 1.089, 1.158, 1.259, 1.279],
            round: 0.015,
        }
    }
}
