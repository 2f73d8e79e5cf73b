//! Causal attention of one sequence, forward and backward. It works in blocks of query rows, so
//! that nothing is computed for keys after a block.

use std::ops::Range;

use cpu_engine::{LANES, Vectors};
use lm::LmConfig;
use lm::host::{Mat, MatMut, Store, multiply};

use crate::activations::{fit, row_stride};
use crate::elementwise::{Scale, SoftmaxBackward};

/// Number of query rows of a block.
const ROWS: usize = 64;

/// The shape of attention over one sequence.
pub(crate) struct Attention<'a> {
    pub(crate) config: &'a LmConfig,
    pub(crate) vectors: Vectors,
    /// Number of positions.
    pub(crate) t: usize,
    /// Number of positions that a position attends to, itself included.
    pub(crate) window: usize,
}

impl Attention<'_> {
    /// Number of elements of the attention weights.
    pub(crate) fn probs_len(&self) -> usize {
        self.config.num_heads * self.t * row_stride(self.t)
    }

    fn width(&self) -> usize {
        self.config.q_width() + 2 * self.config.kv_width()
    }

    fn scale(&self) -> f32 {
        self.config.block.attention_scale
    }

    /// First columns of the query, key and value of query head `head` within a `qkv` row.
    fn columns(&self, head: usize) -> (usize, usize, usize) {
        let config = self.config;
        let kv_head = head / (config.num_heads / config.num_kv_heads);
        let key = config.q_width() + kv_head * config.head_dim;
        (head * config.head_dim, key, key + config.kv_width())
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let t = self.t;
        (0..t)
            .step_by(ROWS)
            .map(move |start| start..t.min(start + ROWS))
    }

    /// Rows `rows` of the head whose columns start at `column`.
    fn part<'m>(&self, qkv: &'m [f32], rows: Range<usize>, column: usize) -> Mat<'m> {
        let width = self.width();
        let data = &qkv[rows.start * width + column..];
        Mat::strided(data, rows.len(), self.config.head_dim, width)
    }

    /// Computes attention weights and mixed values.
    ///
    /// # Shapes
    /// - `qkv`: `[t, q + 2 kv]`, rotated
    /// - `probs`: `[heads, t, stride]`, receives the attention weights
    /// - `mixed`: `[t, q]`, receives the mixed values
    pub(crate) fn forward(&self, qkv: &[f32], probs: &mut [f32], mixed: &mut [f32]) {
        let stride = row_stride(self.t);
        let q = self.config.q_width();
        for head in 0..self.config.num_heads {
            let (query, key, value) = self.columns(head);
            let probs = &mut probs[head * self.t * stride..][..self.t * stride];
            for rows in self.blocks() {
                let seen = rows.end;
                let block = &mut probs[rows.start * stride..rows.end * stride];
                multiply(
                    MatMut {
                        data: block,
                        stride,
                    },
                    Store::Set,
                    self.part(qkv, rows.clone(), query),
                    self.part(qkv, 0..seen, key).t(),
                );
                let padded = seen.next_multiple_of(LANES);
                for (row, position) in block.chunks_exact_mut(stride).zip(rows.clone()) {
                    let row = &mut row[..padded];
                    row[position + 1..].fill(f32::NEG_INFINITY);
                    row[..(position + 1).saturating_sub(self.window)].fill(f32::NEG_INFINITY);
                    let sum = self.vectors.softmax_numerators(row, self.scale());
                    self.vectors.run(Scale {
                        row,
                        factor: 1.0 / sum,
                    });
                }
                multiply(
                    MatMut {
                        data: &mut mixed[rows.start * q + query..],
                        stride: q,
                    },
                    Store::Set,
                    Mat::strided(block, rows.len(), seen, stride),
                    self.part(qkv, 0..seen, value),
                );
            }
        }
    }

    /// Computes the gradient of queries, keys and values.
    ///
    /// # Shapes
    /// - `d_mixed`: `[t, q]`
    /// - `d_qkv`: `[t, q + 2 kv]`, to which the gradient of the rotated queries, keys and values is
    ///   added
    /// - `d_probs`: scratch
    pub(crate) fn backward(
        &self,
        qkv: &[f32],
        probs: &[f32],
        d_mixed: &[f32],
        d_qkv: &mut [f32],
        d_probs: &mut Vec<f32>,
    ) {
        let stride = row_stride(self.t);
        let (q, width) = (self.config.q_width(), self.width());
        fit(d_probs, ROWS * stride);
        for head in 0..self.config.num_heads {
            let (query, key, value) = self.columns(head);
            let probs = &probs[head * self.t * stride..][..self.t * stride];
            for rows in self.blocks() {
                let seen = rows.end;
                let block = &probs[rows.start * stride..rows.end * stride];
                let weights = Mat::strided(block, rows.len(), seen, stride);
                let d_out = Mat::strided(
                    &d_mixed[rows.start * q + query..],
                    rows.len(),
                    self.config.head_dim,
                    q,
                );
                let into = |d_qkv: &mut [f32], row: usize, column: usize, a, b| {
                    let data = &mut d_qkv[row * width + column..];
                    let stride = width;
                    multiply(MatMut { data, stride }, Store::Add, a, b);
                };
                into(d_qkv, 0, value, weights.t(), d_out);
                let target = MatMut {
                    data: d_probs,
                    stride,
                };
                multiply(
                    target,
                    Store::Set,
                    d_out,
                    self.part(qkv, 0..seen, value).t(),
                );
                for (d, probs) in d_probs
                    .chunks_exact_mut(stride)
                    .zip(block.chunks_exact(stride))
                {
                    self.vectors.run(SoftmaxBackward {
                        probs: &probs[..seen],
                        d: &mut d[..seen],
                        scale: self.scale(),
                    });
                }
                let d_scores = Mat::strided(d_probs, rows.len(), seen, stride);
                into(
                    d_qkv,
                    rows.start,
                    query,
                    d_scores,
                    self.part(qkv, 0..seen, key),
                );
                into(
                    d_qkv,
                    0,
                    key,
                    d_scores.t(),
                    self.part(qkv, rows.clone(), query),
                );
            }
        }
    }
}
