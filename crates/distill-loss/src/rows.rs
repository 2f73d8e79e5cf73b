//! Softmax over one row.

use multiversion::multiversion;

use crate::math::{BLOCK, exp, map_sum, maximum};

/// `ln sum_i e^(x_i)`; minus infinity for an empty row.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let max = maximum(row);
    if max == f32::NEG_INFINITY {
        return f64::from(max);
    }
    let mut buffer = [0.0; BLOCK];
    let sums = row.chunks(BLOCK).map(|block| {
        let copy = &mut buffer[..block.len()];
        copy.copy_from_slice(block);
        map_sum(copy, |x| exp(x - max))
    });
    f64::from(max) + sums.sum::<f64>().ln()
}

/// Replaces logits by probabilities; returns `ln q(label)`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub(crate) fn softmax(row: &mut [f32], label: usize) -> f64 {
    let picked = row[label];
    let max = maximum(row);
    let sum = map_sum(row, |x| exp(x - max));
    let share = (1.0 / sum) as f32;
    for x in row {
        *x *= share;
    }
    f64::from(picked) - f64::from(max) - sum.ln()
}

/// Turns the probabilities of [`softmax`] into the gradient of `-weight * ln q(label)`:
/// `weight * (q_i - [i = label])`.
pub(crate) fn likelihood_gradient(probs: &mut [f32], label: usize, weight: f64) {
    let weight = weight as f32;
    for q in probs.iter_mut() {
        *q *= weight;
    }
    probs[label] -= weight;
}
