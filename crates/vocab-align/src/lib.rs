//! Vocabulary alignment.

mod ids;

pub use ids::{DraftId, TargetId, TokenId};
