//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod answers;
mod lengths;
mod page;
mod refusals;
mod remote;
mod states;
mod support;
