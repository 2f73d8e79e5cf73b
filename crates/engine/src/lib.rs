#![doc = include_str!("../README.md")]

pub mod conformance;
mod error;
mod model;

pub use error::{ModelError, check_call};
pub use model::{Alternative, DeviceLogits, LanguageModel};
