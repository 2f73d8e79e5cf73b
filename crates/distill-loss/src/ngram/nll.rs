//! Likelihood of the draft tokens of an accepted n-gram (section 3.2, Eq. 4).

use crate::rows::{likelihood_gradient, softmax};

/// Negative log-likelihood `-sum_j ln q_j(d_j)` under the whole draft vocabulary.
///
/// Gradient of row `j`: `q_j(i) - [i = d_j]`.
///
/// # Shapes
/// - `logits`: `[labels, draft_vocab]`, row `j` predicts `labels[j]`; replaced by `weight` times
///   the gradient
///
/// # Panics
/// If the rows do not fit the labels or a label is no column.
pub fn ngram_likelihood(logits: &mut [f32], labels: &[u32], weight: f64) -> f64 {
    let width = logits.len() / labels.len().max(1);
    assert_eq!(width * labels.len(), logits.len(), "a row for every label");
    let mut loss = 0.0;
    for (row, label) in logits.chunks_exact_mut(width.max(1)).zip(labels) {
        loss -= softmax(row, *label as usize);
        likelihood_gradient(row, *label as usize, weight);
    }
    loss
}
