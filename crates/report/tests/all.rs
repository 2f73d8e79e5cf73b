//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod figures;
mod paper;
mod report;
#[path = "../../results/tests/support/mod.rs"]
mod support;
