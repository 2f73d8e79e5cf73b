//! To be written.

pub mod pretrain;
pub mod report;
pub mod results;
pub mod streams;
