//! A model on the device.

use cubecl::prelude::*;
use cubecl::server::Handle;
use lm::{
    EMBEDDING, FINAL_NORM, HEAD, LmConfig, LmError, QkNorm, RowBuffer, TensorSource, WeightType,
    in_layer,
};

use crate::device::{Gpu, arg, upload, words, write};
use crate::kernels::project::Format;
use crate::layout::{Packed, Part, Shape, fill_pairs, pack};

/// Rows of activations are padded with zeros to a multiple of this number, the longest piece of
/// weights.
pub(crate) const PADDING: usize = 32;
/// Number of rows of the embedding read at a time.
const ROWS: usize = 4096;

/// Padded length of a row of activations.
pub(crate) fn stride(width: usize) -> usize {
    width.next_multiple_of(PADDING)
}

/// A matrix, and its bias if it has one.
pub(crate) struct Matrix {
    pub(crate) shape: Shape,
    pub(crate) words: Handle,
    pub(crate) scales: Handle,
    pub(crate) units: Handle,
    pub(crate) bias: Option<Handle>,
}

/// One block. Norms that a model lacks are `None`.
pub(crate) struct BlockWeights {
    pub(crate) attention_in: Option<Handle>,
    pub(crate) attention_out: Option<Handle>,
    pub(crate) mlp_in: Option<Handle>,
    pub(crate) mlp_out: Option<Handle>,
    pub(crate) query_norm: Option<Handle>,
    pub(crate) key_norm: Option<Handle>,
    /// Queries, keys, values.
    pub(crate) qkv: Matrix,
    pub(crate) out: Matrix,
    /// Gate and up rows in turn.
    pub(crate) gate_up: Matrix,
    pub(crate) down: Matrix,
}

/// Rows of the embedding.
pub(crate) struct Table {
    pub(crate) words: Handle,
    /// Length of a row in words.
    pub(crate) row: usize,
    pub(crate) rows: usize,
    /// Format of a word: one f32, or two f16 or bf16.
    pub(crate) format: Format,
}

/// All weights of a model on a device.
pub(crate) struct Weights {
    pub(crate) gpu: Gpu,
    pub(crate) config: LmConfig,
    pub(crate) kind: WeightType,
    pub(crate) table: Table,
    pub(crate) blocks: Vec<BlockWeights>,
    pub(crate) norm: Handle,
    pub(crate) head: Matrix,
    /// All buffers, in the order in which a loader fills them.
    buffers: Vec<Handle>,
    /// Size on the device in bytes.
    pub(crate) bytes: usize,
    /// Size in bytes of the matrices, all of which a forward reads.
    pub(crate) per_forward: usize,
}

/// The sizes of the matrices of a model.
pub(crate) struct Shapes {
    pub(crate) qkv: Shape,
    pub(crate) out: Shape,
    pub(crate) gate_up: Shape,
    pub(crate) down: Shape,
    pub(crate) head: Shape,
}

impl Shapes {
    pub(crate) fn of(config: &LmConfig, weights: WeightType) -> Self {
        let shape = |outputs, inputs| Shape {
            outputs,
            inputs,
            format: Format::from(weights),
        };
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        Self {
            qkv: shape(q + 2 * kv, d),
            out: shape(d, q),
            gate_up: shape(2 * f, d),
            down: shape(d, f),
            head: shape(config.vocab_size, d),
        }
    }

    fn largest(&self) -> usize {
        let all = [&self.qkv, &self.out, &self.gate_up, &self.down, &self.head];
        let bytes = all.map(|shape| shape.words() * size_of::<u32>());
        bytes.into_iter().max().unwrap_or(0)
    }
}

/// Reads and uploads the weights.
struct Loader<'a> {
    gpu: &'a Gpu,
    source: &'a dyn TensorSource,
    threads: usize,
    /// Buffers to overwrite, in the order in which they were filled. Where there are none, new ones
    /// are made.
    old: std::slice::Iter<'a, Handle>,
    /// Buffers filled so far, in order.
    put: Vec<Handle>,
    bytes: usize,
}

impl Loader<'_> {
    fn put(&mut self, words: &[u32]) -> Handle {
        self.bytes += size_of_val(words);
        let old = self.old.next();
        let handle = self.gpu.run(|client| {
            client.memory_persistent_allocation((), |()| match old {
                Some(handle) => {
                    write(client, handle, words);
                    handle.clone()
                }
                None => upload(client, words),
            })
        });
        self.put.push(handle.clone());
        handle
    }

    /// A matrix without a bias.
    fn matrix(&mut self, parts: &[Part], shape: Shape) -> Result<Matrix, LmError> {
        let Packed {
            words: packed,
            scales,
            units,
        } = pack(self.source, parts, shape, self.threads)?;
        Ok(Matrix {
            shape,
            words: self.put(&packed),
            scales: self.put(&scales),
            units: self.put(words(&units)),
            bias: None,
        })
    }

    /// A projection of a block: the rows of its parts one after the other, or alternating, and
    /// their biases in the same order.
    fn projection(
        &mut self,
        layer: usize,
        biased: bool,
        parts: &[(&str, usize)],
        in_turn: bool,
        shape: Shape,
    ) -> Result<Matrix, LmError> {
        let name = |part: &str, kind: &str| in_layer(layer, &format!("{part}.{kind}"));
        let (mut weights, mut end) = (Vec::new(), 0);
        for (i, (part, rows)) in parts.iter().enumerate() {
            let (first, step) = match in_turn {
                true => (i, parts.len()),
                false => (end, 1),
            };
            weights.push(Part {
                name: name(part, "weight"),
                rows: *rows,
                first,
                step,
            });
            end += rows;
        }
        let mut matrix = self.matrix(&weights, shape)?;
        if biased {
            let mut bias = vec![0.0; end];
            for ((part, rows), Part { first, step, .. }) in parts.iter().zip(&weights) {
                let read = self.read(&name(part, "bias"), *rows)?;
                let to = bias[*first..].iter_mut().step_by(*step);
                to.zip(read).for_each(|(to, read)| *to = read);
            }
            matrix.bias = Some(self.put(words(&bias)));
        }
        Ok(matrix)
    }

    fn read(&self, name: &str, len: usize) -> Result<Vec<f32>, LmError> {
        let mut buffer = RowBuffer::default();
        Ok(self.source.rows(name, 0..len, &mut buffer)?.to_vec())
    }

    /// The weight of a norm, in the form that multiplies, padded to `padded`.
    fn norm(&mut self, name: &str, len: usize, padded: usize) -> Result<Handle, LmError> {
        let mut weight = self.read(name, len)?;
        if self.source.config().norm_offset {
            weight.iter_mut().for_each(|weight| *weight += 1.0);
        }
        weight.resize(padded, 0.0);
        Ok(self.put(words(&weight)))
    }

    fn table(&mut self, format: Format) -> Result<Table, LmError> {
        let config = self.source.config();
        let (vocab, d) = (config.vocab_size, config.hidden_size);
        // As long as a row of the head, since a tied head is this table.
        let row = match format {
            Format::F32 => d.next_multiple_of(4),
            _ => d.next_multiple_of(8) / 2,
        };
        let mut table = vec![0; vocab * row];
        let mut buffer = RowBuffer::default();
        for (i, to) in table.chunks_mut(ROWS * row).enumerate() {
            let rows = i * ROWS..(i * ROWS + to.len() / row);
            let weights = self.source.rows(EMBEDDING, rows, &mut buffer)?;
            for (weights, to) in weights.chunks_exact(d).zip(to.chunks_exact_mut(row)) {
                match format {
                    Format::F32 => to
                        .iter_mut()
                        .zip(weights)
                        .for_each(|(to, weight)| *to = weight.to_bits()),
                    _ => fill_pairs(format, weights, to),
                }
            }
        }
        Ok(Table {
            words: self.put(&table),
            row,
            rows: vocab,
            format,
        })
    }

    fn block(&mut self, layer: usize, shapes: &Shapes) -> Result<BlockWeights, LmError> {
        let config = self.source.config();
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        let [attention_in, attention_out, mlp_in, mlp_out] = config.block.norms.names();
        let mut norm = |name: Option<&str>| match name {
            None => Ok(None),
            Some(name) => self.norm(&in_layer(layer, name), d, stride(d)).map(Some),
        };
        let attention_in = norm(attention_in)?;
        let attention_out = norm(attention_out)?;
        let mlp_in = norm(mlp_in)?;
        let mlp_out = norm(mlp_out)?;
        let (of_queries, of_keys) = match config.block.qk_norm {
            QkNorm::None => (None, None),
            QkNorm::Head => (Some(config.head_dim), Some(config.head_dim)),
            QkNorm::Full => (Some(q), Some(kv)),
        };
        let mut heads = |name: &str, len: Option<usize>| match len {
            None => Ok(None),
            Some(len) => self.norm(&in_layer(layer, name), len, len).map(Some),
        };
        let biases = config.block.biases;
        Ok(BlockWeights {
            attention_in,
            attention_out,
            mlp_in,
            mlp_out,
            query_norm: heads("self_attn.q_norm.weight", of_queries)?,
            key_norm: heads("self_attn.k_norm.weight", of_keys)?,
            qkv: self.projection(
                layer,
                biases.qkv,
                &[
                    ("self_attn.q_proj", q),
                    ("self_attn.k_proj", kv),
                    ("self_attn.v_proj", kv),
                ],
                false,
                shapes.qkv,
            )?,
            out: self.projection(
                layer,
                biases.out,
                &[("self_attn.o_proj", d)],
                false,
                shapes.out,
            )?,
            gate_up: self.projection(
                layer,
                biases.mlp,
                &[("mlp.gate_proj", f), ("mlp.up_proj", f)],
                true,
                shapes.gate_up,
            )?,
            down: self.projection(
                layer,
                biases.mlp,
                &[("mlp.down_proj", d)],
                false,
                shapes.down,
            )?,
        })
    }

    fn all(mut self, weights: WeightType) -> Result<Weights, LmError> {
        let config = self.source.config();
        let shapes = Shapes::of(config, weights);
        let d = config.hidden_size;
        // A token reads one row: narrower storage would save too little for its error.
        let format = match weights {
            WeightType::F32 => Format::F32,
            WeightType::F16 => Format::F16,
            _ => Format::Bf16,
        };
        let table = Shape {
            outputs: config.vocab_size,
            inputs: d,
            format,
        };
        self.gpu
            .check_size(shapes.largest().max(table.words() * size_of::<u32>()))?;
        let table = self.table(format)?;
        let norm = self.norm(FINAL_NORM, d, stride(d))?;
        let blocks = (0..config.num_layers)
            .map(|layer| self.block(layer, &shapes))
            .collect::<Result<Vec<_>, _>>()?;
        let same = table.format == shapes.head.format;
        let tied = config.tie_word_embeddings && same;
        let head = match tied {
            true => Matrix {
                shape: shapes.head,
                words: table.words.clone(),
                scales: self.gpu.nothing().clone(),
                units: self.gpu.nothing().clone(),
                bias: None,
            },
            false => {
                let name = match config.tie_word_embeddings {
                    true => EMBEDDING,
                    false => HEAD,
                };
                let part = Part {
                    name: name.into(),
                    rows: config.vocab_size,
                    first: 0,
                    step: 1,
                };
                self.matrix(&[part], shapes.head)?
            }
        };
        let of_block = [&shapes.qkv, &shapes.out, &shapes.gate_up, &shapes.down];
        let of_block: usize = of_block.into_iter().map(Shape::bytes).sum();
        Ok(Weights {
            gpu: self.gpu.clone(),
            config: config.clone(),
            kind: weights,
            table,
            blocks,
            norm,
            buffers: self.put,
            bytes: self.bytes,
            per_forward: config.num_layers * of_block + shapes.head.bytes(),
            head,
        })
    }
}

impl Weights {
    /// Packs a model on so many threads and uploads it, into the buffers of `old` if those are
    /// given.
    pub(crate) fn load(
        gpu: &Gpu,
        source: &dyn TensorSource,
        weights: WeightType,
        threads: usize,
        old: Option<&Self>,
    ) -> Result<Self, LmError> {
        let loader = Loader {
            gpu,
            source,
            threads: threads.max(1),
            old: old.map_or(&[] as &[Handle], |old| &old.buffers).iter(),
            put: Vec::new(),
            bytes: 0,
        };
        loader.all(weights)
    }
}

impl Matrix {
    pub(crate) fn words_arg(&self) -> BufferArg {
        arg(&self.words, self.shape.words() / 4)
    }

    pub(crate) fn scales_arg(&self) -> BufferArg {
        arg(&self.scales, self.shape.scales().max(1))
    }

    pub(crate) fn units_arg(&self) -> BufferArg {
        arg(&self.units, self.shape.units().max(1))
    }
}
