//! The n-gram term L_N-gram: likelihood of the draft tokens that spell an accepted n-gram
//! (section 3.2, Eq. 4).

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

use crate::LossError;

/// Negative log-likelihood of `labels` under the drafter's full vocabulary.
///
/// # Shapes
/// - `student`: `[tokens, draft_vocab]`, the logits that predict each label
/// - `labels`: `[tokens]`, draft tokens of n-grams
/// - output: `[tokens]`, nats
///
/// # Errors
/// [`LossError::Shape`] if the row counts differ.
pub fn negative_log_likelihood(
    student: Tensor<2>,
    labels: Tensor<1, Int>,
) -> Result<Tensor<1>, LossError> {
    let rows = student.dims()[0];
    LossError::same_shape("negative_log_likelihood", [rows], labels.dims())?;
    let picked = log_softmax(student, 1).gather(1, labels.unsqueeze_dim::<2>(1));
    Ok(picked.squeeze_dim::<1>(1).neg())
}
