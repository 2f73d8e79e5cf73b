//! Measurements: the decode engine, rounds, padding, costs, and whether the output follows the
//! target's law.
//!
//! - [`mod@bench`]: what engine, rounds and learning reach on this machine.
//! - [`lawtest`]: is a pair's output the target's?
//! - [`pad`]: padding that gives two small models the paper's ratio of step times.
//! - [`doctor`]: will speculation pay, here, with this pair, and what to change.
//! - [`costs`]: what drafting and verifying cost in an experiment.

pub mod args;
pub mod bench;
pub mod costs;
pub mod doctor;
pub mod lawtest;
pub mod pad;

use args::{DataArgs, flag, print};
