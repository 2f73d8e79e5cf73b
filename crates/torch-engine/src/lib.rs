#![doc = include_str!("../README.md")]

mod engine;
mod error;
mod frame;
mod options;
mod process;
mod torch;

pub use engine::TorchEngine;
pub use error::{ModelFault, TorchError};
pub use options::{Dtype, Interpreter, TorchOptions, UnknownDtype};
pub use torch::{Facts, Torch};
