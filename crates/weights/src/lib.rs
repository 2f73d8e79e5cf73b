#![doc = include_str!("../README.md")]

mod encoding;
mod error;
mod file;
mod folder;
mod gguf;
mod safetensors;
mod tensor;
mod torch;

pub use encoding::Encoding;
pub use error::WeightsError;
pub use file::is_pointer;
pub use folder::{Format, TensorFiles, gguf_parts, has_gguf};
pub use gguf::GgufValue;
pub use tensor::{RowBuffer, StoredTensor};
