//! Log-probabilities for requests that want them.

use vocab_align::{TargetId, TokenId};

use crate::request::LogProbs;

/// Log-probabilities of a token and of the `top` most probable ones.
pub(super) fn log_probs(token: TargetId, logits: &[f32], top: usize) -> LogProbs {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    let shift = f64::from(most) + sum.ln();
    let of = |logit: f32| (f64::from(logit) - shift) as f32;
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let larger = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize], logits[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    let top = top.min(order.len());
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by(top - 1, larger);
    }
    order.truncate(top);
    order.sort_by(larger);
    let best = order
        .into_iter()
        .map(|id| (TargetId::new(id), of(logits[id as usize])));
    LogProbs {
        own: of(logits
            .get(token.index())
            .copied()
            .unwrap_or(f32::NEG_INFINITY)),
        top: best.collect(),
    }
}
