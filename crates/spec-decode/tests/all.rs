//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod cases;
mod common;
mod contexts;
mod engines;
mod enumeration;
mod faults;
mod goodness;
mod greedy;
mod law;
mod on_device;
mod padding;
mod real_tokenizers;
mod session;
mod sparse;
mod together;
