//! Models, batches and measures for the tests of training.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part"
)]

#[path = "../../../lm/tests/golden_support/mod.rs"]
mod golden_support;

use std::collections::BTreeMap;
use std::path::Path;

use lm::{Checkpoint, HostTensor, LmConfig, random_checkpoint};

pub use golden_support::*;

/// Largest relative deviation between two f32 implementations, in Euclidean norm.
pub const TOLERANCE: f64 = 1e-4;

/// A small shape whose width and vocabulary are no multiples of a block.
pub fn config(model_type: &str, tied: bool, kv_heads: usize) -> LmConfig {
    let json = serde_json::json!({
        "model_type": model_type, "hidden_size": 24, "intermediate_size": 44,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": kv_heads,
        "head_dim": 6, "vocab_size": 67, "tie_word_embeddings": tied,
    });
    LmConfig::from_json(&json.to_string(), Path::new("config.json")).unwrap()
}

/// Random weights with deviations large enough that every path carries gradient.
pub fn lively(config: &LmConfig) -> Checkpoint {
    let mut checkpoint = random_checkpoint(config, 5);
    for (i, tensor) in checkpoint.tensors.values_mut().enumerate() {
        for (j, x) in tensor.data.iter_mut().enumerate() {
            *x = *x * 6.0 + ((i * 31 + j * 17) % 13) as f32 * 0.01 - 0.06;
        }
    }
    checkpoint
}

/// Sequences shorter and longer than a block of query rows.
pub fn batch() -> Vec<Vec<u32>> {
    [9, 70, 1, 131]
        .iter()
        .enumerate()
        .map(|(i, len)| {
            (0..*len)
                .map(|j| ((i * 29 + j * j * 7 + j) % 67) as u32)
                .collect()
        })
        .collect()
}

pub fn slices(batch: &[Vec<u32>]) -> Vec<&[u32]> {
    batch.iter().map(Vec::as_slice).collect()
}

/// Euclidean distance of the two over the norm of the second, over all tensors of the first.
pub fn relative_error(ours: &Checkpoint, expected: &BTreeMap<String, HostTensor>) -> f64 {
    let (mut difference, mut length) = (0.0, 0.0);
    for (name, tensor) in &ours.tensors {
        for (a, b) in tensor.data.iter().zip(&expected[name].data) {
            difference += f64::from(a - b).powi(2);
            length += f64::from(*b).powi(2);
        }
    }
    (difference / length).sqrt()
}

/// Tensors of a golden file under the names of the weights; tied heads only once.
pub fn reference(golden: &Golden, file: &str) -> BTreeMap<String, HostTensor> {
    lm::read_safetensors(&golden.folder.join(file)).unwrap()
}
