//! The `omnidraft` program.
//!
//! ```text
//! stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record -> report
//! ```
//!
//! The loop itself is crate `online`; what an experiment is, crate `experiment`; who runs which job
//! when, crate `jobs`; pages from rows, crate `report`. Here are the commands ([`cli`]), one job's
//! run ([`execute`]), and what the program is built from ([`build`]).

pub mod build;
pub mod cli;
pub mod execute;
