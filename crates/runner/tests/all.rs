//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod bench;
mod cli;
mod docs;
mod docs_support;
mod features;
mod gpu;
mod house;
mod hub_models;
#[path = "../../hub/tests/hub_support/mod.rs"]
mod hub_support;
mod jobs;
mod query;
mod results;
