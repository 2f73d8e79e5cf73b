#![doc = include_str!("../README.md")]

mod encoding;
mod error;
mod file;
mod folder;
mod gguf;
mod gguf_write;
mod safetensors;
mod tensor;
mod torch;

pub use encoding::{BlockSize, Encoding, saturated_half};
pub use error::WeightsError;
pub use file::is_pointer;
pub use folder::{Format, TensorFiles, has_gguf};
pub use gguf::GgufValue;
pub use gguf_write::{GgufEntry, GgufTensor, gguf_head, gguf_padding};
pub use tensor::{RowBuffer, StoredTensor};
