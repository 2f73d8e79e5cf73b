//! Models for the tests of training.

use std::path::Path;

use lm::{Checkpoint, LmConfig, random_checkpoint};

/// A small shape with a width and a vocabulary that no block divides.
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
