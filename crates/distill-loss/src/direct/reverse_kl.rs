//! Reverse KL, the paper's L_DM (section 3.2, Eq. 4).

use multiversion::multiversion;

use crate::math::{exp, maximum, transform};

/// Reverse KL `KL(q || p) = sum_i q_i (ln q_i - ln p_i)`.
///
/// Mass of `p` outside the row shifts the value by a constant without a gradient, since `q` sums to
/// one over the row. Gradient: `q_i (ln q_i - ln p_i - KL)`.
///
/// # Shapes
/// - `logits`: `[shared]`, replaced by `weight` times the gradient
/// - `teacher`: `[shared]`, `ln p`, finite; overwritten
///
/// # Panics
/// If the lengths differ.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub fn reverse_kl(logits: &mut [f32], teacher: &mut [f32], weight: f64) -> f64 {
    assert_eq!(logits.len(), teacher.len(), "a law over other columns");
    let max = maximum(logits);
    // e and d with q = e / sum and ln q - ln p = d - ln sum.
    let [sum, mixed] = transform(logits, teacher, |x, log_p| {
        let (e, d) = (exp(x - max), x - max - log_p);
        (e, d, [e, e * d])
    });
    let mean = mixed / sum;
    let (factor, mean_f32) = ((weight / sum) as f32, mean as f32);
    for (e, d) in logits.iter_mut().zip(teacher) {
        *e *= factor * (*d - mean_f32);
    }
    mean - sum.ln()
}
