//! Log-probabilities for requests that want them.

use trace::{largest, log_sum_exp};
use vocab_align::{TargetId, TokenId};

use crate::request::LogProbs;

/// Log-probabilities of a token and of the `top` most probable ones.
pub(super) fn log_probs(token: TargetId, logits: &[f32], top: usize) -> LogProbs {
    let shift = log_sum_exp(logits);
    let of = |token: TargetId| {
        let logit = logits.get(token.index()).copied();
        (f64::from(logit.unwrap_or(f32::NEG_INFINITY)) - shift) as f32
    };
    let best = largest(logits, top).into_iter().map(TargetId::new);
    LogProbs {
        own: of(token),
        top: best.map(|token| (token, of(token))).collect(),
    }
}
