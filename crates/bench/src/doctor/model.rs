//! Speedup of speculation at an acceptance rate, from measured costs.

/// Measured cost of a round with one draft length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundCost {
    /// Draft length k that was requested.
    pub k: usize,
    /// Mean number of target tokens proposed in a round: below k if draft tokens merge, above it if
    /// a draft token becomes several target tokens.
    pub proposed: f64,
    /// Seconds of a round over seconds of a plain target step.
    pub cost: f64,
}

impl RoundCost {
    /// The acceptance probability, equal and independent for all proposed tokens, that gives so
    /// many tokens per round.
    pub fn rate_of(&self, tokens_a_round: f64) -> f64 {
        let (rate, _) = bisect(|rate| self.speed(rate) * self.cost < tokens_a_round);
        rate
    }

    /// Speedup over plain decoding if each proposed token is accepted with probability
    /// `acceptance`, independently: `(1 - a^(m + 1)) / (1 - a)` tokens per round of m proposals
    /// (Leviathan et al. 2023, Eq. 1), over the round's cost.
    pub fn speed(&self, acceptance: f64) -> f64 {
        let tokens = match acceptance < 1.0 {
            true => (1.0 - acceptance.powf(self.proposed + 1.0)) / (1.0 - acceptance),
            false => self.proposed + 1.0,
        };
        tokens / self.cost
    }
}

/// The fastest length at an acceptance rate: its k and its speedup.
pub fn best(rounds: &[RoundCost], acceptance: f64) -> Option<(usize, f64)> {
    let speeds = rounds
        .iter()
        .map(|round| (round.k, round.speed(acceptance)));
    speeds.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The smallest acceptance rate at which some length is as fast as plain decoding; `None` if even
/// full acceptance is slower.
pub fn break_even(rounds: &[RoundCost]) -> Option<f64> {
    let pays = |acceptance| best(rounds, acceptance).is_some_and(|(_, speed)| speed >= 1.0);
    if !pays(1.0) {
        return None;
    }
    // The speedup of every length rises with acceptance, so that the maximum does too.
    let (_, rate) = bisect(|rate| !pays(rate));
    Some(rate)
}

/// The narrow interval within 0 to 1 whose lower end is `below` a searched rate, and whose upper end
/// is not.
fn bisect(below: impl Fn(f64) -> bool) -> (f64, f64) {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        match below(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(k: usize, cost: f64) -> RoundCost {
        RoundCost {
            k,
            proposed: k as f64,
            cost,
        }
    }

    #[test]
    fn speed_is_the_formula() {
        // 1 + 0.5 + 0.25 tokens for 1.75 steps.
        assert!((round(2, 1.75).speed(0.5) - 1.0).abs() < 1e-12);
        assert!((round(3, 2.0).speed(1.0) - 2.0).abs() < 1e-12);
        assert!((round(3, 2.0).speed(0.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_rate_is_what_the_formula_was_given() {
        for rate in [0.05, 0.5, 0.9] {
            let round = round(4, 1.5);
            let found = round.rate_of(round.speed(rate) * round.cost);
            assert!((found - rate).abs() < 1e-9, "{found} for {rate}");
        }
    }

    #[test]
    fn break_even_is_where_the_best_length_pays() {
        let rounds = [round(1, 1.2), round(4, 2.0)];
        // One token: 1 + a = 1.2. Four tokens pay only at a higher rate.
        let found = break_even(&rounds).unwrap();
        assert!((found - 0.2).abs() < 1e-9, "{found}");
        assert!(best(&rounds, found + 1e-9).unwrap().1 >= 1.0);
        assert_eq!(break_even(&[round(1, 2.5)]), None);
        assert_eq!(break_even(&[]), None);
    }
}
