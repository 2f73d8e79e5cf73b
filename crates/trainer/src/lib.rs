#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! Online distillation updates a drafter every few prompts (Algorithm 2) and the model zoo is
//! trained on plain processors. An automatic-differentiation graph spends most of such a step
//! outside matrix products: fresh pages for every intermediate, transposed copies, element-wise
//! passes. Here every sequence is one task on one thread with buffers that are used again,
//! sequences are ragged instead of padded, and only the logits an [`Objective`] asks for exist.
//! Matrix products are those of [`lm::host`], row kernels run on [`cpu_engine::Vectors`].

mod activations;
mod attention;
mod backend;
mod block;
#[cfg(feature = "wgpu")]
pub mod device;
mod elementwise;
mod layout;
mod low_rank;
mod objective;
mod pass;
mod tail;
mod trainer;

pub use backend::{Backend, Device, Step};
pub use objective::{Graded, Marked, NextToken, Objective, Scored, Unlikelihood};
pub use tail::TailTrainer;
pub use trainer::{AdapterState, Trainer};
