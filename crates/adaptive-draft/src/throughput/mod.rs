//! The throughput rule: a draft continues while that raises the expected tokens per second.
//!
//! It has three parts. A [`Chain`] learns from verified rounds the transitions between scores of
//! draft tokens and the acceptance of each score. A [`Plan`] computes from the chain and the costs
//! the stopping rule with the highest long-run ratio of tokens to time. [`Throughput`] is the
//! policy that follows the plan.

mod chain;
mod file;
mod plan;
mod policy;

pub use chain::Chain;
pub use plan::Plan;
pub(crate) use policy::Scorer;
pub use policy::{Score, Throughput};

/// Upper edges of the bins of a score in `0..=1`; the last bin has none. Bins are finer at both
/// ends, where most scores are.
const EDGES: [f64; 11] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

const BINS: usize = EDGES.len() + 1;

pub(crate) fn bin_of(score: f64) -> usize {
    EDGES.iter().take_while(|edge| score > **edge).count()
}
