//! Copy, draft, or both: per round, what promises the most tokens for its time.

mod policy;
mod record;

pub use policy::CopyOrDraft;
pub use record::CopyRecord;
