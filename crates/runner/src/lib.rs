//! To be written.

pub mod streams;
