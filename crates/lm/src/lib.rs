#![doc = include_str!("../README.md")]

mod checkpoint;
mod config;
mod error;
mod gguf;
mod gguf_keys;
mod gguf_write;
pub mod host;
mod init;
mod lora;
mod names;
mod optim;
mod pad;
mod reference;
mod shapes;
mod source;
mod stored;
mod tail;
mod weight_type;
mod write;

pub use checkpoint::{Checkpoint, HostTensor, StoredType};
pub use config::{
    Activation, Architecture, Biases, Block, Layer, LmConfig, Norms, QkNorm, Rope, RopeScaling,
    Rotary, is_inert,
};
pub use engine::{
    Alternative, DeviceLogits, LanguageModel, ModelError, check_call, conformance, forward_to_inner,
};
pub use error::LmError;
pub use gguf_write::{GgufType, check_gguf, write_gguf};
pub use init::{RandomWeights, random_checkpoint};
pub use lora::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapted, Adapter, LoraConfig, Projection, Projections, adapted,
};
pub use names::{EMBEDDING, FINAL_NORM, HEAD, expected_tensors, in_layer, stored};
pub use optim::{AdamW, AdamWConfig, AdamWStep, Moments};
pub use reference::ReferenceEngine;
pub use shapes::{known_shape, shape_names};
pub use source::{RowBuffer, TensorSource};
pub use stored::StoredCheckpoint;
pub use tail::{Tail, first_of_last, tail_tensors};
pub use weight_type::{Device, EngineSettings, KvType, UnknownDevice, WeightType};
pub use weights::saturated_half;
pub use write::{read_safetensors, write_model, write_safetensors};
