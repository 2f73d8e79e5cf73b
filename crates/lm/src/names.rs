//! Hugging Face tensor names and the shapes a configuration implies.

use crate::LmConfig;

/// The embedding, `[vocab_size, hidden_size]`.
pub const EMBEDDING: &str = "model.embed_tokens.weight";
/// The norm behind the last block, `[hidden_size]`.
pub const FINAL_NORM: &str = "model.norm.weight";
/// The output head where it is not the embedding, `[vocab_size, hidden_size]`.
pub const HEAD: &str = "lm_head.weight";

/// Full name of a tensor inside block `layer`.
pub fn in_layer(layer: usize, part: &str) -> String {
    format!("model.layers.{layer}.{part}")
}

/// Tensors of one block with their shapes as stored, `[out, in]` for projections.
pub(crate) fn block_tensors(config: &LmConfig) -> Vec<(&'static str, Vec<usize>)> {
    let (d, f) = (config.hidden_size, config.intermediate_size);
    let (q, kv) = (config.q_width(), config.kv_width());
    let mut tensors = vec![
        ("input_layernorm.weight", vec![d]),
        ("self_attn.q_proj.weight", vec![q, d]),
        ("self_attn.k_proj.weight", vec![kv, d]),
        ("self_attn.v_proj.weight", vec![kv, d]),
        ("self_attn.o_proj.weight", vec![d, q]),
    ];
    if config.qkv_bias {
        tensors.extend([
            ("self_attn.q_proj.bias", vec![q]),
            ("self_attn.k_proj.bias", vec![kv]),
            ("self_attn.v_proj.bias", vec![kv]),
        ]);
    }
    tensors.extend([
        ("post_attention_layernorm.weight", vec![d]),
        ("mlp.gate_proj.weight", vec![f, d]),
        ("mlp.up_proj.weight", vec![f, d]),
        ("mlp.down_proj.weight", vec![d, f]),
    ]);
    tensors
}

/// Every tensor of the architecture with its shape as stored, `[out, in]` for projections.
pub fn expected_tensors(config: &LmConfig) -> Vec<(String, Vec<usize>)> {
    let d = config.hidden_size;
    let mut tensors = vec![(EMBEDDING.to_owned(), vec![config.vocab_size, d])];
    for layer in 0..config.num_layers {
        let block = block_tensors(config).into_iter();
        tensors.extend(block.map(|(part, shape)| (in_layer(layer, part), shape)));
    }
    tensors.push((FINAL_NORM.to_owned(), vec![d]));
    if !config.tie_word_embeddings {
        tensors.push((HEAD.to_owned(), vec![config.vocab_size, d]));
    }
    tensors
}
