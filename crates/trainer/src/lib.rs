#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! Online distillation updates a drafter every few prompts (Algorithm 2), and the shipped models
//! are trained on plain processors. An automatic-differentiation graph spends most of such a step
//! outside matrix products: on fresh pages for every intermediate, transposed copies, element-wise
//! passes. Here a worker reuses its buffers, sequences are ragged instead of padded, and only the
//! logits that an [`Objective`](distill_loss::Objective) asks for are computed. Matrix products are
//! those of [`lm::host`], row kernels run on [`cpu_engine::Vectors`].

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

pub use backend::{Backend, CrossEntropy, Device, Step};
pub use objective::{Marked, NextToken, Unlikelihood};
pub use tail::TailTrainer;
pub use trainer::{AdapterState, Trainer};
