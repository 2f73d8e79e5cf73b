//! Forward KL, one of the losses of online speculative decoding (Liu et al., arXiv 2310.07177).

use multiversion::multiversion;

use crate::math::{exp, maximum, transform};

/// Forward KL `sum_i p_i (ln p_i - ln q_i)`.
///
/// `p` is not normalised over the row: if most of the target's mass is on tokens that the drafter
/// does not have, the row has little weight. With `P = sum p` the gradient is `P q_i - p_i`.
///
/// # Shapes
/// - `logits`: `[shared]`, replaced by `weight` times the gradient
/// - `teacher`: `[shared]`, `ln p`; overwritten
///
/// # Panics
/// If the lengths differ.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub fn forward_kl(logits: &mut [f32], teacher: &mut [f32], weight: f64) -> f64 {
    assert_eq!(logits.len(), teacher.len(), "a law over other columns");
    let max = maximum(logits);
    let [sum, mass, mixed] = transform(logits, teacher, |x, log_p| {
        let (e, p) = (exp(x - max), exp(log_p));
        (e, p, [e, p, p * (log_p - (x - max))])
    });
    let (of_q, of_p) = ((weight * mass / sum) as f32, weight as f32);
    for (e, p) in logits.iter_mut().zip(teacher) {
        *e = of_q * *e - of_p * *p;
    }
    mixed + mass * sum.ln()
}
