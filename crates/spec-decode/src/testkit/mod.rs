//! Fake models, toy tokenizers and exhaustive enumeration, for tests here and in other crates.
//!
//! The module is no part of the method. It is public only so that integration tests can use it.

mod enumerate;
mod models;
mod toy;

pub use enumerate::{Oracle, law_of};
pub use models::{FakeModel, RowFn, hashed_rows, text_rows};
pub use toy::{ToyVocab, toy_pair};
