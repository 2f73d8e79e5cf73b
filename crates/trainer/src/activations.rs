//! Activations that a forward pass keeps for the backward pass, and scratch buffers of both.

use lm::{LmConfig, QkNorm};

use crate::layout::Layout;

/// The norm of the residual stream before attention or MLP.
#[derive(Default)]
pub(crate) struct Normed {
    /// Residual stream, `[t, d]`.
    pub(crate) x: Vec<f32>,
    /// Inverse roots `1 / sqrt(mean x^2 + eps)`, `[t]`.
    pub(crate) inverse: Vec<f32>,
    /// Normalised, `[t, d]`.
    pub(crate) out: Vec<f32>,
}

/// Activations of one block, for `t` positions of all sequences together.
#[derive(Default)]
pub(crate) struct BlockActivations {
    pub(crate) attn_in: Normed,
    /// Queries and keys before their norms, `[t, q + kv]`, if they have any.
    pub(crate) heads: Vec<f32>,
    /// Inverse roots of those norms, `[t, heads + kv_heads]`.
    pub(crate) head_inverse: Vec<f32>,
    /// Rotated queries and keys, and values, `[t, q + 2 kv]`.
    pub(crate) qkv: Vec<f32>,
    /// Attention weights, by sequence `[heads, t, stride]` with its own `t` and the stride of
    /// [`row_stride`].
    pub(crate) probs: Vec<f32>,
    /// Mixed values, `[t, q]`.
    pub(crate) mixed: Vec<f32>,
    pub(crate) mlp_in: Normed,
    /// Gate and up projections, `[t, 2 f]`; the backward pass replaces them by their gradients.
    pub(crate) gate_up: Vec<f32>,
    /// `silu(gate) * up`, `[t, f]`.
    pub(crate) active: Vec<f32>,
}

/// Buffers of one worker. They grow to the longest pack seen and are reused.
#[derive(Default)]
pub(crate) struct Activations {
    pub(crate) blocks: Vec<BlockActivations>,
    /// Positions that go through what comes after the attention of the last block, ascending. They
    /// are the `s` rows of its buffers there.
    pub(crate) scored: Vec<usize>,
    /// Residual stream, `[t, d]`, and after the last block `[s, d]`.
    pub(crate) x: Vec<f32>,
    pub(crate) inverse: Vec<f32>,
    /// Residual stream after the final norm, `[s, d]`.
    pub(crate) hidden: Vec<f32>,
    /// Gradient of `hidden`, `[s, d]`. `d_stream`: of the residual stream.
    pub(crate) d_hidden: Vec<f32>,
    pub(crate) d_stream: Vec<f32>,
    /// Gradient of a normalised input, `[t, d]`.
    pub(crate) d_normed: Vec<f32>,
    /// Gradient of `active`, `[t, f]`.
    pub(crate) d_active: Vec<f32>,
    /// Gradient of `mixed`, `[t, q]`.
    pub(crate) d_mixed: Vec<f32>,
    /// Gradient of `qkv`.
    pub(crate) d_qkv: Vec<f32>,
    /// Gradient of one head before its norm.
    pub(crate) d_head: Vec<f32>,
    /// Gradient of a block of attention weights.
    pub(crate) d_probs: Vec<f32>,
    /// Rows of `hidden` that a group scores.
    pub(crate) rows: Vec<f32>,
    pub(crate) d_rows: Vec<f32>,
    pub(crate) logits: Vec<f32>,
}

/// Number of elements from one row of attention weights to the next: `t`, rounded up to whole
/// vectors.
pub(crate) fn row_stride(t: usize) -> usize {
    t.next_multiple_of(cpu_engine::LANES)
}

/// Resizes `buffer` to exactly `len` elements of any value.
pub(crate) fn fit(buffer: &mut Vec<f32>, len: usize) {
    buffer.resize(len, 0.0);
}

/// Resizes `buffer` to exactly `len` zeros.
pub(crate) fn clear(buffer: &mut Vec<f32>, len: usize) {
    buffer.clear();
    buffer.resize(len, 0.0);
}

impl Activations {
    /// Resizes all buffers for sequences of these lengths.
    pub(crate) fn fit(&mut self, layout: &Layout, lengths: impl Iterator<Item = usize>) {
        let config = &layout.config;
        let (mut t, mut probs) = (0, 0);
        for len in lengths {
            t += len;
            probs += config.num_heads * len * row_stride(len);
        }
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        self.blocks
            .resize_with(layout.blocks.len(), BlockActivations::default);
        for block in &mut self.blocks {
            for normed in [&mut block.attn_in, &mut block.mlp_in] {
                fit(&mut normed.x, t * d);
                fit(&mut normed.inverse, t);
                fit(&mut normed.out, t * d);
            }
            fit(&mut block.qkv, t * (q + 2 * kv));
            if config.block.qk_norm == QkNorm::Head {
                fit(&mut block.heads, t * (q + kv));
                let heads = config.num_heads + config.num_kv_heads;
                fit(&mut block.head_inverse, t * heads);
            }
            fit(&mut block.probs, probs);
            fit(&mut block.mixed, t * q);
            fit(&mut block.gate_up, t * 2 * f);
            fit(&mut block.active, t * f);
        }
        fit(&mut self.x, t * d);
        fit(&mut self.inverse, t);
        fit(&mut self.hidden, t * d);
        fit(&mut self.d_normed, t * d);
        fit(&mut self.d_active, t * f);
        fit(&mut self.d_mixed, t * q);
    }

    /// Drops the rows that are not [scored](Self::scored) from the residual stream and from the mixed
    /// values of the last block, and resizes what comes after them.
    pub(crate) fn keep_scored(&mut self, config: &LmConfig) {
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let s = self.scored.len();
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        for (buffer, width) in [(&mut self.x, d), (&mut block.mixed, config.q_width())] {
            for (to, from) in self.scored.iter().enumerate() {
                buffer.copy_within(from * width..(from + 1) * width, to * width);
            }
            buffer.truncate(s * width);
        }
        fit(&mut block.mlp_in.x, s * d);
        fit(&mut block.mlp_in.inverse, s);
        fit(&mut block.mlp_in.out, s * d);
        fit(&mut block.gate_up, s * 2 * f);
        fit(&mut block.active, s * f);
        fit(&mut self.inverse, s);
        fit(&mut self.hidden, s * d);
    }

    /// Brings the gradients of what [`keep_scored`](Self::keep_scored) has kept back to all `t`
    /// positions. Those that were dropped have none.
    pub(crate) fn spread_scored(&mut self, config: &LmConfig, t: usize) {
        let buffers = [
            (&mut self.d_stream, config.hidden_size),
            (&mut self.d_mixed, config.q_width()),
        ];
        for (buffer, width) in buffers {
            fit(buffer, t * width);
            let mut end = t;
            for (from, &to) in self.scored.iter().enumerate().rev() {
                buffer.copy_within(from * width..(from + 1) * width, to * width);
                buffer[(to + 1) * width..end * width].fill(0.0);
                end = to;
            }
            buffer[..end * width].fill(0.0);
        }
    }
}
