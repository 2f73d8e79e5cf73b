//! A checkpoint packed for the kernels.

use crate::names::{EMBEDDING, FINAL_NORM, in_layer};
use crate::{Checkpoint, LmConfig, LmError};

use super::WeightType;
use super::kernels::panel::PackedMatrix;
use super::kernels::simd::PANEL;

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct BlockWeights {
    pub(crate) attn_norm: Vec<f32>,
    /// Query, key and value projections, each padded to whole panels.
    pub(crate) qkv: PackedMatrix,
    /// In the columns of `qkv`, or empty.
    pub(crate) qkv_bias: Vec<f32>,
    pub(crate) out: PackedMatrix,
    pub(crate) mlp_norm: Vec<f32>,
    /// Panels of gate and up projection alternate.
    pub(crate) gate_up: PackedMatrix,
    pub(crate) down: PackedMatrix,
}

/// Embedding rows.
#[derive(Clone, Debug)]
pub(crate) enum Embedding {
    F32(Vec<f32>),
    Bf16(Vec<half::bf16>),
}

/// Every weight of a model.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) embedding: Embedding,
    pub(crate) blocks: Vec<BlockWeights>,
    pub(crate) norm: Vec<f32>,
    pub(crate) head: PackedMatrix,
}

/// Panels of a projection with `outputs` columns.
pub(crate) fn panels(outputs: usize) -> usize {
    outputs.div_ceil(PANEL)
}

impl Weights {
    /// Zeros in the shape of `config`.
    pub(crate) fn zeros(config: &LmConfig, weights: WeightType) -> Self {
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (panels(config.q_width()), panels(config.kv_width()));
        let matrix = |inputs, panels| PackedMatrix::zeros(inputs, panels, weights);
        let block = BlockWeights {
            attn_norm: vec![0.0; d],
            qkv: matrix(d, q + 2 * kv),
            qkv_bias: vec![
                0.0;
                if config.qkv_bias {
                    (q + 2 * kv) * PANEL
                } else {
                    0
                }
            ],
            out: matrix(config.q_width(), panels(d)),
            mlp_norm: vec![0.0; d],
            gate_up: matrix(d, 2 * panels(f)),
            down: matrix(f, panels(d)),
        };
        let cells = config.vocab_size * d;
        Self {
            embedding: match weights {
                WeightType::F32 => Embedding::F32(vec![0.0; cells]),
                WeightType::Bf16 => Embedding::Bf16(vec![half::bf16::ZERO; cells]),
            },
            blocks: vec![block; config.num_layers],
            norm: vec![0.0; d],
            head: matrix(d, panels(config.vocab_size)),
        }
    }

    /// Overwrites every weight, in place, from a checkpoint of the same shape.
    pub(crate) fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), LmError> {
        self.embedding.load(&checkpoint.tensor(EMBEDDING)?.data);
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            block.load(checkpoint, layer)?;
        }
        self.norm
            .copy_from_slice(&checkpoint.tensor(FINAL_NORM)?.data);
        self.head.pack(&checkpoint.head()?.data, 0, 1);
        Ok(())
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.embedding.bytes()
            + self.bytes_per_token()
            + self
                .blocks
                .iter()
                .map(BlockWeights::vector_bytes)
                .sum::<usize>()
    }

    /// Bytes of the matrices, all of which a forward reads.
    pub(crate) fn bytes_per_token(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(BlockWeights::matrix_bytes).sum();
        blocks + self.head.bytes()
    }
}

impl BlockWeights {
    fn load(&mut self, checkpoint: &Checkpoint, layer: usize) -> Result<(), LmError> {
        let tensor = |part: &str| Ok(checkpoint.tensor(&in_layer(layer, part))?.data.as_slice());
        let config = &checkpoint.config;
        let (q, kv) = (panels(config.q_width()), panels(config.kv_width()));
        self.attn_norm
            .copy_from_slice(tensor("input_layernorm.weight")?);
        self.mlp_norm
            .copy_from_slice(tensor("post_attention_layernorm.weight")?);
        for (name, first) in [("q_proj", 0), ("k_proj", q), ("v_proj", q + kv)] {
            self.qkv
                .pack(tensor(&format!("self_attn.{name}.weight"))?, first, 1);
            if config.qkv_bias {
                let bias = tensor(&format!("self_attn.{name}.bias"))?;
                self.qkv_bias[first * PANEL..][..bias.len()].copy_from_slice(bias);
            }
        }
        self.out.pack(tensor("self_attn.o_proj.weight")?, 0, 1);
        self.gate_up.pack(tensor("mlp.gate_proj.weight")?, 0, 2);
        self.gate_up.pack(tensor("mlp.up_proj.weight")?, 1, 2);
        self.down.pack(tensor("mlp.down_proj.weight")?, 0, 1);
        Ok(())
    }

    fn matrix_bytes(&self) -> usize {
        [&self.qkv, &self.out, &self.gate_up, &self.down]
            .into_iter()
            .map(PackedMatrix::bytes)
            .sum()
    }

    fn vector_bytes(&self) -> usize {
        size_of::<f32>() * (self.attn_norm.len() + self.mlp_norm.len() + self.qkv_bias.len())
    }
}

impl Embedding {
    fn load(&mut self, rows: &[f32]) {
        match self {
            Self::F32(to) => to.copy_from_slice(rows),
            Self::Bf16(to) => {
                for (to, from) in to.iter_mut().zip(rows) {
                    *to = half::bf16::from_f32(*from);
                }
            }
        }
    }

    /// Copies the row of token `id` to `to`, whose length is the row's.
    pub(crate) fn row(&self, id: u32, to: &mut [f32]) {
        let range = id as usize * to.len()..(id as usize + 1) * to.len();
        match self {
            Self::F32(rows) => to.copy_from_slice(&rows[range]),
            Self::Bf16(rows) => {
                for (to, from) in to.iter_mut().zip(&rows[range]) {
                    *to = from.to_f32();
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(rows) => size_of_val(rows.as_slice()),
            Self::Bf16(rows) => size_of_val(rows.as_slice()),
        }
    }
}
