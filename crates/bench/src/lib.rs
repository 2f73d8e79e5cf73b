//! Measurements: the decode engine, rounds, padding, costs, and a test that the output has the
//! target's distribution.
//!
//! - [`mod@bench`]: speed of the engine, of rounds and of learning on this machine.
//! - [`lawtest`]: a test that the output of a pair has the target's distribution.
//! - [`pad`]: padding that gives two small models the paper's ratio of step times.
//! - [`doctor`]: a measurement of whether speculation pays with this pair, with advice.
//! - [`costs`]: costs of drafting and verifying in an experiment.

pub mod args;
pub mod bench;
pub mod costs;
pub mod doctor;
pub mod lawtest;
pub mod pad;

use args::{DataArgs, flag, print, print_as};
