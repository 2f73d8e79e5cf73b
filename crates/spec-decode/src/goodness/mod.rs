//! Goodness of fit of samples to a distribution: the G-test, and buckets for the outcomes of a
//! language model.
//!
//! The null distribution is known (it is the target's own, computed by teacher forcing), so this is
//! a one-sample test. There is no noise of a reference sample, and no bucket depends on the data
//! that is tested.

mod chi2;
mod partition;

use std::fmt;

pub use chi2::chi2_tail;
pub use partition::Partition;

/// Least expected count of a bucket for the chi-square approximation. It is twice the customary 5.
pub const LEAST_EXPECTED: f64 = 10.0;

/// Result of a G-test (likelihood ratio test) of counts against a known distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GTest {
    /// G = 2 sum O ln(O / E), chi-square distributed under the null distribution.
    pub g: f64,
    /// Degrees of freedom: buckets less one.
    pub degrees: usize,
    /// Probability of a G at least this large under the null distribution; 0 if an impossible
    /// outcome was observed.
    pub p_value: f64,
}

impl fmt::Display for GTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            g,
            degrees,
            p_value,
        } = self;
        write!(
            f,
            "G = {g:.1}, {degrees} degrees of freedom, p = {p_value:.3e}"
        )
    }
}

/// Tests `counts` against `law`, the probabilities of the buckets, which sum to 1.
///
/// Buckets with an expected count below [`LEAST_EXPECTED`] are pooled into one. It is tested like
/// the others, unless its own expected count is as small and nothing was observed in it.
pub fn g_test(counts: &[u64], law: &[f64]) -> GTest {
    let samples = counts.iter().sum::<u64>() as f64;
    let mut pooled = (0.0, 0.0);
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(law.len());
    for (&count, &p) in counts.iter().zip(law) {
        let (observed, expected) = (count as f64, p * samples);
        if expected < LEAST_EXPECTED {
            pooled = (pooled.0 + observed, pooled.1 + expected);
        } else {
            kept.push((observed, expected));
        }
    }
    if pooled.0 > 0.0 || pooled.1 >= LEAST_EXPECTED {
        kept.push(pooled);
    }
    let degrees = kept.len().saturating_sub(1);
    let terms = kept.iter().filter(|&&(observed, _)| observed > 0.0);
    let g: f64 = terms.map(|&(o, e)| 2.0 * o * (o / e).ln()).sum();
    GTest {
        g,
        degrees,
        p_value: chi2_tail(g, degrees),
    }
}

/// Holm's step-down correction. It selects the hypotheses to reject so that any of them is rejected
/// wrongly with probability at most `alpha`, whatever their dependence. Returns true for each
/// rejected one.
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut rejected = vec![false; p_values.len()];
    for (rank, &index) in order.iter().enumerate() {
        if p_values[index] > alpha / (p_values.len() - rank) as f64 {
            break;
        }
        rejected[index] = true;
    }
    rejected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_by_hand() {
        // 2 (60 ln 1.2 + 40 ln 0.8) = 4.027; the 5% quantile of chi-square with 1 degree is 3.841.
        let test = g_test(&[60, 40], &[0.5, 0.5]);
        assert!((test.g - 4.0271).abs() < 1e-3, "{test}");
        assert_eq!(test.degrees, 1);
        assert!(test.p_value < 0.05 && test.p_value > 0.04, "{test}");
    }

    #[test]
    fn small_buckets_are_pooled_and_impossible_outcomes_are_fatal() {
        let law = [0.5, 0.45, 0.02, 0.03];
        assert_eq!(g_test(&[50, 45, 3, 2], &law).degrees, 2);
        assert_eq!(g_test(&[500, 450, 20, 30], &law).degrees, 3);
        let impossible = g_test(&[50, 45, 5], &[0.5, 0.5, 0.0]);
        assert_eq!(impossible.p_value, 0.0, "{impossible}");
    }

    #[test]
    fn holm_by_hand() {
        // Thresholds 0.0125, 0.0167, 0.025, 0.05 in order of size.
        let p = [0.04, 0.01, 0.015, 0.03];
        assert_eq!(holm(&p, 0.05), [false, true, true, false]);
        assert!(holm(&[], 0.05).is_empty());
    }
}
