//! The decoder as a Burn module.

use std::path::Path;

use burn::module::{Module, Param};
use burn::tensor::activation::{silu, softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};
use lm::{Checkpoint, EMBEDDING, FINAL_NORM, HEAD, HostTensor, LmConfig, LmError, in_layer};

use super::rope::RopeTable;

/// One decoder block. Projections are stored `[in, out]`, so that a forward needs no transposed
/// view (which costs several times the multiplication on CPU).
#[derive(Module, Debug)]
pub struct Block {
    attn_norm: Param<Tensor<1>>,
    qkv: Param<Tensor<2>>,
    qkv_bias: Option<Param<Tensor<1>>>,
    out: Param<Tensor<2>>,
    mlp_norm: Param<Tensor<1>>,
    gate_up: Param<Tensor<2>>,
    down: Param<Tensor<2>>,
}

/// A Llama or Qwen2 decoder.
#[derive(Module, Debug)]
pub struct Transformer {
    embedding: Param<Tensor<2>>,
    blocks: Vec<Block>,
    norm: Param<Tensor<1>>,
    head: Option<Param<Tensor<2>>>,
    #[module(skip)]
    config: LmConfig,
}

/// Keys and values of the tokens seen so far, `[batch, kv_heads, positions, head_dim]` per block.
#[derive(Clone, Debug, Default)]
pub struct KvCache {
    blocks: Vec<(Tensor<4>, Tensor<4>)>,
    len: usize,
}

impl KvCache {
    /// Number of positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops every position from `len` on.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        if len == 0 {
            self.blocks.clear();
        }
        for (keys, values) in &mut self.blocks {
            *keys = keys.clone().narrow(2, 0, len);
            *values = values.clone().narrow(2, 0, len);
        }
    }
}

/// Rotation and mask of the positions that a block is given.
struct Positions<'a> {
    rope: &'a RopeTable,
    /// `[new, total]`: 0 where attention is allowed, minus infinity elsewhere.
    mask: Option<&'a Tensor<2>>,
}

impl Transformer {
    /// Builds the module on `device` from a checkpoint; every parameter requires gradients when
    /// the device is an autodiff device.
    ///
    /// # Errors
    /// Missing, misshapen or leftover tensors; [`LmError::NotTrainable`] for all but plain Llama and
    /// Qwen2 decoders.
    pub fn from_checkpoint(checkpoint: &Checkpoint, device: &Device) -> Result<Self, LmError> {
        checkpoint.check(Path::new("(checkpoint in memory)"))?;
        let config = checkpoint.config.clone();
        if !config.is_plain() {
            return Err(LmError::NotTrainable {
                model_type: config.model_type(),
                feature: "more than the blocks of Llama and Qwen2, on a device,",
            });
        }
        let matrix = |name: &str| -> Result<Tensor<2>, LmError> {
            let t = checkpoint.tensor(name)?;
            Ok(Tensor::from_data(
                TensorData::new(t.data.clone(), t.shape.clone()),
                device,
            ))
        };
        let vector = |name: &str| -> Result<Tensor<1>, LmError> {
            let t = checkpoint.tensor(name)?;
            Ok(Tensor::from_data(
                TensorData::new(t.data.clone(), t.shape.clone()),
                device,
            ))
        };
        let joined = |parts: &[String]| -> Result<Param<Tensor<2>>, LmError> {
            let rows = parts
                .iter()
                .map(|name| matrix(name))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Param::from_tensor(contiguous_transpose(Tensor::cat(
                rows, 0,
            ))))
        };
        let blocks = (0..config.num_layers)
            .map(|layer| {
                let name = |part: &str| in_layer(layer, part);
                let attention = |kind: &str| {
                    ["q", "k", "v"].map(|p| name(&format!("self_attn.{p}_proj.{kind}")))
                };
                let qkv_bias = if config.block.biases.qkv {
                    let parts = attention("bias")
                        .iter()
                        .map(|n| vector(n))
                        .collect::<Result<Vec<_>, _>>()?;
                    Some(Param::from_tensor(Tensor::cat(parts, 0)))
                } else {
                    None
                };
                Ok(Block {
                    attn_norm: Param::from_tensor(vector(&name("input_layernorm.weight"))?),
                    qkv: joined(&attention("weight"))?,
                    qkv_bias,
                    out: joined(&[name("self_attn.o_proj.weight")])?,
                    mlp_norm: Param::from_tensor(vector(&name("post_attention_layernorm.weight"))?),
                    gate_up: joined(
                        &["gate", "up"].map(|p| name(&format!("mlp.{p}_proj.weight"))),
                    )?,
                    down: joined(&[name("mlp.down_proj.weight")])?,
                })
            })
            .collect::<Result<Vec<_>, LmError>>()?;
        Ok(Self {
            embedding: Param::from_tensor(matrix(EMBEDDING)?),
            blocks,
            norm: Param::from_tensor(vector(FINAL_NORM)?),
            head: if config.tie_word_embeddings {
                None
            } else {
                Some(joined(&[HEAD.to_owned()])?)
            },
            config,
        })
    }

    /// The weights, copied back to the host, under their Hugging Face names.
    ///
    /// # Errors
    /// [`LmError::Device`] if the device cannot return its data.
    pub fn to_checkpoint(&self) -> Result<Checkpoint, LmError> {
        let config = &self.config;
        let mut checkpoint = Checkpoint {
            config: config.clone(),
            tensors: Default::default(),
        };
        let mut put = |name: String, shape: Vec<usize>, data: Vec<f32>| {
            checkpoint.tensors.insert(name, HostTensor { shape, data });
        };
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        put(
            EMBEDDING.into(),
            vec![config.vocab_size, d],
            host(self.embedding.val())?,
        );
        for (layer, block) in self.blocks.iter().enumerate() {
            let name = |part: &str| in_layer(layer, part);
            put(
                name("input_layernorm.weight"),
                vec![d],
                host(block.attn_norm.val())?,
            );
            put(
                name("post_attention_layernorm.weight"),
                vec![d],
                host(block.mlp_norm.val())?,
            );
            let mut split = |weight: &Param<Tensor<2>>,
                             parts: &[(&str, usize)],
                             inner: usize|
             -> Result<(), LmError> {
                let rows = host(weight.val().transpose())?;
                let mut start = 0;
                for (part, count) in parts {
                    let data = rows[start * inner..(start + count) * inner].to_vec();
                    put(name(part), vec![*count, inner], data);
                    start += count;
                }
                Ok(())
            };
            split(
                &block.qkv,
                &[
                    ("self_attn.q_proj.weight", q),
                    ("self_attn.k_proj.weight", kv),
                    ("self_attn.v_proj.weight", kv),
                ],
                d,
            )?;
            split(&block.out, &[("self_attn.o_proj.weight", d)], q)?;
            split(
                &block.gate_up,
                &[("mlp.gate_proj.weight", f), ("mlp.up_proj.weight", f)],
                d,
            )?;
            split(&block.down, &[("mlp.down_proj.weight", d)], f)?;
            if let Some(bias) = &block.qkv_bias {
                let values = host(bias.val())?;
                put(name("self_attn.q_proj.bias"), vec![q], values[..q].to_vec());
                put(
                    name("self_attn.k_proj.bias"),
                    vec![kv],
                    values[q..q + kv].to_vec(),
                );
                put(
                    name("self_attn.v_proj.bias"),
                    vec![kv],
                    values[q + kv..].to_vec(),
                );
            }
        }
        put(FINAL_NORM.into(), vec![d], host(self.norm.val())?);
        if let Some(head) = &self.head {
            put(
                HEAD.into(),
                vec![config.vocab_size, d],
                host(head.val().transpose())?,
            );
        }
        Ok(checkpoint)
    }

    /// Shape of the model.
    pub fn config(&self) -> &LmConfig {
        &self.config
    }

    /// The device of the parameters.
    pub fn device(&self) -> Device {
        self.embedding.val().device()
    }

    /// Hidden states of every position after the final norm.
    ///
    /// Rows shorter than the batch are padded on the right: causal attention keeps padding from
    /// reaching the positions before it.
    ///
    /// # Shapes
    /// - `ids`: `[batch, positions]`
    /// - output: `[batch, positions, hidden_size]`
    pub fn hidden(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        self.run(ids, None)
    }

    /// As [`hidden`](Self::hidden), after the positions in `cache`, which grows by the new ones.
    pub fn hidden_cached(&self, ids: Tensor<2, Int>, cache: &mut KvCache) -> Tensor<3> {
        self.run(ids, Some(cache))
    }

    fn run(&self, ids: Tensor<2, Int>, mut cache: Option<&mut KvCache>) -> Tensor<3> {
        let [batch, new] = ids.dims();
        let device = ids.device();
        let past = cache.as_ref().map_or(0, |c| c.len);
        let rope = RopeTable::new(&self.config, past, new, &device);
        let mask = (new > 1).then(|| {
            Tensor::<2>::full([new, past + new], f32::NEG_INFINITY, &device).triu(past as i64 + 1)
        });
        let positions = Positions {
            rope: &rope,
            mask: mask.as_ref(),
        };
        let d = self.config.hidden_size;
        let mut x = self
            .embedding
            .val()
            .select(0, ids.reshape([batch * new]))
            .reshape([batch, new, d]);
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.forward(
                x,
                &self.config,
                &positions,
                cache.as_deref_mut().map(|c| (c, layer)),
            );
        }
        if let Some(cache) = cache {
            cache.len += new;
        }
        rms_norm(x, &self.norm, self.config.rms_norm_eps)
    }

    /// Logits of hidden states.
    ///
    /// # Shapes
    /// - `hidden`: `[rows, hidden_size]`
    /// - output: `[rows, vocab_size]`
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.head {
            Some(head) => hidden.matmul(head.val()),
            None => hidden.matmul(self.embedding.val().transpose()),
        }
    }

    /// Logits of the given vocabulary columns only. The columns are gathered before the
    /// multiplication, so the cost is that of a smaller vocabulary.
    ///
    /// # Shapes
    /// - `hidden`: `[rows, hidden_size]`; `columns`: `[n]`
    /// - output: `[rows, n]`
    pub fn logits_of(&self, hidden: Tensor<2>, columns: Tensor<1, Int>) -> Tensor<2> {
        match &self.head {
            Some(head) => hidden.matmul(head.val().select(1, columns)),
            None => hidden.matmul(self.embedding.val().select(0, columns).transpose()),
        }
    }
}

impl Block {
    fn forward(
        &self,
        x: Tensor<3>,
        config: &LmConfig,
        positions: &Positions<'_>,
        cache: Option<(&mut KvCache, usize)>,
    ) -> Tensor<3> {
        let normed = rms_norm(x.clone(), &self.attn_norm, config.rms_norm_eps);
        let x = x + self.attention(normed, config, positions, cache);
        let normed = rms_norm(x.clone(), &self.mlp_norm, config.rms_norm_eps);
        let both = project(normed, &self.gate_up);
        let f = config.intermediate_size;
        let gate = both.clone().narrow(2, 0, f);
        let up = both.narrow(2, f, f);
        x + project(silu(gate) * up, &self.down)
    }

    fn attention(
        &self,
        x: Tensor<3>,
        config: &LmConfig,
        positions: &Positions<'_>,
        cache: Option<(&mut KvCache, usize)>,
    ) -> Tensor<3> {
        let [batch, new, _] = x.dims();
        let (heads, kv_heads, width) = (config.num_heads, config.num_kv_heads, config.head_dim);
        let mut qkv = project(x, &self.qkv);
        if let Some(bias) = &self.qkv_bias {
            qkv = qkv + bias.val().unsqueeze();
        }
        let part = |start: usize, count: usize| {
            qkv.clone()
                .narrow(2, start * width, count * width)
                .reshape([batch, new, count, width])
                .swap_dims(1, 2)
        };
        let queries = positions.rope.apply(part(0, heads));
        let mut keys = positions.rope.apply(part(heads, kv_heads));
        let mut values = part(heads + kv_heads, kv_heads);
        if let Some((cache, layer)) = cache {
            if let Some((old_keys, old_values)) = cache.blocks.get(layer) {
                keys = Tensor::cat(vec![old_keys.clone(), keys], 2);
                values = Tensor::cat(vec![old_values.clone(), values], 2);
                cache.blocks[layer] = (keys.clone(), values.clone());
            } else {
                cache.blocks.push((keys.clone(), values.clone()));
            }
        }
        let total = keys.dims()[2];
        let group = heads / kv_heads;
        // Query heads that share a key head are stacked along the positions, which saves copies of
        // keys.
        let scores = queries
            .mul_scalar(config.block.attention_scale)
            .reshape([batch, kv_heads, group * new, width])
            .matmul(keys.swap_dims(2, 3))
            .reshape([batch, heads, new, total]);
        let scores = match positions.mask {
            Some(mask) => scores + mask.clone().unsqueeze(),
            None => scores,
        };
        let mixed = softmax(scores, 3)
            .reshape([batch, kv_heads, group * new, total])
            .matmul(values)
            .reshape([batch, heads, new, width])
            .swap_dims(1, 2)
            .reshape([batch, new, heads * width]);
        project(mixed, &self.out)
    }
}

/// `[batch, positions, in] x [in, out]`, flattened to one matrix product.
fn project(x: Tensor<3>, weight: &Param<Tensor<2>>) -> Tensor<3> {
    let [batch, positions, inner] = x.dims();
    let out = weight.dims()[1];
    x.reshape([batch * positions, inner])
        .matmul(weight.val())
        .reshape([batch, positions, out])
}

fn rms_norm(x: Tensor<3>, gamma: &Param<Tensor<1>>, epsilon: f64) -> Tensor<3> {
    let mean_square = x.clone().square().mean_dim(2);
    x * (mean_square + epsilon).sqrt().recip() * gamma.val().unsqueeze()
}

/// A transposed copy in row-major order, as matrix products need it.
fn contiguous_transpose(x: Tensor<2>) -> Tensor<2> {
    let device = x.device();
    let data = x.transpose().into_data();
    Tensor::from_data(data, &device)
}

fn host<const D: usize>(x: Tensor<D>) -> Result<Vec<f32>, LmError> {
    x.try_into_vec_as::<f32>()
        .map_err(|e| LmError::Device(e.to_string()))
}
