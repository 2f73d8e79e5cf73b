//! Version of a state, and the part of the drafter that learnt in it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Version of the layout of a state.
pub(crate) const FORMAT: u32 = 3;

/// The trained part of a drafter. All weights of a state have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntPart {
    /// Rank of the adapters; 0 if weights are trained.
    pub rank: usize,
    /// Number of last blocks that learn; 0 for all.
    pub blocks: usize,
}

impl fmt::Display for LearntPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.blocks) {
            (0, 0) => f.write_str("all weights"),
            (0, 1) => f.write_str("the last block"),
            (0, blocks) => write!(f, "the last {blocks} blocks"),
            (rank, 0) => write!(f, "an adapter of rank {rank}"),
            (rank, blocks) => write!(f, "an adapter of rank {rank} in the last {blocks} blocks"),
        }
    }
}
