//! Features of a draft token before the target has seen it.

use spec_decode::{largest_possible, moments};
use vocab_align::{DraftId, TokenId};

/// Number of features beside the hidden state: log q(token) and the entropy of q.
pub const SCALARS: usize = 2;

/// The drafter's own signal about a token, at temperature 1 and over its whole vocabulary. It is
/// informative even at sampling temperatures near 0, and shows if a better token was masked out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftSignal {
    /// log q(token), in nats, at most 0.
    pub log_prob: f64,
    /// H(q), in nats.
    pub entropy: f64,
}

impl DraftSignal {
    /// The signal of a token, given raw logits `[V_q]`, numbers or `-inf`. A token without a logit has
    /// probability 0.
    pub fn of(token: DraftId, logits: &[f32]) -> Self {
        let top = largest_possible(logits).unwrap_or(f32::NEG_INFINITY);
        let (total, weighted) = moments(logits, top);
        let log_total = total.ln();
        let own = logits.get(token.index()).copied();
        let own = own.map_or(f64::NEG_INFINITY, |logit| f64::from(logit - top));
        Self {
            log_prob: (own - log_total).min(0.0),
            entropy: (log_total - weighted / total).max(0.0),
        }
    }

    /// q(token).
    pub fn probability(self) -> f64 {
        self.log_prob.exp()
    }
}

/// Writes the features of a token over `out`: the hidden state it is drawn from, log q, entropy.
///
/// The state *after* the token would be more informative, but computing it costs the forward that
/// the decision is about.
pub fn write_features(signal: DraftSignal, state: &[f32], out: &mut Vec<f32>) {
    /// Lower bound of log-probabilities: smaller ones are all equally hopeless.
    const FLOOR: f64 = -20.0;
    out.clear();
    out.extend_from_slice(state);
    out.push(signal.log_prob.max(FLOOR) as f32);
    out.push(signal.entropy as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_equal_the_definition() {
        let logits: Vec<f32> = (0..1003)
            .map(|i| 9.0 * ((i * 7919 % 1003) as f32 / 1003.0).sin() - (i % 5) as f32)
            .chain([f32::NEG_INFINITY])
            .collect();
        let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        let p = |x: &f32| f64::from(*x).exp() / total;
        let entropy: f64 = logits
            .iter()
            .filter(|x| x.is_finite())
            .map(|x| -p(x) * p(x).ln())
            .sum();
        for token in [0, 17, 1002] {
            let signal = DraftSignal::of(DraftId(token), &logits);
            let expected = p(&logits[token as usize]).ln();
            assert!((signal.log_prob - expected).abs() < 1e-5, "{signal:?}");
            assert!((signal.entropy - entropy).abs() < 1e-4, "{signal:?}");
        }
        let impossible = DraftSignal::of(DraftId(1003), &logits);
        assert!(impossible.probability() < 1e-300);
        assert!(DraftSignal::of(DraftId(5000), &logits).probability() == 0.0);
    }
}
