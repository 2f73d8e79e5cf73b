//! The command line: what bad input is told, with exit status 2 and nothing left behind that looks
//! complete.

mod beginning;
mod benchmarks;
mod commands;
mod experiments;
mod export;
mod launchers;
#[cfg(feature = "serve")]
mod learn;
mod models;
#[cfg(feature = "serve")]
mod serving;
mod stand_ins;
pub mod support;
mod torch;
mod trace;
