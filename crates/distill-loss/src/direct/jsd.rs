//! Jensen-Shannon divergence, a mixture of both KL directions (GKD: Agarwal et al., arXiv 2306.13649;
//! for drafters, online speculative decoding: Liu et al., arXiv 2310.07177).

use crate::math::{exp, ln, maximum, transform};

/// Generalised Jensen-Shannon divergence `beta KL(p || m) + (1 - beta) KL(q || m)` with
/// `m = beta p + (1 - beta) q`; 1/2 is the symmetric one, and divided by `beta (1 - beta)` it tends
/// to the forward KL for `beta -> 0` and to the reverse KL for `beta -> 1`.
///
/// With `g_i = (1 - beta) ln(q_i / m_i)` the gradient is `q_i (g_i - sum_j q_j g_j)`; it needs no
/// normalised `p`.
///
/// # Shapes
/// - `logits`: `[shared]`, replaced by `weight` times the gradient
/// - `teacher`: `[shared]`, `ln p`; overwritten
/// - `beta`: in `(0, 1)`
///
/// # Panics
/// If the lengths differ.
pub fn jensen_shannon(logits: &mut [f32], teacher: &mut [f32], beta: f64, weight: f64) -> f64 {
    assert_eq!(logits.len(), teacher.len(), "a law over other columns");
    let max = maximum(logits);
    let log_sum = crate::log_sum_exp(logits);
    let shift = (log_sum - f64::from(max)) as f32;
    let (of_p, of_q) = (beta as f32, 1.0 - beta as f32);
    let [of_teacher, of_student] = transform(logits, teacher, |x, log_p| {
        let log_q = x - max - shift;
        // ln(m / q) = ln((1 - beta) + beta e^d), from the larger side so that nothing overflows.
        let d = log_p - log_q;
        let e = exp(-d.abs());
        let above = d > 0.0;
        let inner = if above {
            of_p + of_q * e
        } else {
            of_q + of_p * e
        };
        let log_ratio = ln(inner) + if above { d } else { 0.0 };
        let (q, p) = (exp(log_q), exp(log_p));
        (q, -log_ratio, [p * (d - log_ratio), -(q * log_ratio)])
    });
    let factor = (weight * (1.0 - beta)) as f32;
    let mean = of_student as f32;
    for (q, log_ratio) in logits.iter_mut().zip(teacher) {
        *q *= factor * (*log_ratio - mean);
    }
    beta * of_teacher + (1.0 - beta) * of_student
}
