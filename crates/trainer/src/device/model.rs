//! The decoder as a Burn module.

use std::path::Path;

use burn::module::{Module, Param};
use burn::tensor::activation::{silu, softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};
use lm::{Checkpoint, EMBEDDING, FINAL_NORM, HEAD, HostTensor, LmConfig, LmError, in_layer};

use super::rope::RopeTable;

/// Score of a position that attention must not see: its weight is exactly 0. Shaders may assume
/// that numbers are finite, so that minus infinity is no choice.
const UNSEEN: f32 = -1e30;

/// Projections of a block that are one matrix here, or one vector of biases.
const QKV: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
const OUT: [&str; 1] = ["self_attn.o_proj"];
const GATE_UP: [&str; 2] = ["mlp.gate_proj", "mlp.up_proj"];
const DOWN: [&str; 1] = ["mlp.down_proj"];
const ATTN_NORM: &str = "input_layernorm.weight";
const MLP_NORM: &str = "post_attention_layernorm.weight";

/// One decoder block. Projections are stored `[in, out]`.
#[derive(Module, Debug)]
struct Block {
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
pub(super) struct Transformer {
    embedding: Param<Tensor<2>>,
    blocks: Vec<Block>,
    norm: Param<Tensor<1>>,
    head: Option<Param<Tensor<2>>>,
    #[module(skip)]
    config: LmConfig,
}

/// Rotation and mask of the positions that a block is given.
struct Positions {
    rope: RopeTable,
    /// `[positions, positions]`: 0 where attention is allowed, [`UNSEEN`] elsewhere.
    mask: Tensor<2>,
}

impl Transformer {
    /// Builds the module on `device` from a checkpoint; every parameter requires gradients when
    /// the device is an autodiff device.
    pub(super) fn from_checkpoint(
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<Self, LmError> {
        checkpoint.check(Path::new("(checkpoint in memory)"))?;
        let config = checkpoint.config.clone();
        if !config.is_plain() {
            return Err(LmError::NotTrainable {
                model_type: config.model_type(),
                feature: "more than the blocks of Llama and Qwen2, on a device,",
            });
        }
        let load = Load { checkpoint, device };
        let blocks = (0..config.num_layers).map(|layer| load.block(layer));
        Ok(Self {
            embedding: Param::from_tensor(load.matrix(EMBEDDING)?),
            blocks: blocks.collect::<Result<_, _>>()?,
            norm: load.vector(&[FINAL_NORM.to_owned()])?,
            head: match config.tie_word_embeddings {
                true => None,
                false => Some(load.projection(&[HEAD.to_owned()])?),
            },
            config,
        })
    }

    /// The weights, copied back to the host, under their Hugging Face names.
    pub(super) fn to_checkpoint(&self) -> Result<Checkpoint, LmError> {
        let config = &self.config;
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        let mut named = Named::default();
        let embedding = host(self.embedding.val())?;
        named.put(EMBEDDING, vec![config.vocab_size, d], embedding);
        for (layer, block) in self.blocks.iter().enumerate() {
            let norms = [(ATTN_NORM, &block.attn_norm), (MLP_NORM, &block.mlp_norm)];
            for (name, norm) in norms {
                named.put(&in_layer(layer, name), vec![d], host(norm.val())?);
            }
            named.projections(layer, &block.qkv, &QKV, &[q, kv, kv])?;
            named.projections(layer, &block.out, &OUT, &[d])?;
            named.projections(layer, &block.gate_up, &GATE_UP, &[f, f])?;
            named.projections(layer, &block.down, &DOWN, &[d])?;
            if let Some(bias) = &block.qkv_bias {
                let mut rest = host(bias.val())?.into_iter();
                for (name, width) in parts(layer, &QKV, "bias").iter().zip([q, kv, kv]) {
                    named.put(name, vec![width], rest.by_ref().take(width).collect());
                }
            }
        }
        named.put(FINAL_NORM, vec![d], host(self.norm.val())?);
        if let Some(head) = &self.head {
            let head = host(head.val().transpose())?;
            named.put(HEAD, vec![config.vocab_size, d], head);
        }
        Ok(Checkpoint {
            config: config.clone(),
            tensors: named.0,
        })
    }

    /// Shape of the model.
    pub(super) fn config(&self) -> &LmConfig {
        &self.config
    }

    /// Hidden states of every position after the final norm.
    ///
    /// # Shapes
    /// - `ids`: `[batch, positions]`
    /// - output: `[batch, positions, hidden_size]`
    pub(super) fn hidden(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let [batch, count] = ids.dims();
        let device = ids.device();
        let positions = Positions {
            rope: RopeTable::new(&self.config, count, &device),
            mask: Tensor::<2>::full([count, count], UNSEEN, &device).triu(1),
        };
        let mut x = self
            .embedding
            .val()
            .select(0, ids.reshape([batch * count]))
            .reshape([batch, count, self.config.hidden_size]);
        for block in &self.blocks {
            x = block.forward(x, &self.config, &positions);
        }
        rms_norm(x, &self.norm, self.config.rms_norm_eps)
    }

    /// Logits of hidden states.
    ///
    /// # Shapes
    /// - `hidden`: `[rows, hidden_size]`
    /// - output: `[rows, vocab_size]`
    pub(super) fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.head {
            Some(head) => hidden.matmul(head.val()),
            None => hidden.matmul(self.embedding.val().transpose()),
        }
    }
}

impl Block {
    fn forward(&self, x: Tensor<3>, config: &LmConfig, positions: &Positions) -> Tensor<3> {
        let normed = rms_norm(x.clone(), &self.attn_norm, config.rms_norm_eps);
        let x = x + self.attention(normed, config, positions);
        let normed = rms_norm(x.clone(), &self.mlp_norm, config.rms_norm_eps);
        let both = project(normed, &self.gate_up);
        let f = config.intermediate_size;
        let gate = both.clone().narrow(2, 0, f);
        let up = both.narrow(2, f, f);
        x + project(silu(gate) * up, &self.down)
    }

    fn attention(&self, x: Tensor<3>, config: &LmConfig, positions: &Positions) -> Tensor<3> {
        let [batch, count, _] = x.dims();
        let (heads, kv_heads, width) = (config.num_heads, config.num_kv_heads, config.head_dim);
        let mut qkv = project(x, &self.qkv);
        if let Some(bias) = &self.qkv_bias {
            qkv = qkv + bias.val().unsqueeze();
        }
        let part = |start: usize, heads: usize| {
            qkv.clone()
                .narrow(2, start * width, heads * width)
                .reshape([batch, count, heads, width])
                .swap_dims(1, 2)
        };
        let queries = positions.rope.apply(part(0, heads));
        let keys = positions.rope.apply(part(heads, kv_heads));
        let values = part(heads + kv_heads, kv_heads);
        let group = heads / kv_heads;
        // Query heads that share a key head are stacked along the positions, which saves copies of
        // keys.
        let scores = queries
            .mul_scalar(config.block.attention_scale)
            .reshape([batch, kv_heads, group * count, width])
            .matmul(keys.swap_dims(2, 3))
            .reshape([batch, heads, count, count]);
        let scores = scores + positions.mask.clone().unsqueeze();
        let mixed = softmax(scores, 3)
            .reshape([batch, kv_heads, group * count, count])
            .matmul(values)
            .reshape([batch, heads, count, width])
            .swap_dims(1, 2)
            .reshape([batch, count, heads * width]);
        project(mixed, &self.out)
    }
}

/// A checkpoint on its way to a device.
struct Load<'a> {
    checkpoint: &'a Checkpoint,
    device: &'a Device,
}

impl Load<'_> {
    fn block(&self, layer: usize) -> Result<Block, LmError> {
        let norm = |name: &str| self.vector(&[in_layer(layer, name)]);
        let projection = |names: &[&str]| self.projection(&parts(layer, names, "weight"));
        let biases = self.checkpoint.config.block.biases;
        Ok(Block {
            attn_norm: norm(ATTN_NORM)?,
            qkv: projection(&QKV)?,
            qkv_bias: match biases.qkv {
                true => Some(self.vector(&parts(layer, &QKV, "bias"))?),
                false => None,
            },
            out: projection(&OUT)?,
            mlp_norm: norm(MLP_NORM)?,
            gate_up: projection(&GATE_UP)?,
            down: projection(&DOWN)?,
        })
    }

    /// The values of tensors, one after the other.
    fn joined(&self, names: &[String]) -> Result<Vec<f32>, LmError> {
        let mut joined = Vec::new();
        for name in names {
            joined.extend_from_slice(&self.checkpoint.tensor(name)?.data);
        }
        Ok(joined)
    }

    fn vector(&self, names: &[String]) -> Result<Param<Tensor<1>>, LmError> {
        let joined = self.joined(names)?;
        let shape = [joined.len()];
        let tensor = Tensor::from_data(TensorData::new(joined, shape), self.device);
        Ok(Param::from_tensor(tensor))
    }

    fn matrix(&self, name: &str) -> Result<Tensor<2>, LmError> {
        let HostTensor { shape, data } = self.checkpoint.tensor(name)?;
        let data = TensorData::new(data.clone(), shape.clone());
        Ok(Tensor::from_data(data, self.device))
    }

    /// Matrices with the same input, `[in, out of all]`.
    fn projection(&self, names: &[String]) -> Result<Param<Tensor<2>>, LmError> {
        let rows = self.joined(names)?;
        let inner = self.checkpoint.tensor(&names[0])?.shape[1];
        let outer = rows.len() / inner;
        let mut turned = vec![0.0; rows.len()];
        for (o, row) in rows.chunks_exact(inner).enumerate() {
            for (i, x) in row.iter().enumerate() {
                turned[i * outer + o] = *x;
            }
        }
        let data = TensorData::new(turned, [inner, outer]);
        Ok(Param::from_tensor(Tensor::from_data(data, self.device)))
    }
}

/// Tensors of a checkpoint that come from a device.
#[derive(Default)]
struct Named(std::collections::BTreeMap<String, HostTensor>);

impl Named {
    fn put(&mut self, name: &str, shape: Vec<usize>, data: Vec<f32>) {
        self.0.insert(name.to_owned(), HostTensor { shape, data });
    }

    /// Divides the output rows of a matrix `[in, out of all]` among projections of `widths`.
    fn projections(
        &mut self,
        layer: usize,
        weight: &Param<Tensor<2>>,
        names: &[&str],
        widths: &[usize],
    ) -> Result<(), LmError> {
        let [inner, _] = weight.dims();
        let mut rest = host(weight.val().transpose())?.into_iter();
        for (name, width) in parts(layer, names, "weight").iter().zip(widths) {
            let data = rest.by_ref().take(width * inner).collect();
            self.put(name, vec![*width, inner], data);
        }
        Ok(())
    }
}

/// Names of the tensors of one kind (`weight` or `bias`) of projections.
fn parts(layer: usize, projections: &[&str], kind: &str) -> Vec<String> {
    let name = |projection: &&str| in_layer(layer, &format!("{projection}.{kind}"));
    projections.iter().map(name).collect()
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

/// A copy on the host, in row-major order.
pub(super) fn host<const D: usize>(x: Tensor<D>) -> Result<Vec<f32>, LmError> {
    x.try_into_vec_as::<f32>()
        .map_err(|e| LmError::Device(e.to_string()))
}
