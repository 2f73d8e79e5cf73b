//! The `omnidraft` program.
//!
//! ```text
//! stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record -> report
//! ```
//!
//! The loop itself is in crate `online`, the schema of experiments in crate `experiment`, the
//! scheduling of jobs in crate `jobs`, and pages from rows in crate `report`. Here are the commands
//! ([`cli`]), the run of a job ([`execute`]), questions about rows ([`query`]), and the facts of the
//! build ([`build`]).

pub mod build;
pub mod cli;
pub mod execute;
pub mod query;
