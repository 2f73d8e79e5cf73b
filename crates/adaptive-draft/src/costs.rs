//! What a round costs, as numbers that a configuration holds.

use crate::PolicyError;

/// Costs in steps of the target, that is forwards over one position. Decisions made from them do
/// not depend on how fast a run happens to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// One drafter step with masking and sampling.
    pub draft: f64,
    /// Target forward over 1, 2, 3, ... positions; longer ones follow the last two in a line.
    pub verify: Vec<f64>,
    /// What every round costs besides: translation, judging, roll-back.
    pub round: f64,
}

impl Costs {
    /// Checks that the numbers can be costs.
    ///
    /// # Errors
    /// [`PolicyError::Costs`] unless all are finite and not negative and the first of `verify` is
    /// positive.
    pub fn check(&self) -> Result<(), PolicyError> {
        let fault = |key, value| Err(PolicyError::Costs { key, value });
        let bad = |x: &f64| !(x.is_finite() && *x >= 0.0);
        if bad(&self.draft) {
            return fault("draft", self.draft);
        }
        if bad(&self.round) {
            return fault("round", self.round);
        }
        if let Some(&value) = self.verify.iter().find(|x| bad(x)) {
            return fault("verify", value);
        }
        match self.verify.first() {
            Some(first) if *first > 0.0 => Ok(()),
            Some(first) => fault("verify", *first),
            None => fault("verify", f64::NAN),
        }
    }

    /// Target forward over `positions`, at least 1.
    pub fn verify(&self, positions: usize) -> f64 {
        let known = self.verify.len();
        if let Some(cost) = self.verify.get(positions.saturating_sub(1)) {
            return *cost;
        }
        let last = self.verify.last().copied().unwrap_or(1.0);
        let slope = match known {
            0 | 1 => 0.0,
            _ => last - self.verify[known - 2],
        };
        last + slope * (positions - known) as f64
    }
}

impl Default for Costs {
    /// The paper's latencies (Table 8: 2.03 ms over 28.46 ms), verification free of charge.
    fn default() -> Self {
        Self {
            draft: 0.0713,
            verify: vec![1.0],
            round: 0.0,
        }
    }
}
