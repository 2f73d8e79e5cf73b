//! What a forward pass keeps for the backward pass, and the scratch space of both.

use super::layout::Layout;

/// Kept by one block, for sequences of `t` positions together.
#[derive(Default)]
pub(super) struct BlockActivations {
    /// Residual stream on entry, `[t, d]`.
    pub(super) x: Vec<f32>,
    /// Inverse roots of the attention norm, `[t]`.
    pub(super) attn_inverse: Vec<f32>,
    /// Normalised input of the attention, `[t, d]`.
    pub(super) attn_in: Vec<f32>,
    /// Rotated queries and keys, and values, `[t, q + 2 kv]`.
    pub(super) qkv: Vec<f32>,
    /// Attention weights, by sequence `[heads, t, stride]` with its own `t` and the stride of
    /// [`row_stride`].
    pub(super) probs: Vec<f32>,
    /// Mixed values, `[t, q]`.
    pub(super) mixed: Vec<f32>,
    /// Residual stream between attention and MLP, `[t, d]`.
    pub(super) middle: Vec<f32>,
    /// Inverse roots of the MLP norm, `[t]`.
    pub(super) mlp_inverse: Vec<f32>,
    /// Normalised input of the MLP, `[t, d]`.
    pub(super) mlp_in: Vec<f32>,
    /// Gate and up projections, `[t, 2 f]`.
    pub(super) gate_up: Vec<f32>,
    /// `silu(gate) * up`, `[t, f]`.
    pub(super) active: Vec<f32>,
}

/// Buffers of one worker, grown to the longest pack seen and used again.
#[derive(Default)]
pub(super) struct Activations {
    pub(super) blocks: Vec<BlockActivations>,
    /// Residual stream after the last block, `[t, d]`.
    pub(super) x: Vec<f32>,
    pub(super) inverse: Vec<f32>,
    /// After the final norm, `[t, d]`.
    pub(super) hidden: Vec<f32>,
    /// Gradient of `hidden`, then of the residual stream, `[t, d]`.
    pub(super) d_hidden: Vec<f32>,
    pub(super) d_stream: Vec<f32>,
    /// Gradient of a normalised input, `[t, d]`.
    pub(super) d_normed: Vec<f32>,
    /// Gradient of `active`, `[t, f]`.
    pub(super) d_active: Vec<f32>,
    /// Gradient of `mixed`, `[t, q]`.
    pub(super) d_mixed: Vec<f32>,
    /// Gradient of `qkv`.
    pub(super) d_qkv: Vec<f32>,
    /// Gradient of a block of attention weights.
    pub(super) d_probs: Vec<f32>,
    /// Rows of `hidden` that a group scores.
    pub(super) rows: Vec<f32>,
    pub(super) d_rows: Vec<f32>,
    pub(super) logits: Vec<f32>,
}

/// Elements between two rows of attention weights: whole vectors.
pub(super) fn row_stride(t: usize) -> usize {
    t.next_multiple_of(crate::cpu::kernels::simd::LANES)
}

/// Makes `buffer` hold exactly `len` elements of any value.
pub(super) fn fit(buffer: &mut Vec<f32>, len: usize) {
    buffer.resize(len, 0.0);
}

/// Makes `buffer` hold exactly `len` zeros.
pub(super) fn clear(buffer: &mut Vec<f32>, len: usize) {
    buffer.clear();
    buffer.resize(len, 0.0);
}

impl Activations {
    /// Sizes everything for sequences of these lengths.
    pub(super) fn fit(&mut self, layout: &Layout, lengths: impl Iterator<Item = usize>) {
        let config = &layout.config;
        let (mut t, mut probs) = (0, 0);
        for len in lengths {
            t += len;
            probs += config.num_heads * len * row_stride(len);
        }
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        self.blocks
            .resize_with(config.num_layers, BlockActivations::default);
        for block in &mut self.blocks {
            fit(&mut block.x, t * d);
            fit(&mut block.attn_inverse, t);
            fit(&mut block.attn_in, t * d);
            fit(&mut block.qkv, t * (q + 2 * kv));
            fit(&mut block.probs, probs);
            fit(&mut block.mixed, t * q);
            fit(&mut block.middle, t * d);
            fit(&mut block.mlp_inverse, t);
            fit(&mut block.mlp_in, t * d);
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
}
