//! L_DM as the likelihood of what the target said (Table 6).

use crate::rows::{likelihood_gradient, softmax};

/// Negative log-likelihood `-ln q(label)` over the columns of the row.
///
/// Gradient: `q_i - [i = label]`.
///
/// # Shapes
/// - `logits`: `[columns]`, replaced by `weight` times the gradient
///
/// # Panics
/// If `label` is no column.
pub fn negative_log_likelihood(logits: &mut [f32], label: usize, weight: f64) -> f64 {
    let log_q = softmax(logits, label);
    likelihood_gradient(logits, label, weight);
    -log_q
}
