//! Llama and Qwen2 decoders: training in Burn on any device, decoding through a seam that a CPU
//! engine of our own fills, Hugging Face checkpoints in and out.
//!
//! - [`LmConfig`] is `config.json` without optional fields.
//! - [`Checkpoint`] is a model on the host under Hugging Face tensor names; everything else
//!   converts from and to it. [`Checkpoint::pad_layers`] makes it dearer without changing it.
//! - [`Transformer`] is the Burn module: grouped-query attention, rotary embeddings (Llama-3
//!   scaling included), biases and tied embeddings where the architecture has them.
//! - [`Trainer`] trains on the host, without a graph; [`Transformer`] on any Burn device.
//! - [`Adapter`] is what a drafter learnt for one target as low-rank matrices (LoRA).
//! - [`DecodeEngine`] is the seam the speculative loop sees: logits of *all* given positions and a
//!   KV cache that truncates, both needed to verify drafts (Algorithm 1). [`CpuEngine`] is the fast
//!   one, [`BurnEngine`] the oracle.
//!
//! Invariant: a forward after any truncation gives what a fresh forward over the same tokens
//! gives.

mod checkpoint;
mod config;
mod cpu;
mod engine;
mod error;
mod init;
mod lora;
mod model;
mod names;
mod optim;
mod oracle;
mod pad;
mod rope;
mod train;

pub use checkpoint::{Checkpoint, HostTensor, StoredType, read_safetensors, write_safetensors};
pub use config::{Architecture, LmConfig, RopeScaling};
pub use cpu::{
    Compact, CpuEngine, EngineOptions, KernelChoice, MemoryProbe, MemoryUse, PackedWeights,
    WeightType,
};
pub use engine::DecodeEngine;
pub use error::LmError;
pub use init::random_checkpoint;
pub use lora::{ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapter, LoraConfig, Projection, Projections};
pub use model::{Block, KvCache, Transformer};
pub use names::{expected_tensors, in_layer};
pub use optim::{AdamW, AdamWConfig, Moments};
pub use oracle::BurnEngine;
pub use train::{AdapterState, Graded, NextToken, Objective, Scored, Trainer};
