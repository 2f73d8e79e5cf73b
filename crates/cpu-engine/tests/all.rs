//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod cpu_correct;
mod cpu_invariant;
mod cpu_memory;
mod cpu_oracle;
mod cpu_support;
#[path = "../../lm/tests/golden_support/mod.rs"]
mod golden_support;
mod goldens;
mod padding;
mod states;
