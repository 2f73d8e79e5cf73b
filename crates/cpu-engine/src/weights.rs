//! A checkpoint packed for the kernels.

use std::borrow::Cow;

use lm::{
    Checkpoint, EMBEDDING, FINAL_NORM, HEAD, LmConfig, LmError, QkNorm, WeightType,
    expected_tensors, in_layer,
};

use crate::arena::{Arena, Buffer};
use crate::kernels::Kernels;
use crate::kernels::panel::{PackedMatrix, Part, are_bf16};
use crate::kernels::simd::PANEL;
use crate::{Compact, KernelChoice};

/// One block.
pub(crate) struct BlockWeights {
    /// Weights of the norms, those that a block has not empty.
    pub(crate) norms: BlockNorms,
    /// Query, key and value projections, each padded to whole panels.
    pub(crate) qkv: PackedMatrix,
    /// In the columns of `qkv`, or empty.
    pub(crate) qkv_bias: Vec<f32>,
    pub(crate) out: PackedMatrix,
    /// `[hidden_size]`, or empty.
    pub(crate) out_bias: Vec<f32>,
    /// Panels of gate and up projection alternate.
    pub(crate) gate_up: PackedMatrix,
    /// In the columns of `gate_up`, or empty.
    pub(crate) gate_up_bias: Vec<f32>,
    pub(crate) down: PackedMatrix,
    /// `[hidden_size]`, or empty.
    pub(crate) down_bias: Vec<f32>,
}

/// Weights of the norms of one block as they multiply, or empty.
#[derive(Default)]
pub(crate) struct BlockNorms {
    pub(crate) attention_in: Vec<f32>,
    pub(crate) attention_out: Vec<f32>,
    pub(crate) mlp_in: Vec<f32>,
    pub(crate) mlp_out: Vec<f32>,
    /// `[head_dim]`, or the whole projection.
    pub(crate) queries: Vec<f32>,
    pub(crate) keys: Vec<f32>,
}

impl BlockNorms {
    /// Reads the norms of block `layer`.
    fn read(config: &LmConfig, source: &impl TensorSource, layer: usize) -> Result<Self, LmError> {
        let names = config.block.norms.names();
        let read = |name: Option<&str>| match name {
            None => Ok(Vec::new()),
            Some(name) => norm(config, source, &in_layer(layer, name)),
        };
        let of_heads = |name| (config.block.qk_norm != QkNorm::None).then_some(name);
        Ok(Self {
            attention_in: read(names.attention_in)?,
            attention_out: read(names.attention_out)?,
            mlp_in: read(names.mlp_in)?,
            mlp_out: read(names.mlp_out)?,
            queries: read(of_heads("self_attn.q_norm.weight"))?,
            keys: read(of_heads("self_attn.k_norm.weight"))?,
        })
    }

    fn len(&self) -> usize {
        let all = [
            &self.attention_in,
            &self.attention_out,
            &self.mlp_in,
            &self.mlp_out,
            &self.queries,
            &self.keys,
        ];
        all.into_iter().map(Vec::len).sum()
    }
}

/// The weight of a norm as it multiplies.
fn norm(config: &LmConfig, source: &impl TensorSource, name: &str) -> Result<Vec<f32>, LmError> {
    let stored = source.values(name)?;
    Ok(match config.norm_offset {
        true => stored.iter().map(|weight| 1.0 + weight).collect(),
        false => stored.into_owned(),
    })
}

/// Embedding rows.
pub(crate) enum Embedding {
    F32(Buffer<f32>),
    Bf16(Buffer<half::bf16>),
}

/// Where weights come from: tensors under Hugging Face names, row-major.
pub(crate) trait TensorSource {
    /// The values of a tensor.
    fn values(&self, name: &str) -> Result<Cow<'_, [f32]>, LmError>;
}

impl TensorSource for Checkpoint {
    fn values(&self, name: &str) -> Result<Cow<'_, [f32]>, LmError> {
        Ok(Cow::Borrowed(&self.tensor(name)?.data))
    }
}

/// Every weight of a model.
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

/// Bytes of matrices from which on they are kept compact by default. Below, they stay in the caches
/// of common machines between two forwards, and small drafters are packed again after every update.
const COMPACT_FROM: usize = 24 << 20;

/// Inputs and panels of the matrices of a model.
struct Shapes {
    /// Queries, keys and values; attention output; gate and up; down.
    block: [(usize, usize); 4],
    layers: usize,
    head: (usize, usize),
}

impl Shapes {
    fn of(config: &LmConfig) -> Self {
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (panels(config.q_width()), panels(config.kv_width()));
        Self {
            block: [
                (d, q + 2 * kv),
                (config.q_width(), panels(d)),
                (d, 2 * panels(f)),
                (f, panels(d)),
            ],
            layers: config.num_layers,
            head: (d, panels(config.vocab_size)),
        }
    }

    /// Bytes of the arena that the matrices take.
    fn room(&self, weights: WeightType, compact: bool) -> usize {
        let room = |(inputs, panels)| PackedMatrix::room(inputs, panels, weights, compact);
        let block: usize = self.block.into_iter().map(room).sum();
        self.layers * block + room(self.head)
    }
}

/// Whether bf16 holds every matrix exactly; the first that it does not ends the search.
fn exact_in_bf16(config: &LmConfig, source: &impl TensorSource) -> Result<bool, LmError> {
    for (name, shape) in expected_tensors(config) {
        if shape.len() == 2 && !are_bf16(&source.values(&name)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Weights that fill a matrix.
fn whole(weights: &[f32]) -> Part<'_> {
    Part {
        weights,
        first: 0,
        step: 1,
    }
}

impl Weights {
    /// The weights of a model in the shape of `config`.
    pub(crate) fn of(
        config: &LmConfig,
        weights: WeightType,
        compact: bool,
        source: &impl TensorSource,
    ) -> Result<Self, LmError> {
        let compact = compact && (weights != WeightType::F32 || exact_in_bf16(config, source)?);
        let mut of = Self::new(config, weights, compact);
        of.load(config, source)?;
        Ok(of)
    }

    /// What `choice` means for a model in the shape of `config`.
    pub(crate) fn choose(
        choice: Compact,
        kernels: Kernels,
        config: &LmConfig,
        weights: WeightType,
    ) -> bool {
        match choice {
            Compact::On => true,
            Compact::Off => false,
            Compact::Auto => {
                kernels.choice() == KernelChoice::Avx512
                    && Shapes::of(config).room(weights, false) >= COMPACT_FROM
            }
        }
    }

    /// Room for a model in the shape of `config`, to be loaded before use.
    fn new(config: &LmConfig, weights: WeightType, compact: bool) -> Self {
        let shapes = Shapes::of(config);
        let cells = config.vocab_size * config.hidden_size;
        let embedding = match weights {
            WeightType::F32 => Arena::bytes_of::<f32>(cells),
            _ => Arena::bytes_of::<half::bf16>(cells),
        };
        let arena = &mut Arena::new(shapes.room(weights, compact) + embedding);
        let mut matrix =
            |(inputs, panels)| PackedMatrix::new(arena, inputs, panels, weights, compact);
        let blocks = (0..config.num_layers)
            .map(|_| {
                let [qkv, out, gate_up, down] = shapes.block.map(&mut matrix);
                let bias = |there: bool, len: usize| vec![0.0; if there { len } else { 0 }];
                let biases = config.block.biases;
                BlockWeights {
                    norms: BlockNorms::default(),
                    qkv_bias: bias(biases.qkv, qkv.panels() * PANEL),
                    qkv,
                    out_bias: bias(biases.out, out.panels() * PANEL),
                    out,
                    gate_up_bias: bias(biases.mlp, gate_up.panels() * PANEL),
                    gate_up,
                    down_bias: bias(biases.mlp, down.panels() * PANEL),
                    down,
                }
            })
            .collect();
        let head = matrix(shapes.head);
        Self {
            embedding: match weights {
                WeightType::F32 => Embedding::F32(arena.take(cells)),
                // A token reads one row: narrower storage would save nothing worth the error.
                _ => Embedding::Bf16(arena.take(cells)),
            },
            blocks,
            norm: Vec::new(),
            head,
        }
    }

    /// Overwrites every weight, in place, with tensors in the shape of `config`.
    pub(crate) fn load(
        &mut self,
        config: &LmConfig,
        source: &impl TensorSource,
    ) -> Result<(), LmError> {
        let embedding = source.values(EMBEDDING)?;
        self.embedding.load(&embedding);
        if config.tie_word_embeddings {
            self.head.pack(&[whole(&embedding)]);
        } else {
            self.head.pack(&[whole(&source.values(HEAD)?)]);
        }
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            block.load(config, source, layer)?;
        }
        self.norm = norm(config, source, FINAL_NORM)?;
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

    /// Whether any matrix is compact.
    pub(crate) fn is_compact(&self) -> bool {
        let in_blocks = self.blocks.iter().flat_map(BlockWeights::matrices);
        in_blocks.chain([&self.head]).any(PackedMatrix::is_compact)
    }

    /// Bytes of the matrices, all of which a forward reads.
    pub(crate) fn bytes_per_token(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(BlockWeights::matrix_bytes).sum();
        blocks + self.head.bytes()
    }
}

impl BlockWeights {
    fn load(
        &mut self,
        config: &LmConfig,
        source: &impl TensorSource,
        layer: usize,
    ) -> Result<(), LmError> {
        let tensor = |part: &str| source.values(&in_layer(layer, part));
        let (q, kv) = (panels(config.q_width()), panels(config.kv_width()));
        self.norms = BlockNorms::read(config, source, layer)?;
        self.load_biases(config, source, layer)?;
        let queries = &tensor("self_attn.q_proj.weight")?;
        let keys = &tensor("self_attn.k_proj.weight")?;
        let values = &tensor("self_attn.v_proj.weight")?;
        let part = |weights, first, step| Part {
            weights,
            first,
            step,
        };
        self.qkv.pack(&[
            part(queries, 0, 1),
            part(keys, q, 1),
            part(values, q + kv, 1),
        ]);
        self.out.pack(&[whole(&tensor("self_attn.o_proj.weight")?)]);
        let gate = &tensor("mlp.gate_proj.weight")?;
        let up = &tensor("mlp.up_proj.weight")?;
        self.gate_up.pack(&[part(gate, 0, 2), part(up, 1, 2)]);
        self.down.pack(&[whole(&tensor("mlp.down_proj.weight")?)]);
        Ok(())
    }

    fn load_biases(
        &mut self,
        config: &LmConfig,
        source: &impl TensorSource,
        layer: usize,
    ) -> Result<(), LmError> {
        let (q, kv) = (panels(config.q_width()), panels(config.kv_width()));
        let biases = config.block.biases;
        let put = |to: &mut [f32], name: &str, first: usize, step: usize| -> Result<(), LmError> {
            let bias = source.values(&in_layer(layer, &format!("{name}.bias")))?;
            for (panel, values) in bias.chunks(PANEL).enumerate() {
                let at = (first + panel * step) * PANEL;
                to[at..at + values.len()].copy_from_slice(values);
            }
            Ok(())
        };
        if biases.qkv {
            put(&mut self.qkv_bias, "self_attn.q_proj", 0, 1)?;
            put(&mut self.qkv_bias, "self_attn.k_proj", q, 1)?;
            put(&mut self.qkv_bias, "self_attn.v_proj", q + kv, 1)?;
        }
        if biases.out {
            put(&mut self.out_bias, "self_attn.o_proj", 0, 1)?;
        }
        if biases.mlp {
            put(&mut self.gate_up_bias, "mlp.gate_proj", 0, 2)?;
            put(&mut self.gate_up_bias, "mlp.up_proj", 1, 2)?;
            put(&mut self.down_bias, "mlp.down_proj", 0, 1)?;
        }
        Ok(())
    }

    fn matrices(&self) -> [&PackedMatrix; 4] {
        [&self.qkv, &self.out, &self.gate_up, &self.down]
    }

    fn matrix_bytes(&self) -> usize {
        self.matrices().into_iter().map(PackedMatrix::bytes).sum()
    }

    fn vector_bytes(&self) -> usize {
        let biases = [
            &self.qkv_bias,
            &self.out_bias,
            &self.gate_up_bias,
            &self.down_bias,
        ];
        let biases: usize = biases.into_iter().map(Vec::len).sum();
        size_of::<f32>() * (self.norms.len() + biases)
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
            Self::F32(rows) => size_of_val::<[_]>(rows),
            Self::Bf16(rows) => size_of_val::<[_]>(rows),
        }
    }
}
