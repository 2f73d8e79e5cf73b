//! The losses that teach a drafter from a target with another vocabulary.
//!
//! Hybrid distillation (OmniDraft, section 3.2): `L = L_DM + lambda * L_N-gram`. Where a target
//! token has a draft token of the same text, the drafter's distribution is pulled towards the
//! target's ([`reverse_kl`], in target space on the shared tokens); where a target token is spelled
//! by several draft tokens, their likelihood is raised ([`negative_log_likelihood`], in draft
//! space). Which positions are which is decided by whoever aligns the text; this crate sees rows.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//!
//! let device = Device::flex();
//! // One position, two shared tokens; the teacher is certain of the first.
//! let student = Tensor::<2>::from_floats([[0.0, 0.0]], &device);
//! let teacher = Tensor::<2>::from_floats([[-0.01, -5.0]], &device);
//! let loss: f32 = distill_loss::reverse_kl(student, teacher)?.into_scalar();
//! // 0.5 * (ln 0.5 + 0.01) + 0.5 * (ln 0.5 + 5)
//! assert!((loss - 1.8119).abs() < 1e-3);
//! # Ok::<(), distill_loss::LossError>(())
//! ```

mod direct;
mod error;
mod hybrid;
mod ngram;

pub use direct::reverse_kl;
pub use error::LossError;
pub use hybrid::{HybridLoss, PAPER_LAMBDA};
pub use ngram::negative_log_likelihood;
