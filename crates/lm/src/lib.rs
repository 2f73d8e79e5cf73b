#![doc = include_str!("../README.md")]

mod checkpoint;
mod config;
mod engine;
mod error;
mod fused;
pub mod host;
mod init;
mod lora;
mod names;
mod optim;
mod pad;
mod reference;
mod weight_type;

pub use checkpoint::{Checkpoint, HostTensor, StoredType, read_safetensors, write_safetensors};
pub use config::{
    Activation, Architecture, Biases, Block, Layer, LmConfig, Norms, QkNorm, Rope, RopeScaling,
    Rotary,
};
pub use engine::{DecodeEngine, check_call};
pub use error::LmError;
pub use init::random_checkpoint;
pub use lora::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapted, Adapter, LoraConfig, Projection, Projections, adapted,
};
pub use names::{
    EMBEDDING, FINAL_NORM, HEAD, NormNames, Stored, canonical, constant_start, expected_tensors,
    in_layer, stored,
};
pub use optim::{AdamW, AdamWConfig, Moments};
pub use reference::ReferenceEngine;
pub use weight_type::WeightType;
