//! The `omnidraft` program: streams in, speculation, learning, tables and figures out.
//!
//! ```text
//! stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record -> report
//! ```
//!
//! - [`streams`]: prompts and training text, embedded or from a folder.
//! - [`hub`]: models and streams downloaded when they are asked for.
//! - [`config`], [`learn`] and [`arm`]: what a run is, as data.
//! - [`models`]: model folders in the role their ids have.
//! - [`online`]: the loop itself (Algorithms 1 and 2 of the paper).
//! - [`results`] and [`report`]: rows, manifest; tables and figures made from them alone.
//! - [`step`]: step times of drafter and target, measured together.
//! - [`pretrain`]: small models from text.
//! - [`cli`]: the command line.

pub mod arm;
pub mod cli;
pub mod config;
pub mod hub;
pub mod learn;
pub mod models;
pub mod online;
pub mod pretrain;
pub mod report;
pub mod results;
pub mod step;
pub mod streams;
