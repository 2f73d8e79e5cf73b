//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod checkpoints;
mod controlled;
mod drafting;
mod learning;
mod lora;
mod lossless;
mod replay;
mod short_drafter;
mod support;
mod tail;
