//! The measured quantities, each defined once.
//!
//! | quantity | estimator | tokens counted |
//! |---|---|---|
//! | acceptance rate | mean over speculative steps of accepted / proposed target tokens | the target's own token is not counted |
//! | block efficiency | generated tokens / steps | the target's own token is counted |
//! | bytes per step | bytes of generated text / steps | special tokens have no text |
//! | n-gram hits | accepted tokens that came from the n-gram cache / steps | |
//! | measured speedup | tokens per second of the arm / tokens per second of plain decoding, totals over the same prompts | decoding only: prefill and learning are recorded apart |
//! | modelled speedup | block efficiency / (1 + k c) (Appendix B.1) | c = drafter step / target step |
//!
//! A step is one round: one forward of the target. Totals are taken before ratios, so a long response weighs more
//! than a short one.

use super::PromptRow;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Resamples of the bootstrap.
pub const BOOTSTRAP_RESAMPLES: usize = 4000;

/// Seed of the bootstrap: the same rows always give the same interval.
pub const BOOTSTRAP_SEED: u64 = 0x0b00_7572;

/// Mean over speculative steps of accepted / proposed.
///
/// Each item is one step: (draft tokens, proposed target tokens, accepted target tokens). A step that drafted but
/// had nothing translatable to propose counts as 0; a step without a draft is no speculative step and is left out.
/// NaN when no step drafted.
///
/// ```
/// // 2 of 4 accepted, then nothing translatable, then a step without a draft.
/// let steps = [(4, 4, 2), (4, 0, 0), (0, 0, 0)];
/// assert_eq!(runner::results::stats::acceptance_rate(steps), 0.25);
/// ```
pub fn acceptance_rate(steps: impl IntoIterator<Item = (u32, u32, u32)>) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for (drafted, proposed, accepted) in steps {
        if drafted == 0 {
            continue;
        }
        count += 1;
        if proposed > 0 {
            sum += f64::from(accepted) / f64::from(proposed);
        }
    }
    if count == 0 {
        f64::NAN
    } else {
        sum / f64::from(count)
    }
}

/// Sums over prompts, from which the step-wise quantities follow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Responses summed.
    pub responses: u64,
    /// Steps.
    pub steps: u64,
    /// Draft tokens.
    pub draft_tokens: u64,
    /// Generated target tokens.
    pub new_tokens: u64,
    /// Bytes of text generated.
    pub new_bytes: u64,
    /// Accepted tokens that came from the n-gram cache.
    pub ngram_hits: u64,
    acceptance_sum: f64,
    acceptance_steps: f64,
}

impl Totals {
    /// Sums over `rows`.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a PromptRow>) -> Self {
        let mut totals = Self::default();
        for row in rows {
            totals.add(row);
        }
        totals
    }

    /// Adds a prompt. Its mean acceptance weighs by its steps, which makes the total a mean over steps.
    pub fn add(&mut self, row: &PromptRow) {
        self.responses += 1;
        self.steps += u64::from(row.rounds);
        self.draft_tokens += u64::from(row.draft_tokens);
        self.new_tokens += u64::from(row.new_tokens);
        self.new_bytes += u64::from(row.new_bytes);
        self.ngram_hits += u64::from(row.ngram_hits);
        if row.acceptance_rate.is_finite() {
            self.acceptance_sum += row.acceptance_rate * f64::from(row.rounds);
            self.acceptance_steps += f64::from(row.rounds);
        }
    }

    /// Adds the sums of other prompts.
    pub fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.steps += other.steps;
        self.draft_tokens += other.draft_tokens;
        self.new_tokens += other.new_tokens;
        self.new_bytes += other.new_bytes;
        self.ngram_hits += other.ngram_hits;
        self.acceptance_sum += other.acceptance_sum;
        self.acceptance_steps += other.acceptance_steps;
    }

    /// Acceptance rate; `None` without speculative steps.
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.acceptance_steps > 0.0).then(|| self.acceptance_sum / self.acceptance_steps)
    }

    /// Generated tokens per step; `None` without steps.
    pub fn block_efficiency(&self) -> Option<f64> {
        per_step(self.new_tokens, self.steps)
    }

    /// Bytes of text per step, which compares targets whose tokens differ in length; `None` without
    /// steps.
    pub fn bytes_per_step(&self) -> Option<f64> {
        per_step(self.new_bytes, self.steps)
    }

    /// Accepted n-grams per step; `None` without steps.
    pub fn ngram_hits_per_step(&self) -> Option<f64> {
        per_step(self.ngram_hits, self.steps)
    }

    /// Mean draft tokens per step, the k of the modelled speedup; `None` without steps.
    pub fn draft_length(&self) -> Option<f64> {
        per_step(self.draft_tokens, self.steps)
    }
}

fn per_step(count: u64, steps: u64) -> Option<f64> {
    (steps > 0).then(|| count as f64 / steps as f64)
}

/// Tokens and seconds of an arm and of plain decoding on the same prompt or prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timing {
    /// Tokens generated by the arm.
    pub tokens: f64,
    /// Seconds of decoding by the arm.
    pub seconds: f64,
    /// Tokens generated by plain decoding.
    pub baseline_tokens: f64,
    /// Seconds of plain decoding.
    pub baseline_seconds: f64,
}

impl Timing {
    /// Adds another prompt's numbers.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.seconds += other.seconds;
        self.baseline_tokens += other.baseline_tokens;
        self.baseline_seconds += other.baseline_seconds;
    }

    /// Tokens per second over tokens per second; `None` when a quantity is zero or not finite.
    pub fn speedup(&self) -> Option<f64> {
        let value = (self.tokens / self.seconds) / (self.baseline_tokens / self.baseline_seconds);
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// Measured speedup as the ratio of totals over all prompts.
///
/// ```
/// use runner::results::stats::{Timing, speedup};
/// let prompt = |tokens, seconds, baseline_seconds| Timing {
///     tokens,
///     seconds,
///     baseline_tokens: tokens,
///     baseline_seconds,
/// };
/// // 40 tokens in 2 s against 4 s: a long response that gains weighs more than a short one that loses.
/// assert_eq!(speedup(&[prompt(30.0, 1.0, 3.0), prompt(10.0, 1.0, 1.0)]), Some(2.0));
/// ```
pub fn speedup(prompts: &[Timing]) -> Option<f64> {
    let mut total = Timing::default();
    for prompt in prompts {
        total.add(prompt);
    }
    total.speedup()
}

/// Lower and upper end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Paired percentile bootstrap of [`speedup`]: prompts are drawn with replacement, each with both of its timings, and
/// the middle 95% of the resampled ratios is returned. `None` with fewer than two prompts.
pub fn bootstrap_speedup(prompts: &[Timing], resamples: usize, seed: u64) -> Option<Interval> {
    if prompts.len() < 2 {
        return None;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut ratios: Vec<f64> = (0..resamples)
        .filter_map(|_| {
            let mut total = Timing::default();
            for _ in 0..prompts.len() {
                total.add(&prompts[rng.random_range(0..prompts.len())]);
            }
            total.speedup()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    Some(Interval {
        low: quantile(&ratios, 0.025)?,
        high: quantile(&ratios, 0.975)?,
    })
}

/// The q-quantile of sorted values, linear between neighbours.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let position = q * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    let fraction = position - position.floor();
    Some(sorted[below] + fraction * (sorted[above] - sorted[below]))
}

/// Speedup that `block_efficiency` tokens per step would give if a step cost one target step and
/// `draft_length` drafter steps of `ratio` target steps each.
///
/// ```
/// // 2.25 tokens per step, k = 4, a drafter step costing an eighth of a target step.
/// assert_eq!(runner::results::stats::modelled_speedup(2.25, 4.0, 0.125), 1.5);
/// ```
pub fn modelled_speedup(block_efficiency: f64, draft_length: f64, ratio: f64) -> f64 {
    block_efficiency / (1.0 + draft_length * ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::StepLatency;

    fn prompt(tokens: f64, seconds: f64, baseline_seconds: f64) -> Timing {
        Timing {
            tokens,
            seconds,
            baseline_tokens: tokens,
            baseline_seconds,
        }
    }

    #[test]
    fn acceptance_is_a_mean_over_steps_not_over_tokens() {
        // 1/1 and 0/4: the mean over steps is 0.5, over tokens it would be 0.2.
        assert_eq!(acceptance_rate([(4, 1, 1), (4, 4, 0)]), 0.5);
        assert!(acceptance_rate([(0, 0, 0)]).is_nan());
        assert!(acceptance_rate([]).is_nan());
    }

    #[test]
    fn speedup_pairs_different_lengths() {
        // 100 tokens/s against 50 tokens/s, although plain decoding generated fewer tokens.
        let timing = Timing {
            tokens: 200.0,
            seconds: 2.0,
            baseline_tokens: 100.0,
            baseline_seconds: 2.0,
        };
        assert_eq!(speedup(&[timing]), Some(2.0));
        assert_eq!(speedup(&[]), None);
        assert_eq!(speedup(&[Timing::default()]), None);
    }

    #[test]
    fn the_interval_of_equal_prompts_is_a_point() {
        let prompts = [prompt(10.0, 1.0, 1.5); 8];
        let interval = bootstrap_speedup(&prompts, 200, 1).unwrap();
        assert!((interval.low - 1.5).abs() < 1e-12 && (interval.high - 1.5).abs() < 1e-12);
        assert_eq!(bootstrap_speedup(&prompts[..1], 200, 1), None);
    }

    #[test]
    fn the_interval_covers_what_the_theory_says() {
        // Seconds alternate between 1 and 2 per 10 tokens against 3: ratio 3 / mean(seconds). Over 100 prompts the
        // mean of the seconds is 1.5 with standard error 0.05, so the 95% interval is about 3/1.598 to 3/1.402.
        let prompts: Vec<_> = (0..100)
            .map(|i| prompt(10.0, 1.0 + f64::from(i % 2), 3.0))
            .collect();
        let interval = bootstrap_speedup(&prompts, BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED).unwrap();
        assert!((interval.low - 1.877).abs() < 0.02, "{interval:?}");
        assert!((interval.high - 2.140).abs() < 0.02, "{interval:?}");
        let again = bootstrap_speedup(&prompts, BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED).unwrap();
        assert_eq!(interval, again);
    }

    #[test]
    fn quantiles_by_hand() {
        let values = [1.0, 2.0, 3.0, 5.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        assert_eq!(quantile(&values, 1.0), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn modelled_speedup_of_the_paper() {
        // 2.19 tokens per step at k = 4 on Table 8's latencies: 2.19 / (1 + 4 * 0.0713).
        let value = modelled_speedup(2.19, 4.0, StepLatency::paper().ratio());
        assert!((value - 1.7038).abs() < 1e-3, "{value}");
        assert_eq!(modelled_speedup(1.0, 0.0, 0.07), 1.0);
    }
}
