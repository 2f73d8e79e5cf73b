//! Draft length: policies that decide after how many draft tokens the target verifies.
//!
//! A longer draft pays if it is accepted, and costs drafter steps and verified positions if it is
//! not. A policy may look at the draft and at the drafter's state, but never at the target's draws
//! of the round, so no policy changes the distribution of the output.
//!
//! | policy | stops | needs |
//! |---|---|---|
//! | [`spec_decode::ConstantLength`] | after k tokens, as in the paper's tables | |
//! | [`Heuristic`] | two tokens later after a draft accepted whole, one earlier otherwise | |
//! | [`Confidence`] | once the drafter's own probability of the draft is below a threshold | |
//! | [`EntropyBound`] | once `1 - sqrt(scale H(q))` is below a threshold (AdaEDL, arXiv 2410.18351) | |
//! | [`AcceptanceStop`] | once `1 - prod P(accept_i) > gamma` (Eq. 6 and 7) | a [`Head`] |
//! | [`Throughput`] | once one more token lowers the expected tokens per second | [`Costs`], perhaps a [`Head`] |
//!
//! [`CopyOrDraft`] replaces a policy's draft by looked-up earlier text, or puts such text in front
//! of it, if that promises more.
//!
//! [`Controller`] decides by measured seconds if the drafter drafts at all, with which weights, and
//! if it learns. [`Controlled`] holds a policy to its decisions.
//!
//! The head is trained by [`HeadTrainer`] on labels min(1, p / q') by a weighted cross-entropy (as
//! in SpecDec++, arXiv 2405.19715; the paper gives it no number), which [`LabelRecorder`] collects
//! under any policy; [`labels`] defines them across vocabularies. Algorithm 3 (joint) is
//! [`HeadTrainer::step_on_fresh`] with every distillation step, Algorithm 4 (interleaved)
//! [`HeadTrainer::step_on_buffer`] between them.
//!
//! ```
//! use adaptive_draft::Heuristic;
//! use spec_decode::DraftPolicy;
//!
//! let mut policy = Heuristic::new(4, 1..=8)?;
//! assert_eq!(policy.next_len(), 4);
//! policy.adapt(true);
//! assert_eq!(policy.next_len(), 6);
//! policy.adapt(false);
//! assert_eq!(policy.next_len(), 5);
//! # Ok::<(), adaptive_draft::PolicyError>(())
//! ```
//!
//! Invariants: lengths stay within their bounds. With the same probabilities a draft is never
//! longer under a stricter threshold. This crate reads no clock ([`MeasuredCosts`] and
//! [`Controller`] are given the seconds of finished rounds) and draws at random only from named
//! streams.

mod acceptance;
mod confidence;
mod controller;
mod copying;
mod costs;
mod entropy;
mod features;
mod head;
mod heuristic;
mod label_recorder;
mod labels;
mod measured;
mod throughput;

use std::path::PathBuf;

pub use acceptance::AcceptanceStop;
pub use confidence::Confidence;
pub use controller::{
    Agreed, Answer, Controlled, Controller, ControllerConfig, Ledger, RoundCost, Standing, Way,
};
pub use copying::{CopyOrDraft, CopyRecord, Replay};
pub use costs::Costs;
pub use entropy::EntropyBound;
pub use features::{DraftSignal, SCALARS, write_features};
pub use head::{Example, Head, HeadConfig, HeadReport, HeadScratch, HeadTrainer};
pub use heuristic::Heuristic;
pub use label_recorder::LabelRecorder;
pub use labels::{Label, labels};
pub use measured::{Forwards, MeasuredCosts, SharedCosts, SharedStep};
pub use throughput::{Chain, Plan, Score, Throughput};

/// Invalid settings of a policy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The bounds hold no length or include 0, or the start is outside them.
    #[error("draft length {start} is outside {low}..={high}, or that is empty")]
    Bounds {
        /// First draft length.
        start: usize,
        /// Shortest length.
        low: usize,
        /// Longest length.
        high: usize,
    },
    /// A threshold is outside `[0, 1]`.
    #[error("threshold {0} is outside 0..=1")]
    Threshold(f64),
    /// A factor is not positive.
    #[error("scale {0} must be positive")]
    Scale(f64),
    /// A number cannot be a cost.
    #[error("costs: {key} = {value} is not a cost")]
    Costs {
        /// Name of the cost.
        key: &'static str,
        /// The number; NaN if it is missing.
        value: f64,
    },
}

/// Error of reading, writing or training a head.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// Error of the file or the optimiser.
    #[error(transparent)]
    Lm(#[from] lm::LmError),
    /// A file lacks a part of the head.
    #[error("{path}: tensor `{tensor}` of an acceptance head is missing")]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: &'static str,
    },
    /// Parts do not fit together.
    #[error("{path}: tensor `{tensor}` has size {found}, expected {expected}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: &'static str,
        /// Size or rank in the file.
        found: usize,
        /// Size or rank that the other parts imply.
        expected: usize,
    },
}

fn at_least_one(longest: usize) -> Result<(), PolicyError> {
    if longest > 0 {
        return Ok(());
    }
    Err(PolicyError::Bounds {
        start: 0,
        low: 1,
        high: longest,
    })
}
