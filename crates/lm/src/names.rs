//! Hugging Face tensor names and the shapes a configuration implies.

use crate::LmConfig;

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const FINAL_NORM: &str = "model.norm.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

/// Full name of a tensor inside block `layer`.
pub fn in_layer(layer: usize, part: &str) -> String {
    format!("model.layers.{layer}.{part}")
}

/// Every tensor of the architecture with its shape as stored, `[out, in]` for projections.
pub fn expected_tensors(config: &LmConfig) -> Vec<(String, Vec<usize>)> {
    let (d, f) = (config.hidden_size, config.intermediate_size);
    let (q, kv) = (config.q_width(), config.kv_width());
    let mut tensors = vec![(EMBEDDING.to_owned(), vec![config.vocab_size, d])];
    for layer in 0..config.num_layers {
        let mut add =
            |part: &str, shape: &[usize]| tensors.push((in_layer(layer, part), shape.to_vec()));
        add("input_layernorm.weight", &[d]);
        add("self_attn.q_proj.weight", &[q, d]);
        add("self_attn.k_proj.weight", &[kv, d]);
        add("self_attn.v_proj.weight", &[kv, d]);
        add("self_attn.o_proj.weight", &[d, q]);
        if config.qkv_bias {
            add("self_attn.q_proj.bias", &[q]);
            add("self_attn.k_proj.bias", &[kv]);
            add("self_attn.v_proj.bias", &[kv]);
        }
        add("post_attention_layernorm.weight", &[d]);
        add("mlp.gate_proj.weight", &[f, d]);
        add("mlp.up_proj.weight", &[f, d]);
        add("mlp.down_proj.weight", &[d, f]);
    }
    tensors.push((FINAL_NORM.to_owned(), vec![d]));
    if !config.tie_word_embeddings {
        tensors.push((HEAD.to_owned(), vec![config.vocab_size, d]));
    }
    tensors
}
