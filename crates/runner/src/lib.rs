//! To be written.
pub mod report;
pub mod results;
