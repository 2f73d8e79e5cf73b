//! A checkpoint packed for the kernels.

use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use lm::{
    EMBEDDING, FINAL_NORM, HEAD, LmConfig, LmError, QkNorm, RowBuffer, Tail, TensorSource,
    WeightType, expected_tensors, in_layer, saturated_half,
};

use crate::arena::{Arena, Buffer};
use crate::kernels::Kernels;
use crate::kernels::panel::{PackedMatrix, can_be_compact};
use crate::kernels::simd::PANEL;
use crate::packing::{Part, PartRows, for_each_panel};
use crate::pool::Pool;
use crate::{Compact, KernelChoice};

/// One block.
pub(crate) struct BlockWeights {
    /// Weights of the norms; empty for norms that the block lacks.
    pub(crate) norms: BlockNorms,
    /// Query, key and value projections, each padded to whole panels.
    pub(crate) qkv: BiasedMatrix,
    pub(crate) out: BiasedMatrix,
    /// Gate and up projections, panels alternating.
    pub(crate) gate_up: BiasedMatrix,
    pub(crate) down: BiasedMatrix,
}

/// One or more projections as one matrix, and their bias.
pub(crate) struct BiasedMatrix {
    pub(crate) matrix: PackedMatrix,
    /// Bias in the columns of `matrix`, padded to whole panels, or empty.
    pub(crate) bias: Vec<f32>,
}

/// Weights of the norms of one block, with the 1 of norms that multiply by `1 + weight` added, or
/// empty.
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
    fn read(source: &dyn TensorSource, layer: usize) -> Result<Self, LmError> {
        let config = source.config();
        let [attention_in, attention_out, mlp_in, mlp_out] = config.block.norms.names();
        let read = |name: Option<&str>, len: usize| match name {
            None => Ok(Vec::new()),
            Some(name) => norm(source, &in_layer(layer, name), len),
        };
        let d = config.hidden_size;
        let heads = |name, width| match config.block.qk_norm {
            QkNorm::None => Ok(Vec::new()),
            QkNorm::Head => read(Some(name), config.head_dim),
            QkNorm::Full => read(Some(name), width),
        };
        Ok(Self {
            attention_in: read(attention_in, d)?,
            attention_out: read(attention_out, d)?,
            mlp_in: read(mlp_in, d)?,
            mlp_out: read(mlp_out, d)?,
            queries: heads("self_attn.q_norm.weight", config.q_width())?,
            keys: heads("self_attn.k_norm.weight", config.kv_width())?,
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

/// The factor of a norm: its weight, or `1 + weight` for norms that multiply by that.
fn norm(source: &dyn TensorSource, name: &str, len: usize) -> Result<Vec<f32>, LmError> {
    let mut weight = vector(source, name, len)?;
    if source.config().norm_offset {
        weight.iter_mut().for_each(|weight| *weight += 1.0);
    }
    Ok(weight)
}

/// Embedding rows.
pub(crate) enum Embedding {
    F32(Buffer<f32>),
    F16(Buffer<half::f16>),
    Bf16(Buffer<half::bf16>),
}

/// All weights of a model. Models that differ only in their last blocks share the others.
pub(crate) struct Weights {
    pub(crate) config: LmConfig,
    /// Storage of the matrices.
    pub(crate) kind: WeightType,
    pub(crate) embedding: Arc<Embedding>,
    pub(crate) blocks: Vec<Arc<BlockWeights>>,
    pub(crate) norm: Vec<f32>,
    pub(crate) head: Arc<PackedMatrix>,
}

/// Number of panels of a projection with `outputs` columns.
pub(crate) fn panels(outputs: usize) -> usize {
    outputs.div_ceil(PANEL)
}

/// Number of bytes of matrices from which on they are compact by default. Fewer stay in the caches
/// of common machines between two forwards, and small drafters are packed again after every update.
const COMPACT_FROM: usize = 24 << 20;

/// Number of inputs and panels of each matrix of a model.
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

    /// Number of bytes of the arena that the matrices take.
    fn room(&self, weights: WeightType, compact: bool) -> usize {
        let room = |(inputs, panels)| PackedMatrix::room(inputs, panels, weights, compact);
        let block: usize = self.block.into_iter().map(room).sum();
        self.layers * block + room(self.head)
    }
}

/// True if bf16 holds every matrix exactly. The search ends at the first one that it does not.
fn exact_in_bf16(source: &dyn TensorSource, pool: &Pool) -> Result<bool, LmError> {
    for (name, shape) in expected_tensors(source.config()) {
        if let [outputs, inputs] = shape[..] {
            let part = part(source, name, outputs, 0, 1);
            if !part.are_bf16(inputs, pool)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A tensor as part of a matrix, whose panels start at `first` and are `step` apart.
fn part(
    source: &dyn TensorSource,
    name: String,
    outputs: usize,
    first: usize,
    step: usize,
) -> Part<'_> {
    Part {
        rows: PartRows::Tensor(source, name),
        outputs,
        first,
        step,
    }
}

/// A tensor that is a whole matrix.
fn whole(source: &dyn TensorSource, name: String, outputs: usize) -> [Part<'_>; 1] {
    [part(source, name, outputs, 0, 1)]
}

/// Reads a vector of `len` values.
fn vector(source: &dyn TensorSource, name: &str, len: usize) -> Result<Vec<f32>, LmError> {
    let mut buffer = RowBuffer::default();
    Ok(source.rows(name, 0..len, &mut buffer)?.to_vec())
}

impl Weights {
    /// Packs the weights of a model.
    pub(crate) fn of(
        weights: WeightType,
        compact: bool,
        source: &dyn TensorSource,
        pool: &Pool,
    ) -> Result<Self, LmError> {
        let compact = compact && (weights != WeightType::F32 || exact_in_bf16(source, pool)?);
        let mut of = Self::new(source.config(), weights, compact);
        of.load(source, pool)?;
        Ok(of)
    }

    /// The meaning of `choice` for a model of this shape: true for compact.
    pub(crate) fn choose(
        choice: Compact,
        kernels: Kernels,
        config: &LmConfig,
        weights: WeightType,
    ) -> bool {
        if !can_be_compact(weights) {
            return false;
        }
        match choice {
            Compact::On => true,
            Compact::Off => false,
            Compact::Auto => {
                let pays = match kernels.choice {
                    KernelChoice::Portable => false,
                    KernelChoice::Avx512 | KernelChoice::Amx => true,
                    _ => weights == WeightType::F32,
                };
                pays && Shapes::of(config).room(weights, false) >= COMPACT_FROM
            }
        }
    }

    /// Size in bytes of the weights of a model of this shape, either all compact or all plain.
    pub(crate) fn bytes_for(config: &LmConfig, weights: WeightType, compact: bool) -> usize {
        let cells = config.vocab_size * config.hidden_size;
        let embedding = match weights {
            WeightType::F32 => size_of::<f32>(),
            _ => size_of::<half::bf16>(),
        };
        let vectors: usize = expected_tensors(config)
            .into_iter()
            .filter(|(_, shape)| shape.len() == 1)
            .map(|(_, shape)| shape[0] * size_of::<f32>())
            .sum();
        Shapes::of(config).room(weights, compact) + cells * embedding + vectors
    }

    /// Allocates the weights of a model of this shape. They must be loaded before use.
    pub(crate) fn new(config: &LmConfig, weights: WeightType, compact: bool) -> Self {
        let shapes = Shapes::of(config);
        let cells = config.vocab_size * config.hidden_size;
        let embedding = match weights {
            WeightType::F32 => Arena::bytes_of::<f32>(cells),
            _ => Arena::bytes_of::<half::bf16>(cells),
        };
        // A matrix for which compact storage does not pay frees its compact panels, which is only
        // possible if no other matrix shares the memory.
        let room = |(inputs, panels)| PackedMatrix::room(inputs, panels, weights, compact);
        let apart = |shape| compact && Arena::is_large(room(shape));
        let together = |shape| if apart(shape) { 0 } else { room(shape) };
        let blocks: usize = shapes.block.into_iter().map(together).sum();
        let matrices = config.num_layers * blocks + together(shapes.head);
        let arena = &mut Arena::new(matrices + embedding);
        let mut matrix = |shape: (usize, usize)| {
            let (inputs, panels) = shape;
            let mut own = apart(shape).then(|| Arena::new(room(shape)));
            let arena = own.as_mut().unwrap_or(&mut *arena);
            PackedMatrix::new(arena, inputs, panels, weights, compact)
        };
        let blocks = (0..config.num_layers)
            .map(|_| Arc::new(BlockWeights::new(config, shapes.block.map(&mut matrix))))
            .collect();
        let head = Arc::new(matrix(shapes.head));
        Self {
            config: config.clone(),
            kind: weights,
            embedding: Arc::new(match weights {
                WeightType::F32 => Embedding::F32(arena.take(cells)),
                WeightType::F16 => Embedding::F16(arena.take(cells)),
                // A token reads one row: narrower storage would save too little for its error.
                _ => Embedding::Bf16(arena.take(cells)),
            }),
            blocks,
            norm: Vec::new(),
            head,
        }
    }

    /// These weights with the last blocks and the last norm of `tail`, which are packed on all
    /// threads. Everything else is shared.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] for a tail of another model; a tail that lacks tensors.
    pub(crate) fn with_tail(&self, tail: &Tail, pool: &Pool) -> Result<Self, LmError> {
        if tail.config != self.config {
            return Err(LmError::OtherModel);
        }
        TensorSource::check(tail)?;
        let (config, weights, compact) = (&self.config, self.kind, self.is_compact());
        let shapes = Shapes::of(config);
        let mut blocks = self.blocks[..tail.first].to_vec();
        for layer in tail.first..config.num_layers {
            let matrices = shapes.block.map(|(inputs, panels)| {
                let room = PackedMatrix::room(inputs, panels, weights, compact);
                PackedMatrix::new(&mut Arena::new(room), inputs, panels, weights, compact)
            });
            let mut block = BlockWeights::new(config, matrices);
            block.load(tail, layer, pool)?;
            blocks.push(Arc::new(block));
        }
        Ok(Self {
            config: config.clone(),
            kind: weights,
            embedding: Arc::clone(&self.embedding),
            blocks,
            norm: norm(tail, FINAL_NORM, config.hidden_size)?,
            head: Arc::clone(&self.head),
        })
    }

    /// True if no other owner reads any of these weights, so that they may be overwritten.
    pub(crate) fn is_alone(&self) -> bool {
        let blocks = self.blocks.iter();
        Arc::strong_count(&self.embedding) == 1
            && Arc::strong_count(&self.head) == 1
            && blocks.map(Arc::strong_count).all(|holders| holders == 1)
    }

    /// Overwrites every weight in place, on all threads. The weights must [be
    /// unshared](Self::is_alone).
    pub(crate) fn load(&mut self, source: &dyn TensorSource, pool: &Pool) -> Result<(), LmError> {
        let config = source.config();
        if let Some(embedding) = Arc::get_mut(&mut self.embedding) {
            embedding.load(source, pool)?;
        }
        let head = match config.tie_word_embeddings {
            true => EMBEDDING,
            false => HEAD,
        };
        let head = whole(source, head.into(), config.vocab_size);
        if let Some(own) = Arc::get_mut(&mut self.head) {
            own.pack(&head, pool)?;
        }
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            if let Some(block) = Arc::get_mut(block) {
                block.load(source, layer, pool)?;
            }
        }
        self.norm = norm(source, FINAL_NORM, config.hidden_size)?;
        Ok(())
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.embedding.bytes()
            + self.bytes_per_token()
            + self
                .blocks
                .iter()
                .map(|block| block.vector_bytes())
                .sum::<usize>()
    }

    /// True if any matrix is compact.
    pub(crate) fn is_compact(&self) -> bool {
        self.matrices().any(PackedMatrix::is_compact)
    }

    /// Every matrix, in the order of a forward.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        let in_blocks = self.blocks.iter().flat_map(|block| block.matrices());
        in_blocks.chain([&*self.head])
    }

    /// Size in bytes of the matrices, all of which a forward reads.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.matrices().map(PackedMatrix::bytes).sum()
    }
}

impl BlockWeights {
    /// A block with room for these matrices, in the order of [`Shapes::block`].
    fn new(config: &LmConfig, [qkv, out, gate_up, down]: [PackedMatrix; 4]) -> Self {
        let biased = |matrix: PackedMatrix, there: bool| BiasedMatrix {
            bias: vec![0.0; if there { matrix.panels * PANEL } else { 0 }],
            matrix,
        };
        let biases = config.block.biases;
        Self {
            norms: BlockNorms::default(),
            qkv: biased(qkv, biases.qkv),
            out: biased(out, biases.out),
            gate_up: biased(gate_up, biases.mlp),
            down: biased(down, biases.mlp),
        }
    }

    fn load(
        &mut self,
        source: &dyn TensorSource,
        layer: usize,
        pool: &Pool,
    ) -> Result<(), LmError> {
        let config = source.config();
        let (d, inner) = (config.hidden_size, config.intermediate_size);
        let (q_width, kv_width) = (config.q_width(), config.kv_width());
        let (q, kv) = (panels(q_width), panels(kv_width));
        self.norms = BlockNorms::read(source, layer)?;
        let qkv = [
            ("self_attn.q_proj", q_width, 0, 1),
            ("self_attn.k_proj", kv_width, q, 1),
            ("self_attn.v_proj", kv_width, q + kv, 1),
        ];
        self.qkv.load(source, layer, &qkv, pool)?;
        let out = [("self_attn.o_proj", d, 0, 1)];
        self.out.load(source, layer, &out, pool)?;
        let gate_up = [("mlp.gate_proj", inner, 0, 2), ("mlp.up_proj", inner, 1, 2)];
        self.gate_up.load(source, layer, &gate_up, pool)?;
        let down = [("mlp.down_proj", d, 0, 1)];
        self.down.load(source, layer, &down, pool)
    }

    fn projections(&self) -> [&BiasedMatrix; 4] {
        [&self.qkv, &self.out, &self.gate_up, &self.down]
    }

    pub(crate) fn matrices(&self) -> [&PackedMatrix; 4] {
        self.projections().map(|biased| &biased.matrix)
    }

    fn vector_bytes(&self) -> usize {
        let biases = self.projections().map(|biased| biased.bias.len());
        size_of::<f32>() * (self.norms.len() + biases.iter().sum::<usize>())
    }
}

impl BiasedMatrix {
    /// Reads projections of block `layer`, given by name, number of outputs, first panel, and
    /// distance between panels.
    fn load(
        &mut self,
        source: &dyn TensorSource,
        layer: usize,
        projections: &[(&str, usize, usize, usize)],
        pool: &Pool,
    ) -> Result<(), LmError> {
        let name = |projection: &str, kind: &str| in_layer(layer, &format!("{projection}.{kind}"));
        let mut parts = Vec::new();
        for &(projection, outputs, first, step) in projections {
            if !self.bias.is_empty() {
                let bias = vector(source, &name(projection, "bias"), outputs)?;
                for (panel, values) in bias.chunks(PANEL).enumerate() {
                    let at = (first + panel * step) * PANEL;
                    self.bias[at..at + values.len()].copy_from_slice(values);
                }
            }
            let weights = name(projection, "weight");
            parts.push(part(source, weights, outputs, first, step));
        }
        self.matrix.pack(&parts, pool)
    }
}

impl Embedding {
    fn load(&mut self, source: &dyn TensorSource, pool: &Pool) -> Result<(), LmError> {
        match self {
            Self::F32(to) => load_rows(to, source, pool, |value| value),
            Self::F16(to) => load_rows(to, source, pool, saturated_half),
            Self::Bf16(to) => load_rows(to, source, pool, half::bf16::from_f32),
        }
    }

    /// Copies the row of token `id` to `to`, which must have the row's length.
    pub(crate) fn row(&self, id: u32, to: &mut [f32]) {
        let range = id as usize * to.len()..(id as usize + 1) * to.len();
        match self {
            Self::F32(rows) => to.copy_from_slice(&rows[range]),
            Self::F16(rows) => rows[range].convert_to_f32_slice(to),
            Self::Bf16(rows) => rows[range].convert_to_f32_slice(to),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(rows) => size_of_val::<[_]>(rows),
            Self::F16(rows) => size_of_val::<[_]>(rows),
            Self::Bf16(rows) => size_of_val::<[_]>(rows),
        }
    }
}

/// Reads the embedding into `to`, on all threads.
fn load_rows<T: Send>(
    to: &mut [T],
    source: &dyn TensorSource,
    pool: &Pool,
    convert: impl Fn(f32) -> T + Sync,
) -> Result<(), LmError> {
    let (rows, width) = (source.config().vocab_size, source.config().hidden_size);
    let parts = whole(source, EMBEDDING.into(), rows);
    let slots = to.chunks_mut(PANEL * width);
    for_each_panel(&parts, width, slots, pool, |to, rows, _| {
        for (to, from) in to.iter_mut().zip(rows) {
            *to = convert(*from);
        }
        true
    })
}
