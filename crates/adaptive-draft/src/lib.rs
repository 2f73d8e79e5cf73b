//! How many tokens to draft before asking the target.
//!
//! Drafting more pays while drafts are accepted and costs drafter steps and verified positions when
//! they are not. A policy may look at what has been drafted and at the drafter's state, never at
//! the target's draws of the round, so every one of them leaves the output's law as it is.
//!
//! | policy | stops | needs |
//! |---|---|---|
//! | [`spec_decode::ConstantLength`] | behind k tokens, the paper's tables | |
//! | [`Heuristic`] | two tokens later after a draft accepted whole, one earlier otherwise | |
//! | [`Confidence`] | where the drafter's own probability of the draft falls below a threshold | |
//! | [`EntropyBound`] | where `1 - sqrt(scale H(q))` does (AdaEDL, arXiv 2410.18351) | |
//! | [`AcceptanceStop`] | where `1 - prod P(accept_i) > gamma` (Eq. 6 and 7) | a [`Head`] |
//! | [`Throughput`] | where one more token lowers the expected tokens per second | [`Costs`], perhaps a [`Head`] |
//!
//! [`CopyOrDraft`] puts text that was there before in the place of a policy's draft, or in front of
//! it, where that promises more.
//!
//! [`Controller`] decides by seconds whether the drafter drafts at all, with which weights, and whether
//! it learns.
//!
//! The head is trained by [`HeadTrainer`] on labels min(1, p / q') by a weighted cross-entropy
//! (as in SpecDec++, arXiv 2405.19715; the paper gives it no number), which [`LabelRecorder`] collects whatever policy drafts; [`labels`] says what they are across
//! vocabularies. Algorithm 3 (joint) is [`HeadTrainer::step_on_fresh`] with every distillation
//! step, Algorithm 4 (interleaved) [`HeadTrainer::step_on_buffer`] between them.
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
//! Invariants: lengths stay within their bounds; a draft is never longer under a stricter
//! threshold with the same probabilities; nothing here reads a clock (but [`MeasuredCosts`] and
//! [`Controller`] take the seconds of finished rounds) or draws at random outside named streams.

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
    Agreed, Answer, Controller, ControllerConfig, Ledger, RoundCost, Standing, Way,
};
pub use copying::{CopyOrDraft, CopyRecord};
pub use costs::Costs;
pub use entropy::EntropyBound;
pub use features::{DraftSignal, SCALARS, write_features};
pub use head::{Example, Head, HeadConfig, HeadReport, HeadScratch, HeadTrainer};
pub use heuristic::Heuristic;
pub use label_recorder::LabelRecorder;
pub use labels::{Label, labels};
pub use measured::{Forwards, MeasuredCosts, SharedCosts, SharedStep};
pub use throughput::{Chain, Plan, Score, Throughput};

/// A policy that cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Bounds that hold no length, or the start outside them.
    #[error("draft length {start} is outside {low}..={high}, or that is empty")]
    Bounds {
        /// First draft length.
        start: usize,
        /// Shortest.
        low: usize,
        /// Longest.
        high: usize,
    },
    /// A threshold that is no probability.
    #[error("threshold {0} is outside 0..=1")]
    Threshold(f64),
    /// A factor that is not positive.
    #[error("scale {0} must be positive")]
    Scale(f64),
    /// A cost that cannot be one.
    #[error("costs: {key} = {value} is no cost")]
    Costs {
        /// Which one.
        key: &'static str,
        /// The number; NaN where it is missing.
        value: f64,
    },
}

/// A head that cannot be read, written or trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// File or optimiser.
    #[error(transparent)]
    Lm(#[from] lm::LmError),
    /// A file without a part of the head.
    #[error("{path}: tensor `{tensor}` of an acceptance head is missing")]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The part.
        tensor: &'static str,
    },
    /// Parts that do not fit together.
    #[error("{path}: tensor `{tensor}` has size {found}, expected {expected}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// The part.
        tensor: &'static str,
        /// Size or rank in the file.
        found: usize,
        /// What the other parts imply.
        expected: usize,
    },
}

/// Chains that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A line that cannot be one of a chain.
    #[error("{path}:{line}: {fault}")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        fault: String,
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
