//! The acceptance rate itself as the objective (LK losses: Samarin et al., arXiv 2602.23881).
//!
//! A draft token is accepted with probability `alpha = sum_i min(p_i, q_i)`, which determines the
//! speed of decoding; a divergence only bounds it.

use crate::math::{exp, maximum, transform};

/// Acceptance rates below this are treated as this in [`log_acceptance`], which keeps its gradient
/// finite where the two distributions hardly overlap.
const LEAST: f64 = 1e-6;

/// Rejection rate `1 - sum_i min(p_i, q_i)`.
///
/// Subgradient: with `u = sum_j q_j [q_j < p_j]`, `q_i (u - [q_i < p_i])`; where `q_i = p_i` it
/// takes the side on which `min` is constant.
///
/// # Shapes
/// - `logits`: `[shared]`, replaced by `weight` times the gradient
/// - `teacher`: `[shared]`, `ln p`; overwritten
///
/// # Panics
/// If the lengths differ.
pub fn acceptance(logits: &mut [f32], teacher: &mut [f32], weight: f64) -> f64 {
    1.0 - descend(logits, teacher, |_| weight)
}

/// Negative logarithm of the acceptance rate, `-ln sum_i min(p_i, q_i)`: the same direction as
/// [`acceptance`], larger where acceptance is low.
///
/// # Shapes
/// As [`acceptance`].
///
/// # Panics
/// As [`acceptance`].
pub fn log_acceptance(logits: &mut [f32], teacher: &mut [f32], weight: f64) -> f64 {
    let alpha = descend(logits, teacher, |alpha| weight / alpha.max(LEAST));
    -alpha.max(LEAST).ln()
}

/// Returns the acceptance rate and leaves `weight(alpha)` times the gradient of its negative.
fn descend(logits: &mut [f32], teacher: &mut [f32], weight: impl FnOnce(f64) -> f64) -> f64 {
    assert_eq!(logits.len(), teacher.len(), "a law over other columns");
    let shift = crate::log_sum_exp(logits);
    let max = maximum(logits);
    let rest = (shift - f64::from(max)) as f32;
    let [alpha, below] = transform(logits, teacher, |x, log_p| {
        let (q, p) = (exp(x - max - rest), exp(log_p));
        let under = if q < p { 1.0 } else { 0.0 };
        let least = if q < p { q } else { p };
        (q, under, [least, q * under])
    });
    let (factor, below) = (weight(alpha) as f32, below as f32);
    for (q, under) in logits.iter_mut().zip(teacher) {
        *q *= factor * (below - *under);
    }
    alpha
}
