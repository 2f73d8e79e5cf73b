//! One pass through the blocks for a bounded number of tokens.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lm::LmConfig;
use lm::host::RotaryTable;

use crate::cache::{Cache, CacheShape, Place, Segment, Stored};
use crate::kernels::fused::{AttentionScratch, Epilogue};
use crate::kernels::gemm::Rows;
use crate::kernels::out::Out;
use crate::kernels::panel::PanelRow;
use crate::kernels::parallel::{AttentionCall, Executor};
use crate::kernels::quant::QuantScratch;
use crate::kernels::simd::PANEL;
use crate::kernels::vector::RmsNorm;
use crate::weights::{BlockWeights, Weights, panels};

/// Most tokens of one pass; longer inputs take several, which batch invariance makes equivalent.
/// Large enough that reading the weights costs nothing beside multiplying, small enough that
/// activations stay in cache.
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
    /// Rotated queries, `[kv_heads][tokens][group][head_dim]`.
    queries: Vec<f32>,
    /// Output of the heads, `[tokens][heads * head_dim]`.
    mixed: Vec<f32>,
    /// Gate and up projections, panels alternating.
    gate_up: Vec<f32>,
    /// Gated activations, `[tokens][intermediate_size]`.
    gated: Vec<f32>,
    /// One rotated key.
    key: Vec<f32>,
    /// Input of the projection at hand, for integer weights.
    quantised: QuantScratch,
    attention: Vec<Mutex<AttentionScratch>>,
}

impl Scratch {
    /// `rounded` says whether projections read activations narrower than f32.
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
            key: vec![0.0; config.head_dim],
            quantised: QuantScratch::new(if rounded { PASS_TOKENS } else { 0 }, widest),
            attention: std::iter::repeat_with(attention).take(threads).collect(),
        }
    }

    /// The longest context that there is room for.
    pub(crate) fn context(&mut self) -> usize {
        let scratch = self.attention.first_mut();
        scratch.map_or(usize::MAX, |scratch| {
            scratch
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .context()
        })
    }

    /// Makes room for a context of `len` tokens.
    pub(crate) fn reserve(&mut self, len: usize) {
        for scratch in &mut self.attention {
            let scratch = scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
            scratch.reserve(len);
        }
    }

    /// Normalised state of one of the tokens scored by the last pass.
    pub(crate) fn normed(&self, token: usize, width: usize) -> &[f32] {
        &self.normed[token * width..][..width]
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let buffers = [
            &self.hidden,
            &self.normed,
            &self.qkv,
            &self.queries,
            &self.mixed,
            &self.gate_up,
            &self.gated,
            &self.key,
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

/// Columns of the fused query, key and value projection.
fn qkv_stride(config: &LmConfig) -> usize {
    (panels(config.q_width()) + 2 * panels(config.kv_width())) * PANEL
}

/// Everything a pass touches.
pub(crate) struct Pass<'a> {
    pub(crate) config: &'a LmConfig,
    pub(crate) weights: &'a Weights,
    pub(crate) rope: &'a RotaryTable,
    pub(crate) executor: &'a Executor,
    pub(crate) cache: &'a mut Cache,
    pub(crate) scratch: &'a mut Scratch,
    /// Tokens in the cache before the pass.
    pub(crate) start: usize,
    /// Tokens of the pass.
    pub(crate) count: usize,
}

impl Pass<'_> {
    /// Appends `ids` to the cache and scores the last of them, as many as `logits`
    /// (`[scored][vocab_size]`) has room for.
    pub(crate) fn run(&mut self, ids: &[u32], logits: &mut [f32]) {
        let (width, vocab) = (self.config.hidden_size, self.config.vocab_size);
        for (id, row) in ids.iter().zip(self.scratch.hidden.chunks_exact_mut(width)) {
            self.weights.embedding.row(*id, row);
        }
        let weights = self.weights;
        let scored = logits.len() / vocab;
        for (layer, block) in weights.blocks.iter().enumerate() {
            if layer + 1 == weights.blocks.len() {
                self.leave_unscored(layer, block, scored);
            }
            self.attention(layer, block);
            self.mlp(block);
        }
        self.norm(&weights.norm);
        let x = rows(&self.scratch.normed, width, self.count);
        self.executor.project(
            x,
            &weights.head,
            Epilogue::None,
            &mut self.scratch.quantised,
            Out::new(logits, vocab, vocab),
        );
    }

    /// Goes on with the last `scored` tokens: of the others, the last block computes the keys and
    /// values, and nothing else of it would be read.
    fn leave_unscored(&mut self, layer: usize, block: &BlockWeights, scored: usize) {
        let (width, count) = (self.config.hidden_size, self.count);
        self.count = count - scored;
        self.norm(&block.attn_norm);
        let keys = panels(self.config.q_width());
        self.project_qkv(block, keys..block.qkv.panels());
        self.keep_keys(layer);
        let left = self.count * width..count * width;
        self.scratch.hidden.copy_within(left, 0);
        self.start += self.count;
        self.count = scored;
    }

    /// Normalises the residual stream.
    fn norm(&mut self, weight: &[f32]) {
        let width = self.config.hidden_size;
        let eps = self.config.rms_norm_eps as f32;
        let hidden = self.scratch.hidden.chunks_exact(width);
        let normed = self.scratch.normed.chunks_exact_mut(width);
        for (x, out) in hidden.zip(normed).take(self.count) {
            self.executor.inline(RmsNorm {
                x,
                weight,
                eps,
                out,
            });
        }
    }

    fn attention(&mut self, layer: usize, block: &BlockWeights) {
        self.norm(&block.attn_norm);
        self.project_qkv(block, 0..block.qkv.panels());
        self.keep_keys(layer);
        self.rotate_queries();
        let (hidden, q_width) = (self.config.hidden_size, self.config.q_width());
        let (at, shape) = ((self.start, self.count), self.cache.shape());
        let group = self.config.num_heads / self.config.num_kv_heads;
        let to = (self.executor, &mut *self.scratch, q_width);
        match &self.cache.stored {
            Stored::F32(blocks) => attend(to, blocks.of(layer), shape, at, group),
            Stored::F16(blocks) => attend(to, blocks.of(layer), shape, at, group),
        }
        let scratch = &mut *self.scratch;
        let x = rows(&scratch.mixed, q_width, self.count);
        let out = Out::new(&mut scratch.hidden, hidden, hidden);
        self.executor.project(
            x,
            &block.out,
            Epilogue::Residual,
            &mut scratch.quantised,
            out,
        );
    }

    /// Some panels of the fused projection.
    fn project_qkv(&mut self, block: &BlockWeights, panels: Range<usize>) {
        let stride = qkv_stride(self.config);
        let bias = match block.qkv_bias.as_slice() {
            [] => Epilogue::None,
            bias => Epilogue::Bias(bias),
        };
        let scratch = &mut *self.scratch;
        let x = rows(&scratch.normed, self.config.hidden_size, self.count);
        let out = Out::new(&mut scratch.qkv, stride, stride);
        self.executor
            .project_panels(x, &block.qkv, panels, bias, &mut scratch.quantised, out);
    }

    /// Rotates the keys; keys and values go to the cache.
    fn keep_keys(&mut self, layer: usize) {
        let head_dim = self.config.head_dim;
        let key_at = panels(self.config.q_width()) * PANEL;
        let value_at = key_at + panels(self.config.kv_width()) * PANEL;
        let Scratch { qkv, key, .. } = &mut *self.scratch;
        let rows = qkv.chunks_exact(qkv_stride(self.config));
        for (i, row) in rows.take(self.count).enumerate() {
            let position = self.start + i;
            for kv_head in 0..self.config.num_kv_heads {
                let at = kv_head * head_dim;
                self.rope
                    .rotate(position, &row[key_at + at..][..head_dim], key);
                let value = &row[value_at + at..][..head_dim];
                let place = Place {
                    block: layer,
                    kv_head,
                    position,
                };
                self.cache.put(place, key, value);
            }
        }
    }

    fn rotate_queries(&mut self) {
        let head_dim = self.config.head_dim;
        let group = self.config.num_heads / self.config.num_kv_heads;
        let Scratch { qkv, queries, .. } = &mut *self.scratch;
        let rows = qkv.chunks_exact(qkv_stride(self.config));
        for (i, row) in rows.take(self.count).enumerate() {
            for (head, from) in row
                .chunks_exact(head_dim)
                .take(self.config.num_heads)
                .enumerate()
            {
                let (kv_head, j) = (head / group, head % group);
                let slot = ((kv_head * self.count + i) * group + j) * head_dim;
                let to = &mut queries[slot..slot + head_dim];
                self.rope.rotate(self.start + i, from, to);
            }
        }
    }

    fn mlp(&mut self, block: &BlockWeights) {
        self.norm(&block.mlp_norm);
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let stride = 2 * panels(inner) * PANEL;
        let scratch = &mut *self.scratch;
        let x = rows(&scratch.normed, hidden, self.count);
        let gate_up = Out::new(&mut scratch.gate_up, stride, stride);
        let gated = Out::new(&mut scratch.gated, inner, inner);
        self.executor
            .project_gated(x, &block.gate_up, &mut scratch.quantised, gate_up, gated);
        let x = rows(&scratch.gated, inner, self.count);
        let out = Out::new(&mut scratch.hidden, hidden, hidden);
        self.executor.project(
            x,
            &block.down,
            Epilogue::Residual,
            &mut scratch.quantised,
            out,
        );
    }
}

/// Attention over the cache of a block, of `count` tokens from position `start` on.
fn attend<R: PanelRow>(
    (executor, scratch, width): (&Executor, &mut Scratch, usize),
    segments: &[Segment<R>],
    shape: CacheShape,
    (start, count): (usize, usize),
    group: usize,
) {
    let call = AttentionCall {
        queries: &scratch.queries,
        segments,
        shape,
        start,
        count,
        group,
    };
    let out = Out::new(&mut scratch.mixed, width, width);
    executor.attend(call, &scratch.attention, out);
}

/// The first `count` rows of a dense buffer.
fn rows(data: &[f32], stride: usize, count: usize) -> Rows<'_> {
    Rows {
        data,
        stride,
        count,
    }
}
