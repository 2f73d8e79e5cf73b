//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod datasets;
mod downloads;
mod hub_support;
mod models;
mod published;
mod support;
mod tasks;
