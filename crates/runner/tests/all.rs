//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod bench;
mod cli;
#[cfg(unix)]
mod cluster;
mod docs;
mod docs_support;
mod features;
mod gpu;
mod house;
mod hub_models;
#[path = "../../hub/tests/hub_support/mod.rs"]
mod hub_support;
mod jobs;
#[path = "../../vocab-align/tests/pieces_support/mod.rs"]
mod pieces_support;
mod query;
mod results;
