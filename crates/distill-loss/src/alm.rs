//! Approximate likelihood matching (Minixhofer, Ponti and Vulic, arXiv 2503.20083): the likelihood
//! of aligned chunks of text, in whatever tokens.

use crate::rows::{likelihood_gradient, softmax};

/// Log-likelihoods above minus this are treated as minus this: a chunk that is all but certain
/// would divide by zero.
const LEAST: f64 = 1e-6;

/// A binarised KL with its derivative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinarisedKl {
    /// The KL, in nats.
    pub value: f64,
    /// Its derivative by the log-likelihood under the drafter.
    pub slope: f64,
}

/// Binarised KL of one chunk and its derivative by `log_q`.
///
/// With `a = p^(1/tau)` and `b = q^(1/tau)`: `a ln(a / b) + (1 - a) ln((1 - a) / (1 - b))`, and
/// `d/d ln q = (b - a) / (tau (1 - b))`. Large `tau` looks at ratios of log-likelihoods, `tau = 1`
/// at the likelihoods themselves.
///
/// - `log_q`, `log_p`: log-likelihoods of the chunk, at most 0
/// - `tau`: positive
pub fn binarised_kl(log_q: f64, log_p: f64, tau: f64) -> BinarisedKl {
    let u = (log_q / tau).min(-LEAST);
    let v = (log_p / tau).min(-LEAST);
    let (not_b, not_a) = (-u.exp_m1(), -v.exp_m1());
    let a = v.exp();
    BinarisedKl {
        value: a * (v - u) + not_a * (not_a / not_b).ln(),
        slope: (not_a - not_b) / (tau * not_b),
    }
}

/// [`binarised_kl`] between the drafter's and the target's likelihood of a chunk of text.
///
/// Gradient of row `j`: that of `binarised_kl` by `ln q` times `[i = labels_j] - q_j(i)`.
///
/// # Shapes
/// - `logits`: `[labels, draft_vocab]`, row `j` predicts `labels[j]`; replaced by `weight` times
///   the gradient
/// - `log_p`: the target's log-likelihood of the same text
///
/// # Panics
/// If the rows do not fit the labels or a label is no column.
pub fn alm(logits: &mut [f32], labels: &[u32], log_p: f64, tau: f64, weight: f64) -> f64 {
    let width = logits.len() / labels.len().max(1);
    assert_eq!(width * labels.len(), logits.len(), "a row for every label");
    let mut log_q = 0.0;
    for (row, label) in logits.chunks_exact_mut(width.max(1)).zip(labels) {
        log_q += softmax(row, *label as usize);
    }
    let BinarisedKl { value, slope } = binarised_kl(log_q, log_p, tau);
    for (row, label) in logits.chunks_exact_mut(width.max(1)).zip(labels) {
        likelihood_gradient(row, *label as usize, -weight * slope);
    }
    value
}
