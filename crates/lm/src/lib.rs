#![doc = include_str!("../README.md")]

mod checkpoint;
mod config;
mod engine;
mod error;
pub mod host;
mod init;
mod lora;
mod names;
mod optim;
mod pad;
mod reference;
mod weight_type;

pub use checkpoint::{Checkpoint, HostTensor, StoredType, read_safetensors, write_safetensors};
pub use config::{Architecture, LmConfig, RopeScaling};
pub use engine::{DecodeEngine, check_call};
pub use error::LmError;
pub use init::random_checkpoint;
pub use lora::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapted, Adapter, LoraConfig, Projection, Projections, adapted,
};
pub use names::{EMBEDDING, FINAL_NORM, HEAD, expected_tensors, in_layer};
pub use optim::{AdamW, AdamWConfig, Moments};
pub use reference::ReferenceEngine;
pub use weight_type::WeightType;
