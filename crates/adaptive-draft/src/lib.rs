//! How many tokens to draft before asking the target.
//!
//! Drafting more pays while drafts are accepted and costs drafter steps when they are not. These
//! policies decide from what is known without training:
//!
//! - [`Heuristic`]: two tokens more after a round that was accepted whole, one less otherwise;
//! - [`Confidence`]: at most k tokens, ended early once the drafter's own probability of the whole
//!   draft falls below a threshold.
//!
//! The constant k of the paper's tables is [`spec_decode::ConstantLength`]. The paper's learned
//! rule (Eq. 5, stop when `1 - prod P(accept_i) > gamma`) has the form of [`Confidence`] with
//! predicted acceptance in place of the drafter's probability.
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
//! Invariants: lengths stay within their bounds; a draft is never longer than under a lower
//! threshold with the same probabilities.

mod confidence;
mod heuristic;

pub use confidence::Confidence;
pub use heuristic::Heuristic;

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
}
