//! `config.json` as Hugging Face writes it, turned into a configuration without optional fields.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::LmError;

/// Decoder architectures this crate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Llama 1 to 3 and Vicuna: no biases.
    Llama,
    /// Qwen2 and Qwen2.5: biases on the query, key and value projections.
    Qwen2,
}

/// Frequency scaling of rotary embeddings as Llama 3.1 defines it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// By how much the lowest frequencies are slowed down.
    pub factor: f64,
    /// Frequencies with fewer turns than this over the original context are slowed fully.
    pub low_freq_factor: f64,
    /// Frequencies with more turns than this are left alone.
    pub high_freq_factor: f64,
    /// Context length of the original training, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Shape of a decoder. Vocabulary size is the model's (rows of the embedding), which may exceed
/// the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LmConfig {
    /// Which decoder.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Longest context, in tokens.
    pub max_position_embeddings: usize,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Llama-3 frequency scaling, if any.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Biases on the query, key and value projections.
    pub qkv_bias: bool,
    /// Token that opens a text, if any.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text.
    pub eos_token_ids: Vec<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRope {
    rope_type: Option<String>,
    r#type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

#[derive(Deserialize)]
struct RawConfig {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRope>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<OneOrMany>,
}

impl LmConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`LmError::Config`] names the key that is missing, malformed or inconsistent;
    /// [`LmError::Architecture`] an architecture other than llama and qwen2.
    pub fn from_file(path: &Path) -> Result<Self, LmError> {
        let text = std::fs::read_to_string(path).map_err(LmError::io(path))?;
        Self::from_json(&text, path)
    }

    /// Parses the text of a `config.json`; `path` is used in messages only.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, LmError> {
        let error = |key: &str, message: String| LmError::Config {
            path: path.to_owned(),
            key: key.to_owned(),
            message,
        };
        let raw: RawConfig = serde_json::from_str(text).map_err(|e| {
            let message = e.to_string();
            let key = message.split('`').nth(1).unwrap_or("(file)").to_owned();
            error(&key, message)
        })?;
        let architecture = match raw.model_type.as_str() {
            "llama" => Architecture::Llama,
            "qwen2" => Architecture::Qwen2,
            other => {
                return Err(LmError::Architecture {
                    path: path.to_owned(),
                    model_type: other.to_owned(),
                });
            }
        };
        if raw.mlp_bias == Some(true) {
            return Err(error(
                "mlp_bias",
                "biases in the MLP are not supported".into(),
            ));
        }
        if let Some(act) = raw.hidden_act.as_deref().filter(|act| *act != "silu") {
            return Err(error(
                "hidden_act",
                format!("`{act}` is not supported, `silu` is"),
            ));
        }
        let rope = raw.rope_parameters.or(raw.rope_scaling);
        let config = Self {
            architecture,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            num_layers: raw.num_hidden_layers,
            num_heads: raw.num_attention_heads,
            num_kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
            head_dim: match raw.head_dim {
                Some(width) => width,
                None => raw
                    .hidden_size
                    .checked_div(raw.num_attention_heads)
                    .unwrap_or(0),
            },
            vocab_size: raw.vocab_size,
            max_position_embeddings: raw.max_position_embeddings.unwrap_or(2048),
            rms_norm_eps: raw.rms_norm_eps.unwrap_or(1e-6),
            rope_theta: raw
                .rope_theta
                .or(rope.as_ref().and_then(|r| r.rope_theta))
                .unwrap_or(10_000.0),
            rope_scaling: rope.map_or(Ok(None), |r| {
                r.scaling().map_err(|m| error("rope_scaling", m))
            })?,
            tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(false),
            qkv_bias: architecture == Architecture::Qwen2 || raw.attention_bias == Some(true),
            bos_token_id: raw.bos_token_id,
            eos_token_ids: match raw.eos_token_id {
                None => Vec::new(),
                Some(OneOrMany::One(id)) => vec![id],
                Some(OneOrMany::Many(ids)) => ids,
            },
        };
        if architecture == Architecture::Llama && raw.attention_bias == Some(true) {
            return Err(error(
                "attention_bias",
                "is supported for qwen2 only".into(),
            ));
        }
        config
            .validate()
            .map_err(|(key, message)| error(key, message))?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), (&'static str, String)> {
        let positive = [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_layers),
            ("num_attention_heads", self.num_heads),
            ("num_key_value_heads", self.num_kv_heads),
            ("head_dim", self.head_dim),
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err((key, "must be at least 1".into()));
        }
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            return Err((
                "num_key_value_heads",
                format!(
                    "{} does not divide num_attention_heads = {}",
                    self.num_kv_heads, self.num_heads
                ),
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err((
                "head_dim",
                format!("{} is odd; rotary embeddings need pairs", self.head_dim),
            ));
        }
        Ok(())
    }

    /// Width of the query projection.
    pub fn q_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Width of the key projection, and of the value projection.
    pub fn kv_width(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Number of parameters; a tied head counts once.
    pub fn num_params(&self) -> usize {
        crate::names::expected_tensors(self)
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum()
    }

    /// Rotary angles per position and pair: `angle = position * frequency`, with Llama-3 scaling
    /// applied. Length `head_dim / 2`.
    pub fn rope_frequencies(&self) -> Vec<f64> {
        let half = self.head_dim / 2;
        (0..half)
            .map(|i| {
                let frequency = self
                    .rope_theta
                    .powf(-(2.0 * i as f64) / self.head_dim as f64);
                self.rope_scaling.map_or(frequency, |s| s.apply(frequency))
            })
            .collect()
    }

    /// The JSON Hugging Face transformers loads.
    pub fn to_json(&self) -> serde_json::Value {
        let (model_type, class) = match self.architecture {
            Architecture::Llama => ("llama", "LlamaForCausalLM"),
            Architecture::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        };
        let scaling = self.rope_scaling.map(|s| {
            serde_json::json!({
                "rope_type": "llama3",
                "factor": s.factor,
                "low_freq_factor": s.low_freq_factor,
                "high_freq_factor": s.high_freq_factor,
                "original_max_position_embeddings": s.original_max_position_embeddings,
            })
        });
        let eos = match self.eos_token_ids.as_slice() {
            [] => serde_json::Value::Null,
            [one] => (*one).into(),
            many => many.into(),
        };
        serde_json::json!({
            "architectures": [class],
            "model_type": model_type,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tie_word_embeddings,
            "hidden_act": "silu",
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos,
        })
    }
}

impl RawRope {
    fn scaling(&self) -> Result<Option<RopeScaling>, String> {
        let kind = self
            .rope_type
            .as_deref()
            .or(self.r#type.as_deref())
            .unwrap_or("default");
        let need =
            |value: Option<f64>, key: &str| value.ok_or_else(|| format!("`{key}` is missing"));
        match kind {
            "default" => Ok(None),
            "llama3" => Ok(Some(RopeScaling {
                factor: need(self.factor, "factor")?,
                low_freq_factor: need(self.low_freq_factor, "low_freq_factor")?,
                high_freq_factor: need(self.high_freq_factor, "high_freq_factor")?,
                original_max_position_embeddings: self
                    .original_max_position_embeddings
                    .ok_or("`original_max_position_embeddings` is missing")?,
            })),
            other => Err(format!(
                "rope type `{other}` is not supported (default and llama3 are)"
            )),
        }
    }
}

impl RopeScaling {
    fn apply(&self, frequency: f64) -> f64 {
        let wavelength = 2.0 * std::f64::consts::PI / frequency;
        let turns = self.original_max_position_embeddings as f64 / wavelength;
        if turns < self.low_freq_factor {
            frequency / self.factor
        } else if turns > self.high_freq_factor {
            frequency
        } else {
            let smooth =
                (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
            (1.0 - smooth) * frequency / self.factor + smooth * frequency
        }
    }
}
