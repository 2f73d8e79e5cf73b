//! The direct-mapping term L_DM: reverse KL on the shared tokens (section 3.2, Eq. 3).

use burn::tensor::Tensor;
use burn::tensor::activation::log_softmax;

use crate::LossError;

/// Reverse KL, `KL(q' || p)`, of the drafter's law lifted to target tokens.
///
/// `q'` is the drafter's softmax over the shared tokens only, as drafting uses it (other tokens are
/// suppressed there); `p` is the target's law at the same tokens. `p` need not sum to one over
/// them: since `q'` does, the missing mass shifts the value by a constant without a gradient.
///
/// # Shapes
/// - `student`: `[positions, shared]`, the drafter's logits of the shared tokens
/// - `teacher`: `[positions, shared]`, log-probabilities of the target at those tokens
/// - output: `[positions]`, nats
///
/// # Errors
/// [`LossError::Shape`] if the two differ in shape.
pub fn reverse_kl(student: Tensor<2>, teacher: Tensor<2>) -> Result<Tensor<1>, LossError> {
    LossError::same_shape("reverse_kl", student.dims(), teacher.dims())?;
    let log_q = log_softmax(student, 1);
    Ok((log_q.clone().exp() * (log_q - teacher))
        .sum_dim(1)
        .squeeze_dim::<1>(1))
}
