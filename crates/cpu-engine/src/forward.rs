//! One pass through the blocks for a bounded number of tokens.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lm::host::{RotaryTable, RotaryTables};
use lm::{LmConfig, Norms, QkNorm};

use crate::cache::{Cache, Place, Stored};
use crate::kernels::fused::{AttentionCall, AttentionScratch, Epilogue};
use crate::kernels::gemm::{Rows, Store};
use crate::kernels::out::Out;
use crate::kernels::parallel::Executor;
use crate::kernels::quant::QuantScratch;
use crate::kernels::simd::PANEL;
use crate::kernels::vector::RmsNorm;
use crate::states::States;
use crate::weights::{BiasedMatrix, BlockWeights, Weights, panels};

/// Largest number of tokens of one pass. Longer inputs take several passes, with the same results
/// by batch invariance. It is large enough that reading the weights costs nothing beside
/// multiplying, and small enough that activations stay in cache.
pub(crate) const PASS_TOKENS: usize = 48;

/// Activations of a pass, allocated once.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Residual stream, `[tokens][hidden_size]`.
    hidden: Vec<f32>,
    /// Normalised residual stream.
    normed: Vec<f32>,
    /// Fused projection, each part padded to whole panels.
    qkv: Vec<f32>,
    /// Rotated queries, `[kv_heads][tokens][group][head_dim]` of one sequence after the other.
    queries: Vec<f32>,
    /// Output of the heads, `[tokens][heads * head_dim]`.
    mixed: Vec<f32>,
    /// Gate and up projections, panels alternating.
    gate_up: Vec<f32>,
    /// Gated activations, `[tokens][intermediate_size]`.
    gated: Vec<f32>,
    /// Output of attention or MLP, if it is changed before it is added to the residual stream; else
    /// empty.
    branch: Vec<f32>,
    /// One rotated key.
    key: Vec<f32>,
    /// Normalised heads of one position, if the model normalises them; else empty.
    heads: Vec<f32>,
    /// Input of the projection at hand, for integer weights.
    quantised: QuantScratch,
    attention: Vec<Mutex<AttentionScratch>>,
}

impl Scratch {
    /// Buffers for a model. `rounded` is true if projections read activations narrower than f32.
    pub(crate) fn new(config: &LmConfig, threads: usize, rounded: bool) -> Self {
        let widest = config
            .hidden_size
            .max(config.q_width())
            .max(config.intermediate_size);
        let rows = |width: usize| vec![0.0; PASS_TOKENS * width];
        let attention = || Mutex::new(AttentionScratch::new(config.head_dim));
        Self {
            hidden: rows(config.hidden_size),
            normed: rows(config.hidden_size),
            qkv: rows(qkv_stride(config)),
            queries: rows(config.q_width()),
            mixed: rows(config.q_width()),
            gate_up: rows(2 * panels(config.intermediate_size) * PANEL),
            gated: rows(config.intermediate_size),
            branch: rows(if adds_at_once(config) {
                0
            } else {
                config.hidden_size
            }),
            key: vec![0.0; config.head_dim],
            heads: match config.block.qk_norm {
                QkNorm::None => Vec::new(),
                _ => vec![0.0; config.q_width()],
            },
            quantised: QuantScratch::new(if rounded { PASS_TOKENS } else { 0 }, widest),
            attention: std::iter::repeat_with(attention).take(threads).collect(),
        }
    }

    /// Makes room for a context of `len` tokens.
    pub(crate) fn reserve(&mut self, len: usize) {
        for scratch in &mut self.attention {
            let scratch = scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
            scratch.reserve(len);
        }
    }

    /// Normalised state of one of the tokens scored by the last pass, `[width]`.
    pub(crate) fn normed(&self, token: usize, width: usize) -> &[f32] {
        &self.normed[token * width..][..width]
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let buffers = [
            &self.hidden,
            &self.normed,
            &self.qkv,
            &self.queries,
            &self.mixed,
            &self.gate_up,
            &self.gated,
            &self.branch,
            &self.key,
            &self.heads,
        ];
        let floats: usize = buffers.into_iter().map(|buffer| buffer.len()).sum();
        let attention: usize = self
            .attention
            .iter()
            .filter_map(|s| s.lock().ok().map(|s| s.bytes()))
            .sum();
        floats * size_of::<f32>() + attention + self.quantised.bytes()
    }
}

/// Number of columns of the fused query, key and value projection, padded.
fn qkv_stride(config: &LmConfig) -> usize {
    (panels(config.q_width()) + 2 * panels(config.kv_width())) * PANEL
}

/// True if the residual stream takes the outputs of attention and MLP unchanged.
fn adds_at_once(config: &LmConfig) -> bool {
    let block = &config.block;
    let biased = block.biases.out || block.biases.mlp;
    block.norms == Norms::Before && block.residual_scale == 1.0 && !biased
}

/// The part of a pass that belongs to one sequence.
pub(crate) struct Stretch<'a> {
    pub(crate) rope: &'a RotaryTables,
    pub(crate) cache: &'a mut Cache,
    /// Kept input states of a block, if any are kept.
    pub(crate) states: Option<&'a mut States>,
    /// Number of tokens in the cache before the pass.
    pub(crate) start: usize,
    /// Number of tokens of the pass, alternatives included.
    pub(crate) count: usize,
    /// Alternatives, its last tokens. Their keys and values stand in the cache after those of the
    /// others.
    pub(crate) alternatives: &'a [Run],
}

/// Tokens in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Position of the first one.
    pub(crate) position: usize,
    /// Number of tokens.
    pub(crate) count: usize,
}

impl<'a> Stretch<'a> {
    /// The parts whose queries are a block: the tokens before the alternatives, then each of these.
    /// First token of the pass, and the tokens in a row.
    fn parts(&self) -> impl Iterator<Item = (usize, Run)> + Clone + use<'a> {
        let alternatives = self.alternatives;
        let own: usize = alternatives.iter().map(|run| run.count).sum();
        let main = Run {
            position: self.start,
            count: self.count - own,
        };
        let mut first = 0;
        std::iter::once(main)
            .chain(alternatives.iter().copied())
            .map(move |run| {
                let part = (first, run);
                first += run.count;
                part
            })
    }

    /// Position of a token of the pass.
    fn position(&self, i: usize) -> usize {
        let mut parts = self.parts();
        let own = parts.find(|(first, run)| i < first + run.count);
        own.map_or(self.start + i, |(first, run)| run.position + i - first)
    }
}

/// Everything that a pass reads and writes.
pub(crate) struct Pass<'a, 's> {
    pub(crate) config: &'a LmConfig,
    pub(crate) weights: &'a Weights,
    pub(crate) executor: &'a Executor,
    pub(crate) scratch: &'a mut Scratch,
    /// The sequences. Their tokens are rows of the same products, one sequence after the other.
    pub(crate) stretches: &'a mut [Stretch<'s>],
    /// Number of tokens of all sequences.
    pub(crate) count: usize,
}

impl Pass<'_, '_> {
    /// Appends `ids` to the caches and scores the last of them, as many as `logits`
    /// (`[scored][vocab_size]`) has room for. With more than one sequence, all must be scored.
    pub(crate) fn run(&mut self, ids: &[u32], logits: &mut [f32]) {
        let (width, vocab) = (self.config.hidden_size, self.config.vocab_size);
        for (id, row) in ids.iter().zip(self.scratch.hidden.chunks_exact_mut(width)) {
            self.weights.embedding.row(*id, row);
            if self.config.embedding_scale != 1.0 {
                row.iter_mut()
                    .for_each(|x| *x *= self.config.embedding_scale);
            }
        }
        let weights = self.weights;
        let scored = logits.len() / vocab;
        self.keep_ids(ids);
        for (layer, block) in weights.blocks.iter().enumerate() {
            self.keep_states(layer);
            if layer + 1 == weights.blocks.len() {
                self.leave_unscored(layer, block, scored);
            }
            self.attention(layer, block);
            self.mlp(block);
        }
        self.norm(&weights.norm);
        let x = rows(&self.scratch.normed, width, self.count);
        let (divisor, cap) = (self.config.logit_divisor, self.config.logit_cap);
        let epilogue = match (divisor, cap) {
            (1.0, None) => Epilogue::None(Store::Set),
            _ => Epilogue::Logits { divisor, cap },
        };
        self.executor.project(
            x,
            &weights.head,
            epilogue,
            &mut self.scratch.quantised,
            Out::new(logits, vocab, vocab),
        );
    }

    /// Records the tokens of the states to keep.
    fn keep_ids(&mut self, ids: &[u32]) {
        let mut rest = ids;
        for stretch in &mut *self.stretches {
            let (own, after) = rest.split_at(stretch.count);
            rest = after;
            if let Some(states) = &mut stretch.states {
                states.note(stretch.start, own);
            }
        }
    }

    /// Keeps the residual stream for sequences that keep the input of this block.
    fn keep_states(&mut self, layer: usize) {
        let mut rows = &self.scratch.hidden[..];
        for stretch in &mut *self.stretches {
            let (own, after) = rows.split_at(stretch.count * self.config.hidden_size);
            rows = after;
            if let Some(states) = &mut stretch.states {
                states.keep(layer, stretch.start, own);
            }
        }
    }

    /// Drops all but the last `scored` tokens. Of the others the last block computes only keys and
    /// values, since no other result would be read.
    fn leave_unscored(&mut self, layer: usize, block: &BlockWeights, scored: usize) {
        let (width, count) = (self.config.hidden_size, self.count);
        let unscored = count - scored;
        if unscored == 0 {
            return;
        }
        let [stretch] = &mut *self.stretches else {
            // Several sequences are scored whole.
            return;
        };
        (self.count, stretch.count) = (unscored, unscored);
        self.norm(&block.norms.attention_in);
        let keys = panels(self.config.q_width());
        self.project_qkv(block, keys..block.qkv.matrix.panels);
        self.keep_keys(layer, block);
        self.scratch
            .hidden
            .copy_within(unscored * width..count * width, 0);
        self.count = scored;
        for stretch in &mut *self.stretches {
            stretch.start += unscored;
            stretch.count = scored;
        }
    }

    /// Normalises the residual stream. Without a weight it is copied.
    fn norm(&mut self, weight: &[f32]) {
        let width = self.config.hidden_size;
        if weight.is_empty() {
            let used = ..self.count * width;
            self.scratch.normed[used].copy_from_slice(&self.scratch.hidden[used]);
            return;
        }
        let eps = self.config.rms_norm_eps as f32;
        let hidden = self.scratch.hidden.chunks_exact(width);
        let normed = self.scratch.normed.chunks_exact_mut(width);
        for (x, out) in hidden.zip(normed).take(self.count) {
            self.executor.kernels.run(RmsNorm {
                x,
                weight,
                eps,
                out,
            });
        }
    }

    fn attention(&mut self, layer: usize, block: &BlockWeights) {
        self.norm(&block.norms.attention_in);
        self.project_qkv(block, 0..block.qkv.matrix.panels);
        self.keep_keys(layer, block);
        self.rotate_queries(layer, block);
        let (config, executor, width) = (self.config, self.executor, self.config.q_width());
        let mut row = 0;
        for stretch in &mut *self.stretches {
            let Scratch {
                queries,
                mixed,
                attention,
                ..
            } = &mut *self.scratch;
            let queries = &queries[row * width..];
            let calls = stretch.parts().map(|(first, run)| AttentionCall {
                queries: &queries[first * width..],
                shape: stretch.cache.shape,
                row: first,
                start: run.position,
                stored: stretch.start + first,
                count: run.count,
                group: config.num_heads / config.num_kv_heads,
                scale: config.block.attention_scale,
                cap: config.block.attention_cap,
                window: config.layer(layer).window.unwrap_or(usize::MAX),
            });
            let out = Out::new(&mut mixed[row * width..], width, width);
            match &stretch.cache.stored {
                Stored::F32(blocks) => executor.attend(calls, blocks.of(layer), attention, out),
                Stored::F16(blocks) => executor.attend(calls, blocks.of(layer), attention, out),
            }
            row += stretch.count;
        }
        self.add_branch(Half::Attention, block);
    }

    /// Adds the output of attention or MLP to the residual stream: its projection, with its bias,
    /// through its norm, times the residual multiplier.
    fn add_branch(&mut self, half: Half, block: &BlockWeights) {
        let config = self.config;
        let hidden = config.hidden_size;
        let scratch = &mut *self.scratch;
        let (x, width, BiasedMatrix { matrix, bias }, norm) = match half {
            Half::Attention => (
                &scratch.mixed,
                config.q_width(),
                &block.out,
                &block.norms.attention_out,
            ),
            Half::Mlp => (
                &scratch.gated,
                config.intermediate_size,
                &block.down,
                &block.norms.mlp_out,
            ),
        };
        let x = rows(x, width, self.count);
        if adds_at_once(config) {
            let out = Out::new(&mut scratch.hidden, hidden, hidden);
            let quantised = &mut scratch.quantised;
            self.executor
                .project(x, matrix, Epilogue::None(Store::Add), quantised, out);
            return;
        }
        let bias = Epilogue::Bias(bias);
        let out = Out::new(&mut scratch.branch, hidden, hidden);
        self.executor
            .project(x, matrix, bias, &mut scratch.quantised, out);
        let returned = scratch.branch.chunks_exact(hidden).take(self.count);
        for (row, to) in returned.zip(scratch.hidden.chunks_exact_mut(hidden)) {
            let row = match norm.as_slice() {
                [] => row,
                weight => {
                    self.executor.kernels.run(RmsNorm {
                        x: row,
                        weight,
                        eps: config.rms_norm_eps as f32,
                        out: &mut scratch.normed[..hidden],
                    });
                    &scratch.normed[..hidden]
                }
            };
            for (to, x) in to.iter_mut().zip(row) {
                *to += config.block.residual_scale * x;
            }
        }
    }

    /// Computes some panels of the fused projection.
    fn project_qkv(&mut self, block: &BlockWeights, panels: Range<usize>) {
        let stride = qkv_stride(self.config);
        let scratch = &mut *self.scratch;
        let x = rows(&scratch.normed, self.config.hidden_size, self.count);
        let out = Out::new(&mut scratch.qkv, stride, stride);
        self.executor.project_panels(
            x,
            &block.qkv.matrix,
            panels,
            Epilogue::Bias(&block.qkv.bias),
            &mut scratch.quantised,
            out,
        );
    }

    /// Normalises and rotates the keys, and writes keys and values to the cache.
    fn keep_keys(&mut self, layer: usize, block: &BlockWeights) {
        let (head_dim, width) = (self.config.head_dim, self.config.kv_width());
        let key_at = panels(self.config.q_width()) * PANEL;
        let value_at = key_at + panels(width) * PANEL;
        let Scratch {
            qkv, key, heads, ..
        } = &mut *self.scratch;
        let mut rows = qkv.chunks_exact(qkv_stride(self.config));
        for stretch in &mut *self.stretches {
            let rope = stretch.rope.of(self.config, layer);
            for (i, row) in rows.by_ref().take(stretch.count).enumerate() {
                let (position, stored) = (stretch.position(i), stretch.start + i);
                let keys = &row[key_at..][..width];
                let keys = normed_heads(self.executor, self.config, &block.norms.keys, keys, heads);
                for (kv_head, from) in keys.chunks_exact(head_dim).enumerate() {
                    turn(rope, position, from, key);
                    let value = &row[value_at + kv_head * head_dim..][..head_dim];
                    let place = Place {
                        block: layer,
                        kv_head,
                        position: stored,
                    };
                    stretch.cache.put(place, key, value);
                }
            }
        }
    }

    /// Normalises and rotates the queries.
    fn rotate_queries(&mut self, layer: usize, block: &BlockWeights) {
        let (head_dim, width) = (self.config.head_dim, self.config.q_width());
        let group = self.config.num_heads / self.config.num_kv_heads;
        let Scratch {
            qkv,
            queries,
            heads,
            ..
        } = &mut *self.scratch;
        let mut rows = qkv.chunks_exact(qkv_stride(self.config));
        let mut before = 0;
        for stretch in &*self.stretches {
            let rope = stretch.rope.of(self.config, layer);
            // The queries of a part are a contiguous block, because attention reads one part at a
            // time.
            for (_, run) in stretch.parts() {
                let queries = &mut queries[before * width..];
                before += run.count;
                for (i, row) in rows.by_ref().take(run.count).enumerate() {
                    let weight = &block.norms.queries;
                    let row =
                        normed_heads(self.executor, self.config, weight, &row[..width], heads);
                    for (head, from) in row.chunks_exact(head_dim).enumerate() {
                        let (kv_head, j) = (head / group, head % group);
                        let slot = ((kv_head * run.count + i) * group + j) * head_dim;
                        let to = &mut queries[slot..slot + head_dim];
                        turn(rope, run.position + i, from, to);
                    }
                }
            }
        }
    }

    fn mlp(&mut self, block: &BlockWeights) {
        self.norm(&block.norms.mlp_in);
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let stride = 2 * panels(inner) * PANEL;
        let scratch = &mut *self.scratch;
        let x = rows(&scratch.normed, hidden, self.count);
        self.executor.project_gated(
            x,
            &block.gate_up.matrix,
            Epilogue::Bias(&block.gate_up.bias),
            &mut scratch.quantised,
            Out::new(&mut scratch.gate_up, stride, stride),
            (
                self.config.block.activation,
                Out::new(&mut scratch.gated, inner, inner),
            ),
        );
        self.add_branch(Half::Mlp, block);
    }
}

/// One half of a block: attention or MLP.
#[derive(Clone, Copy)]
enum Half {
    Attention,
    Mlp,
}

/// Heads of one position after their norm, if the model has one. Each head is normalised by itself,
/// or all together if the weight is as long as all of them.
fn normed_heads<'a>(
    executor: &Executor,
    config: &LmConfig,
    weight: &[f32],
    from: &'a [f32],
    to: &'a mut [f32],
) -> &'a [f32] {
    if weight.is_empty() {
        return from;
    }
    let to = &mut to[..from.len()];
    let heads = from.chunks_exact(weight.len());
    for (x, out) in heads.zip(to.chunks_exact_mut(weight.len())) {
        let eps = config.rms_norm_eps as f32;
        executor.kernels.run(RmsNorm {
            x,
            weight,
            eps,
            out,
        });
    }
    to
}

/// Writes a head to `to`, rotated for its position if its layer rotates.
fn turn(rope: Option<&RotaryTable>, position: usize, head: &[f32], to: &mut [f32]) {
    match rope {
        Some(table) => table.rotate(position, head, to),
        None => to.copy_from_slice(head),
    }
}

/// The first `count` rows of a dense buffer.
fn rows(data: &[f32], stride: usize, count: usize) -> Rows<'_> {
    Rows {
        data,
        stride,
        count,
    }
}
