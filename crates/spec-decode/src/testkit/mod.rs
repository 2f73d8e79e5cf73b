//! Fake models, toy tokenizers and exhaustive enumeration, for tests here and in other crates.
//!
//! No part of the method: the module is public only so that integration tests can reach it.

mod enumerate;
mod models;
mod toy;

pub use enumerate::{Oracle, law_of};
pub use models::{FakeModel, RowFn, hashed_rows, text_rows};
pub use toy::{ToyVocab, toy_pair};
