//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod launchers;
mod local;
mod processes;
mod support;
