//! Choice between looked-up text, drafts, or both: each round takes what promises the most tokens
//! for its time.

mod policy;
mod record;

pub use policy::CopyOrDraft;
pub use record::{CopyRecord, Replay};
