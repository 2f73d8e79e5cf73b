//! Shapes of known models. With random weights they take the time of the real ones.

use crate::{LmConfig, LmError};

/// Name; numbers of layers, hidden size, inner size, heads, heads of keys and values, vocabulary,
/// positions.
const SHAPES: [(&str, [usize; 7]); 6] = [
    ("llama-68m", [2, 768, 3072, 12, 12, 32000, 2048]),
    ("llama-242m", [12, 1024, 2816, 16, 8, 49152, 2048]),
    ("tinyllama-1.1b", [22, 2048, 5632, 32, 4, 32000, 2048]),
    ("qwen2.5-1.5b", [28, 1536, 8960, 12, 2, 151_936, 32768]),
    ("llama-2-7b", [32, 4096, 11008, 32, 32, 32000, 4096]),
    ("llama-3-8b", [32, 4096, 14336, 32, 8, 128_256, 8192]),
];

/// The configuration of a known model; `None` for any other name.
///
/// # Errors
/// None for the names of this list.
pub fn known_shape(name: &str) -> Option<Result<LmConfig, LmError>> {
    let (_, shape) = SHAPES.iter().find(|(known, _)| *known == name)?;
    let [layers, hidden, inner, heads, kv_heads, vocab, positions] = *shape;
    let theta = if positions > 4096 {
        500_000.0
    } else {
        10_000.0
    };
    let json = serde_json::json!({
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        "rope_theta": theta,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false,
    });
    Some(LmConfig::from_json(&json.to_string(), "(shape)".as_ref()))
}

/// Names of all known shapes.
pub fn shape_names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(name, _)| *name)
}
