//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.
#![cfg(feature = "gpu")]

mod engine;
#[path = "../../lm/tests/golden_support/mod.rs"]
mod golden_support;
mod goldens;
mod support;
