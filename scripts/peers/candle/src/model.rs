//! A Llama decoder out of candle's operations, with logits of all positions and a cache that can be
//! cut back; the decoders that come with candle return the last position only.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::{Linear, ops, rotary_emb};
use serde::Deserialize;

/// How projections are stored.
#[derive(Debug, Clone, Copy)]
pub enum Storage {
    Dense(DType),
    Quantised(GgmlDType),
}

impl Storage {
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "f32" => Self::Dense(DType::F32),
            "bf16" => Self::Dense(DType::BF16),
            "q8_0" => Self::Quantised(GgmlDType::Q8_0),
            "q4_0" => Self::Quantised(GgmlDType::Q4_0),
            _ => bail!("--weights {name}: one of f32, bf16, q8_0, q4_0"),
        })
    }

    /// Of everything between projections.
    fn activations(self) -> DType {
        match self {
            Self::Dense(dtype) => dtype,
            Self::Quantised(_) => DType::F32,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    rms_norm_eps: f32,
    rope_theta: f32,
    vocab_size: usize,
}

enum Projection {
    Dense(Linear),
    Quantised(Arc<QTensor>, QMatMul),
}

impl Projection {
    fn new(weight: &Tensor, storage: Storage) -> Result<Self> {
        Ok(match storage {
            Storage::Dense(dtype) => Self::Dense(Linear::new(weight.to_dtype(dtype)?, None)),
            Storage::Quantised(dtype) => {
                let weight = Arc::new(QTensor::quantize(&weight.to_dtype(DType::F32)?, dtype)?);
                Self::Quantised(weight.clone(), QMatMul::from_arc(weight)?)
            }
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Dense(linear) => linear.forward(x)?,
            Self::Quantised(_, matrix) => matrix.forward(x)?,
        })
    }
}

/// Projections of the same input, in candle's fused call where it has one for them.
fn together<const N: usize>(projections: [&Projection; N], x: &Tensor) -> Result<[Tensor; N]> {
    let quantised: Vec<&QTensor> = projections
        .iter()
        .filter_map(|p| match p {
            Projection::Quantised(weight, _) => Some(weight.as_ref()),
            Projection::Dense(_) => None,
        })
        .collect();
    let mut outputs = None;
    if quantised.len() == N {
        outputs = QTensor::gemv_fused_shared_lhs(&quantised, x)?;
    }
    let outputs = match outputs {
        Some(outputs) => outputs,
        None => projections
            .iter()
            .map(|p| p.forward(x))
            .collect::<Result<_>>()?,
    };
    outputs
        .try_into()
        .map_err(|_| anyhow::anyhow!("a projection is missing"))
}

struct Block {
    attention_norm: Tensor,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    ffn_norm: Tensor,
    gate: Projection,
    up: Projection,
    down: Projection,
    /// `[1, capacity, key-value heads, head_dim]`, f32.
    keys: Tensor,
    values: Tensor,
}

/// A model with its KV cache.
pub struct Model {
    config: Config,
    storage: Storage,
    embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Projection,
    cos: Tensor,
    sin: Tensor,
    capacity: usize,
    len: usize,
}

impl Model {
    /// Reads `config.json` and `model.safetensors` of an untied Llama; room for `capacity` tokens.
    pub fn load(folder: &Path, storage: Storage, capacity: usize) -> Result<Self> {
        let path = folder.join("config.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let config: Config = serde_json::from_str(&text)?;
        let device = &Device::Cpu;
        let mut tensors: HashMap<String, Tensor> =
            candle_core::safetensors::load(folder.join("model.safetensors"), device)?;
        let mut take = |name: &str| tensors.remove(name).with_context(|| name.to_owned());
        let dtype = storage.activations();
        let (kv_heads, dim) = (config.num_key_value_heads, config.head_dim);
        let mut blocks = Vec::new();
        for i in 0..config.num_hidden_layers {
            let mut tensor = |name: &str| take(&format!("model.layers.{i}.{name}.weight"));
            blocks.push(Block {
                attention_norm: tensor("input_layernorm")?.to_dtype(dtype)?,
                query: Projection::new(&tensor("self_attn.q_proj")?, storage)?,
                key: Projection::new(&tensor("self_attn.k_proj")?, storage)?,
                value: Projection::new(&tensor("self_attn.v_proj")?, storage)?,
                output: Projection::new(&tensor("self_attn.o_proj")?, storage)?,
                ffn_norm: tensor("post_attention_layernorm")?.to_dtype(dtype)?,
                gate: Projection::new(&tensor("mlp.gate_proj")?, storage)?,
                up: Projection::new(&tensor("mlp.up_proj")?, storage)?,
                down: Projection::new(&tensor("mlp.down_proj")?, storage)?,
                keys: Tensor::zeros((1, capacity, kv_heads, dim), DType::F32, device)?,
                values: Tensor::zeros((1, capacity, kv_heads, dim), DType::F32, device)?,
            });
        }
        let angle = |position: usize, pair: usize| {
            position as f32 / config.rope_theta.powf(2.0 * pair as f32 / dim as f32)
        };
        let angles: Vec<f32> = (0..capacity)
            .flat_map(|p| (0..dim / 2).map(move |i| angle(p, i)))
            .collect();
        let angles = Tensor::from_vec(angles, (capacity, dim / 2), device)?;
        Ok(Self {
            embedding: take("model.embed_tokens.weight")?.to_dtype(dtype)?,
            norm: take("model.norm.weight")?.to_dtype(dtype)?,
            head: Projection::new(&take("lm_head.weight")?, storage)?,
            cos: angles.cos()?,
            sin: angles.sin()?,
            config,
            storage,
            blocks,
            capacity,
            len: 0,
        })
    }

    pub fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    /// Forgets the tokens from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Reads tokens; logits `[tokens, vocabulary]`, or of the last token only.
    pub fn forward(&mut self, ids: &[u32], last_only: bool) -> Result<Vec<f32>> {
        ensure!(self.len + ids.len() <= self.capacity, "the cache is full");
        let (m, start, eps) = (ids.len(), self.len, self.config.rms_norm_eps);
        let mut x = self
            .embedding
            .index_select(&Tensor::new(ids, &Device::Cpu)?, 0)?;
        for block in &self.blocks {
            let normed = ops::rms_norm(&x, &block.attention_norm, eps)?;
            x = (x + block.attend(&normed, start, self)?)?;
            let normed = ops::rms_norm(&x, &block.ffn_norm, eps)?;
            let [gate, up] = together([&block.gate, &block.up], &normed)?;
            x = (x + block.down.forward(&(ops::silu(&gate)? * up)?)?)?;
        }
        self.len += m;
        if last_only {
            x = x.narrow(0, m - 1, 1)?;
        }
        let logits = self.head.forward(&ops::rms_norm(&x, &self.norm, eps)?)?;
        Ok(logits.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?)
    }
}

impl Block {
    fn attend(&self, x: &Tensor, start: usize, model: &Model) -> Result<Tensor> {
        let config = &model.config;
        let (m, heads, dim) = (x.dim(0)?, config.num_attention_heads, config.head_dim);
        let [q, k, v] = together([&self.query, &self.key, &self.value], x)?;
        // Attention in f32 whatever the weights, as the decoders that come with candle do.
        let shaped = |x: Tensor, heads: usize| -> Result<Tensor> {
            Ok(x.to_dtype(DType::F32)?.reshape((1, m, heads, dim))?)
        };
        let (cos, sin) = (
            model.cos.narrow(0, start, m)?,
            model.sin.narrow(0, start, m)?,
        );
        let q = rotary_emb::rope_thd(&shaped(q, heads)?, &cos, &sin)?;
        let k = rotary_emb::rope_thd(&shaped(k, config.num_key_value_heads)?, &cos, &sin)?;
        self.keys.slice_set(&k, 1, start)?;
        self.values
            .slice_set(&shaped(v, config.num_key_value_heads)?, 1, start)?;
        let attended = flash_attn::<f32>(
            &q,
            &self.keys.narrow(1, 0, start + m)?,
            &self.values.narrow(1, 0, start + m)?,
            1.0 / (dim as f32).sqrt(),
            AttnMask::causal_with_offset(start),
            None,
            None,
        )?;
        let attended = attended
            .transpose(1, 2)?
            .reshape((m, config.num_attention_heads * dim))?;
        debug_assert_eq!(attended.dim(1)?, config.hidden_size);
        self.output
            .forward(&attended.to_dtype(model.storage.activations())?)
    }
}
