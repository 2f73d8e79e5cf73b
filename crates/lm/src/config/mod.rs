//! A decoder as data: `config.json` as Hugging Face writes it, converted to a description of every
//! block that has no optional fields whose meaning an engine would have to guess.

mod families;
mod keys;
mod read;
mod read_rope;
mod rope;
mod write;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::LmError;

pub use keys::is_inert;
pub use rope::{Rope, RopeScaling};

/// Families of decoders, by `model_type`. The family determines how files are read and written; the
/// other fields of [`LmConfig`] determine what is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Llama 1 to 3, Vicuna, TinyLlama, SmolLM 1 and 2.
    Llama,
    /// Mistral: Llama with a window.
    Mistral,
    /// Qwen2 and Qwen2.5: biases on the query, key and value projections.
    Qwen2,
    /// Qwen3 without experts: norms on queries and keys.
    Qwen3,
    /// Phi-3 and Phi-4: fused projections in the files, partial rotation.
    Phi3,
    /// Gemma 2: norms around both halves of a block, soft caps.
    Gemma2,
    /// The text model of Gemma 3.
    #[serde(rename = "gemma3_text")]
    Gemma3,
    /// SmolLM3: layers without rotation.
    SmolLM3,
    /// OLMo 2: norms after attention and after the MLP.
    Olmo2,
    /// Granite 3 without experts: four multipliers.
    Granite,
}

/// Positions of the RMS norms of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Norms {
    /// Before attention and before the MLP.
    Before,
    /// After them, before the result is added to the residual stream.
    After,
    /// Before and after.
    Around,
}

/// RMS norm of queries and keys before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QkNorm {
    /// No norm.
    None,
    /// Every head by itself, with one weight of `[head_dim]` for all heads.
    Head,
    /// All heads together, with a weight over the whole projection.
    Full,
}

/// Activation of the MLP's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x * Phi(x)` with the normal distribution function.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

/// Projections with a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The output of attention.
    pub out: bool,
    /// Gate, up and down.
    pub mlp: bool,
}

/// Features that all blocks of a model share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Block {
    /// Positions of the norms.
    pub norms: Norms,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Biases of the projections.
    pub biases: Biases,
    /// Activation of the MLP.
    pub activation: Activation,
    /// Factor of the products of queries and keys.
    pub attention_scale: f32,
    /// Soft cap of the scores: if there is one, scores `s` become `cap * tanh(s / cap)`.
    pub attention_cap: Option<f32>,
    /// Factor of the outputs of attention and MLP before they are added to the residual stream.
    pub residual_scale: f32,
}

/// Rotation of queries and keys of a layer by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotary {
    /// Rotation by [`LmConfig::rope`].
    Global,
    /// Rotation by [`LmConfig::local_rope`].
    Local,
    /// No rotation.
    None,
}

/// Features that differ from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Attention window: a position attends to itself and the `window - 1` positions before it.
    /// `None` for all positions before it.
    pub window: Option<usize>,
    /// Its rotation.
    pub rotary: Rotary,
}

/// Configuration of a decoder. The vocabulary size is the model's (rows of the embedding), which
/// may exceed the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LmConfig {
    /// Family of the decoder.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_layers: usize,
    /// Number of query heads.
    pub num_heads: usize,
    /// Number of key/value heads; it divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Number of rows of the embedding.
    pub vocab_size: usize,
    /// Longest context of the training, in tokens.
    pub max_position_embeddings: usize,
    /// Number added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// True if norms multiply by `1 + weight` instead of by `weight`.
    pub norm_offset: bool,
    /// Rotation of queries and keys.
    pub rope: Rope,
    /// Rotation of the layers that use a local one: those with a window, in Gemma 3.
    pub local_rope: Option<Rope>,
    /// Factor of the rows of the embedding.
    pub embedding_scale: f32,
    /// Divisor of the logits.
    pub logit_divisor: f32,
    /// Soft cap of the divided logits: if there is one, logits `x` become `cap * tanh(x / cap)`.
    pub logit_cap: Option<f32>,
    /// Features of all blocks.
    pub block: Block,
    /// Features of each layer, from the first on. The last entry also holds for all later layers.
    /// Never empty.
    pub layers: Vec<Layer>,
    /// True if the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Token that opens a text, if any.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text.
    pub eos_token_ids: Vec<u32>,
}

impl LmConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`LmError::Config`] names the key that is missing, malformed, inconsistent or not
    /// understood, or an architecture that is not known; [`LmError::Io`] a file that cannot be
    /// read.
    pub fn from_file(path: &Path) -> Result<Self, LmError> {
        let text = std::fs::read_to_string(path).map_err(LmError::io(path))?;
        Self::from_json(&text, path)
    }

    /// Width of the query projection.
    pub fn q_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Width of the key projection, and of the value projection.
    pub fn kv_width(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Features of a layer.
    pub fn layer(&self, layer: usize) -> Layer {
        let known = self.layers.get(layer).or(self.layers.last());
        known.copied().unwrap_or(Layer {
            window: None,
            rotary: Rotary::Global,
        })
    }

    /// The rotation of a layer; `None` if it has none.
    pub fn rope_of(&self, layer: usize) -> Option<&Rope> {
        match self.layer(layer).rotary {
            Rotary::None => None,
            Rotary::Global => Some(&self.rope),
            Rotary::Local => self.local_rope.as_ref(),
        }
    }

    /// Largest number of tokens for which positions are defined: `max_position_embeddings`, or the
    /// length to which the rotation's scaling stretches it, if that is more.
    pub fn max_context(&self) -> usize {
        self.max_position_embeddings.max(self.rope.stretched())
    }

    /// The weight of a norm that scales by one.
    pub fn unit_norm(&self) -> f32 {
        if self.norm_offset { 0.0 } else { 1.0 }
    }

    /// Checks that there is a backward pass for every feature of the model.
    ///
    /// # Errors
    /// [`LmError::NotTrainable`] names the first feature without one.
    pub fn check_trainable(&self) -> Result<(), LmError> {
        let Block {
            norms,
            qk_norm,
            activation,
            attention_cap,
            residual_scale,
            ..
        } = &self.block;
        let mut ropes = std::iter::once(&self.rope).chain(&self.local_rope);
        let absent = [
            (*norms != Norms::Before, "norms after attention and MLP"),
            (self.norm_offset, "norms that multiply by 1 + weight"),
            (*qk_norm == QkNorm::Full, "norms over all query heads"),
            (*activation != Activation::Silu, "an activation but SiLU"),
            (attention_cap.is_some(), "soft caps on attention scores"),
            (self.logit_cap.is_some(), "soft caps on logits"),
            (*residual_scale != 1.0, "a residual multiplier"),
            (self.embedding_scale != 1.0, "an embedding multiplier"),
            (self.logit_divisor != 1.0, "a scale of the logits"),
            (
                ropes.any(|rope| rope.scaling.depends_on_context()),
                "a rotation that depends on the length of the context",
            ),
        ];
        match absent.into_iter().find(|(present, _)| *present) {
            None => Ok(()),
            Some((_, feature)) => Err(LmError::NotTrainable {
                model_type: self.model_type(),
                feature,
            }),
        }
    }

    /// True for a decoder that has only the features of Llama and Qwen2: one norm before attention
    /// and before the MLP, full rotation by the global rope with an attention factor of 1 (YaRN and
    /// LongRoPE may have another), no window, biases only on queries, keys and values. Its scores
    /// may have any scale. It can be trained.
    pub fn is_plain(&self) -> bool {
        let plain = |layer: &Layer| layer.window.is_none() && layer.rotary == Rotary::Global;
        let Biases { out, mlp, .. } = self.block.biases;
        self.check_trainable().is_ok()
            && self.block.qk_norm == QkNorm::None
            && !out
            && !mlp
            && self.layers.iter().all(plain)
            && self.rope.dims == self.head_dim
            && self.rope.attention_factor() == 1.0
    }
}
