//! Hugging Face tensor names and the shapes that a configuration implies.
//!
//! In memory every projection is a separate tensor under the names of Llama. Some families store
//! several of them as one, or all of them under a prefix; [`stored`] and [`canonical`] translate.

use std::borrow::Cow;

use crate::config::{Architecture, LmConfig, Norms, QkNorm};

/// The embedding, `[vocab_size, hidden_size]`.
pub const EMBEDDING: &str = "model.embed_tokens.weight";
/// The norm after the last block, `[hidden_size]`.
pub const FINAL_NORM: &str = "model.norm.weight";
/// The output head if it is not the embedding, `[vocab_size, hidden_size]`.
pub const HEAD: &str = "lm_head.weight";

/// Full name of a tensor inside block `layer`.
pub fn in_layer(layer: usize, part: &str) -> String {
    format!("model.layers.{layer}.{part}")
}

impl Norms {
    /// Their names inside a block: of the norm before attention, after it, before the MLP, and
    /// after it, `[hidden_size]` each; `None` for norms that the family lacks.
    pub fn names(self) -> [Option<&'static str>; 4] {
        let input = Some("input_layernorm.weight");
        let between = Some("post_attention_layernorm.weight");
        let before_mlp = Some("pre_feedforward_layernorm.weight");
        let last = Some("post_feedforward_layernorm.weight");
        match self {
            Self::Before => [input, None, between, None],
            Self::After => [None, between, None, last],
            Self::Around => [input, between, before_mlp, last],
        }
    }
}

/// Tensors of one block with their shapes in memory, `[out, in]` for projections. Matrices with the
/// same input follow each other.
fn block_tensors(config: &LmConfig) -> Vec<(&'static str, Vec<usize>)> {
    let (d, f) = (config.hidden_size, config.intermediate_size);
    let (q, kv) = (config.q_width(), config.kv_width());
    let norms = config.block.norms.names();
    let norms = norms.map(|name| name.map(|name| (name, vec![d])));
    let [attention_in, attention_out, mlp_in, mlp_out] = norms;
    let biases = config.block.biases;
    let mut tensors = Vec::from_iter(attention_in);
    tensors.extend([
        ("self_attn.q_proj.weight", vec![q, d]),
        ("self_attn.k_proj.weight", vec![kv, d]),
        ("self_attn.v_proj.weight", vec![kv, d]),
        ("self_attn.o_proj.weight", vec![d, q]),
    ]);
    if biases.qkv {
        tensors.extend([
            ("self_attn.q_proj.bias", vec![q]),
            ("self_attn.k_proj.bias", vec![kv]),
            ("self_attn.v_proj.bias", vec![kv]),
        ]);
    }
    if biases.out {
        tensors.push(("self_attn.o_proj.bias", vec![d]));
    }
    if let Some((of_queries, of_keys)) = match config.block.qk_norm {
        QkNorm::None => None,
        QkNorm::Head => Some((config.head_dim, config.head_dim)),
        QkNorm::Full => Some((q, kv)),
    } {
        tensors.push(("self_attn.q_norm.weight", vec![of_queries]));
        tensors.push(("self_attn.k_norm.weight", vec![of_keys]));
    }
    tensors.extend(attention_out);
    tensors.extend(mlp_in);
    tensors.extend([
        ("mlp.gate_proj.weight", vec![f, d]),
        ("mlp.up_proj.weight", vec![f, d]),
        ("mlp.down_proj.weight", vec![d, f]),
    ]);
    if biases.mlp {
        tensors.extend([
            ("mlp.gate_proj.bias", vec![f]),
            ("mlp.up_proj.bias", vec![f]),
            ("mlp.down_proj.bias", vec![d]),
        ]);
    }
    tensors.extend(mlp_out);
    tensors
}

impl LmConfig {
    /// Number of parameters; a tied head counts once.
    pub fn num_params(&self) -> usize {
        expected_tensors(self)
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum()
    }
}

/// Every tensor of the architecture with its shape in memory, `[out, in]` for projections.
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

/// The initial value of every element of a tensor: that of a unit norm, or zero for a bias. `None`
/// for matrices, whose elements are drawn.
pub(crate) fn constant_start(config: &LmConfig, name: &str) -> Option<f32> {
    if name.ends_with("norm.weight") {
        Some(config.unit_norm())
    } else if name.ends_with(".bias") {
        Some(0.0)
    } else {
        None
    }
}

/// The matrix that holds the projection `name` and others in the files of some families: its name,
/// the index of the projection's first row, and its number of rows.
pub(crate) fn fused(config: &LmConfig, name: &str) -> Option<(String, usize, usize)> {
    let (q, kv) = (config.q_width(), config.kv_width());
    let (qkv, f) = (q + 2 * kv, config.intermediate_size);
    let parts = [
        ("self_attn.q_proj.", "self_attn.qkv_proj.", 0, qkv),
        ("self_attn.k_proj.", "self_attn.qkv_proj.", q, qkv),
        ("self_attn.v_proj.", "self_attn.qkv_proj.", q + kv, qkv),
        ("mlp.gate_proj.", "mlp.gate_up_proj.", 0, 2 * f),
        ("mlp.up_proj.", "mlp.gate_up_proj.", f, 2 * f),
    ];
    let mut parts = parts.into_iter();
    let (part, whole, first, rows) = parts.find(|(part, ..)| name.contains(part))?;
    Some((name.replace(part, whole), first, rows))
}

/// Name, after `canonical`, of the tensor that holds `name` in a file of the family, in which one
/// matrix may hold several projections.
pub fn stored(config: &LmConfig, name: &str) -> String {
    let fused = match config.architecture {
        Architecture::Phi3 => fused(config, name),
        _ => None,
    };
    fused.map_or_else(|| name.to_owned(), |(whole, ..)| whole)
}

/// The name of a file's tensor without the prefixes of models that contain other models too. `None`
/// for tensors that are not weights of the text model: those of the other models, and tables of
/// rotary frequencies, which the configuration implies.
pub(crate) fn canonical<'a>(config: &LmConfig, name: &'a str) -> Option<Cow<'a, str>> {
    if name.ends_with("rotary_emb.inv_freq") {
        return None;
    }
    if config.architecture != Architecture::Gemma3 {
        return Some(Cow::Borrowed(name));
    }
    let beside = ["vision_tower.", "multi_modal_projector."];
    let inner = name.strip_prefix("model.").unwrap_or(name);
    if beside.iter().any(|prefix| inner.starts_with(prefix)) {
        return None;
    }
    if let Some(rest) = name.strip_prefix("model.language_model.") {
        return Some(Cow::Owned(format!("model.{rest}")));
    }
    let own = name.strip_prefix("language_model.").unwrap_or(name);
    Some(Cow::Borrowed(own))
}
