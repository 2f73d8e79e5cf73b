//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod alignment;
mod beside;
mod classes;
mod common;
mod context;
mod errors;
mod features;
mod library;
mod pieces;
mod pieces_support;
mod shared;
mod vocabulary;
