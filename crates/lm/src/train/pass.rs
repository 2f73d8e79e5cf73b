//! One sequence through the decoder and back.

use std::ops::Range;

use crate::cpu::Kernels;
use crate::cpu::kernels::vector::SiluMul;
use crate::cpu::rope::RotaryTable;

use super::activations::{Activations, clear, fit};
use super::attention::Attention;
use super::elementwise::{NormBackward, NormForward, SiluBackward, add};
use super::layout::Layout;
use super::low_rank::LowRank;
use super::matrix::{Into, Mat, MatMut, multiply};
use super::objective::{Graded, Objective, Scored};

/// What all workers read.
pub(super) struct Shared<'a> {
    pub(super) layout: &'a Layout,
    pub(super) weights: &'a [f32],
    pub(super) rope: &'a RotaryTable,
    pub(super) kernels: Kernels,
    /// Rows of the output head for every subset of the objective.
    pub(super) gathered: &'a [Vec<f32>],
    pub(super) objective: &'a dyn Objective,
    /// Trained instead of the weights.
    pub(super) low_rank: Option<&'a LowRank>,
}

/// Gradients of one worker.
#[derive(Default)]
pub(super) struct Gradients {
    /// Flat, as the weights, or as the adapter that is trained instead of them.
    pub(super) weights: Vec<f32>,
    /// Of the gathered rows of the head; empty while an adapter is trained.
    pub(super) gathered: Vec<Vec<f32>>,
}

impl Shared<'_> {
    /// Forward only: the loss of one sequence.
    pub(super) fn evaluate(&self, index: usize, ids: &[u32], kept: &mut Activations) -> Graded {
        self.forward(ids, kept);
        self.score(index, kept, None)
    }

    /// Forward and backward: the loss of one sequence, its gradient added to `gradients`.
    pub(super) fn learn(
        &self,
        index: usize,
        ids: &[u32],
        kept: &mut Activations,
        gradients: &mut Gradients,
    ) -> Graded {
        self.forward(ids, kept);
        let graded = self.score(index, kept, Some(gradients));
        self.backward(ids, kept, &mut gradients.weights);
        graded
    }

    fn norm(&self, x: &[f32], weight: &[f32], inverse: &mut [f32], out: &mut [f32]) {
        let d = weight.len();
        let eps = self.layout.config.rms_norm_eps as f32;
        for ((x, out), inverse) in x
            .chunks_exact(d)
            .zip(out.chunks_exact_mut(d))
            .zip(inverse.iter_mut())
        {
            *inverse = self.kernels.run(NormForward {
                x,
                weight,
                eps,
                out,
            });
        }
    }

    fn forward(&self, ids: &[u32], kept: &mut Activations) {
        let (config, t, w) = (&self.layout.config, ids.len(), self.weights);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, width) = (config.q_width(), config.q_width() + 2 * config.kv_width());
        kept.fit(self.layout, t);
        let embedding = &w[self.layout.embedding.clone()];
        for (row, id) in kept.x.chunks_exact_mut(d).zip(ids) {
            row.copy_from_slice(&embedding[*id as usize * d..][..d]);
        }
        let attention = Attention {
            config,
            kernels: self.kernels,
            t,
        };
        for (block, at) in kept.blocks.iter_mut().zip(&self.layout.blocks) {
            block.x.copy_from_slice(&kept.x);
            self.norm(
                &block.x,
                &w[at.attn_norm.clone()],
                &mut block.attn_inverse,
                &mut block.attn_in,
            );
            multiply(
                MatMut::new(&mut block.qkv, width),
                Into::Set,
                Mat::new(&block.attn_in, t, d),
                Mat::new(&w[at.qkv.clone()], width, d).t(),
            );
            if let Some(bias) = &at.qkv_bias {
                for row in block.qkv.chunks_exact_mut(width) {
                    add(row, &w[bias.clone()]);
                }
            }
            self.rotate(&mut block.qkv, Turn::Forward);
            attention.forward(&block.qkv, &mut block.probs, &mut block.mixed);
            multiply(
                MatMut::new(&mut kept.x, d),
                Into::Add,
                Mat::new(&block.mixed, t, q),
                Mat::new(&w[at.out.clone()], d, q).t(),
            );
            block.middle.copy_from_slice(&kept.x);
            self.norm(
                &block.middle,
                &w[at.mlp_norm.clone()],
                &mut block.mlp_inverse,
                &mut block.mlp_in,
            );
            multiply(
                MatMut::new(&mut block.gate_up, 2 * f),
                Into::Set,
                Mat::new(&block.mlp_in, t, d),
                Mat::new(&w[at.gate_up.clone()], 2 * f, d).t(),
            );
            for (row, out) in block
                .gate_up
                .chunks_exact(2 * f)
                .zip(block.active.chunks_exact_mut(f))
            {
                let (gate, up) = row.split_at(f);
                self.kernels.run(SiluMul { gate, up, out });
            }
            multiply(
                MatMut::new(&mut kept.x, d),
                Into::Add,
                Mat::new(&block.active, t, f),
                Mat::new(&w[at.down.clone()], d, f).t(),
            );
        }
        self.norm(
            &kept.x,
            &w[self.layout.norm.clone()],
            &mut kept.inverse,
            &mut kept.hidden,
        );
    }

    /// Rotates the queries and keys of `[t, q + 2 kv]`.
    fn rotate(&self, qkv: &mut [f32], turn: Turn) {
        let config = &self.layout.config;
        let width = config.q_width() + 2 * config.kv_width();
        let rotated = config.q_width() + config.kv_width();
        for (position, row) in qkv.chunks_exact_mut(width).enumerate() {
            for head in row[..rotated].chunks_exact_mut(config.head_dim) {
                match turn {
                    Turn::Forward => self.rope.rotate_in_place(position, head),
                    Turn::Back => self.rope.rotate_back(position, head),
                }
            }
        }
    }

    /// Logits, loss and, with `gradients`, the gradient of the hidden states and of the head.
    fn score(
        &self,
        index: usize,
        kept: &mut Activations,
        mut gradients: Option<&mut Gradients>,
    ) -> Graded {
        let d = self.layout.config.hidden_size;
        let mut graded = Graded::default();
        let len = kept.hidden.len();
        clear(&mut kept.d_hidden, len);
        for (group, scored) in self.objective.scored(index).iter().enumerate() {
            let Scored { positions, columns } = scored;
            let head = match columns {
                Some(subset) => &self.gathered[*subset][..],
                None => &self.weights[self.layout.head.clone()],
            };
            let (rows, count) = (positions.len(), head.len() / d);
            fit(&mut kept.rows, rows * d);
            for (row, position) in kept.rows.chunks_exact_mut(d).zip(positions) {
                row.copy_from_slice(&kept.hidden[position * d..][..d]);
            }
            fit(&mut kept.logits, rows * count);
            multiply(
                MatMut::new(&mut kept.logits, count),
                Into::Set,
                Mat::new(&kept.rows, rows, d),
                Mat::new(head, count, d).t(),
            );
            graded.add(self.objective.grade(index, group, &mut kept.logits));
            let Some(gradients) = gradients.as_deref_mut() else {
                continue;
            };
            let d_logits = Mat::new(&kept.logits, rows, count);
            fit(&mut kept.d_rows, rows * d);
            multiply(
                MatMut::new(&mut kept.d_rows, d),
                Into::Set,
                d_logits,
                Mat::new(head, count, d),
            );
            for (row, position) in kept.d_rows.chunks_exact(d).zip(positions) {
                add(&mut kept.d_hidden[position * d..][..d], row);
            }
            if self.low_rank.is_some() {
                continue;
            }
            let d_head = match columns {
                Some(subset) => &mut gradients.gathered[*subset][..],
                None => &mut gradients.weights[self.layout.head.clone()],
            };
            multiply(
                MatMut::new(d_head, d),
                Into::Add,
                d_logits.t(),
                Mat::new(&kept.rows, rows, d),
            );
        }
        graded
    }

    /// Adds the gradient of the matrix at `at`, or of its adapters.
    fn weight_gradient(&self, grads: &mut [f32], at: &Range<usize>, dy: Mat<'_>, x: Mat<'_>) {
        match self.low_rank {
            Some(low_rank) => low_rank.add_gradients(at, dy, x, grads),
            None => {
                let to = MatMut::new(&mut grads[at.clone()], x.cols());
                multiply(to, Into::Add, dy.t(), x);
            }
        }
    }

    /// Backward of a norm whose weight lies at `at`; a frozen weight has no gradient.
    fn norm_back(&self, grads: &mut [f32], at: &Range<usize>, pass: NormPass<'_>) {
        let weight = &self.weights[at.clone()];
        let d = weight.len();
        let mut unused = Vec::new();
        let dw = if self.low_rank.is_some() {
            clear(&mut unused, d);
            &mut unused[..]
        } else {
            &mut grads[at.clone()]
        };
        for (((x, dy), dx), inverse) in pass
            .x
            .chunks_exact(d)
            .zip(pass.dy.chunks_exact_mut(d))
            .zip(pass.dx.chunks_exact_mut(d))
            .zip(pass.inverse)
        {
            self.kernels.run(NormBackward {
                x,
                weight,
                inverse: *inverse,
                dy,
                dx,
                dw,
            });
        }
    }

    fn backward(&self, ids: &[u32], kept: &mut Activations, grads: &mut [f32]) {
        let (config, t, w) = (&self.layout.config, ids.len(), self.weights);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, width) = (config.q_width(), config.q_width() + 2 * config.kv_width());
        clear(&mut kept.d_stream, t * d);
        self.norm_back(
            grads,
            &self.layout.norm,
            NormPass {
                x: &kept.x,
                inverse: &kept.inverse,
                dy: &mut kept.d_hidden,
                dx: &mut kept.d_stream,
            },
        );
        let attention = Attention {
            config,
            kernels: self.kernels,
            t,
        };
        for (block, at) in kept.blocks.iter_mut().zip(&self.layout.blocks).rev() {
            let d_stream = Mat::new(&kept.d_stream, t, d);
            multiply(
                MatMut::new(&mut kept.d_active, f),
                Into::Set,
                d_stream,
                Mat::new(&w[at.down.clone()], d, f),
            );
            self.weight_gradient(grads, &at.down, d_stream, Mat::new(&block.active, t, f));
            for (row, d) in block
                .gate_up
                .chunks_exact_mut(2 * f)
                .zip(kept.d_active.chunks_exact(f))
            {
                let (gate, up) = row.split_at_mut(f);
                self.kernels.run(SiluBackward { gate, up, d });
            }
            let d_gate_up = Mat::new(&block.gate_up, t, 2 * f);
            multiply(
                MatMut::new(&mut kept.d_normed, d),
                Into::Set,
                d_gate_up,
                Mat::new(&w[at.gate_up.clone()], 2 * f, d),
            );
            self.weight_gradient(grads, &at.gate_up, d_gate_up, Mat::new(&block.mlp_in, t, d));
            self.norm_back(
                grads,
                &at.mlp_norm,
                NormPass {
                    x: &block.middle,
                    inverse: &block.mlp_inverse,
                    dy: &mut kept.d_normed,
                    dx: &mut kept.d_stream,
                },
            );

            let d_stream = Mat::new(&kept.d_stream, t, d);
            multiply(
                MatMut::new(&mut kept.d_mixed, q),
                Into::Set,
                d_stream,
                Mat::new(&w[at.out.clone()], d, q),
            );
            self.weight_gradient(grads, &at.out, d_stream, Mat::new(&block.mixed, t, q));
            attention.backward(
                &block.qkv,
                &block.probs,
                &kept.d_mixed,
                &mut kept.d_qkv,
                &mut kept.d_probs,
            );
            self.rotate(&mut kept.d_qkv, Turn::Back);
            if let Some(bias) = at.qkv_bias.as_ref().filter(|_| self.low_rank.is_none()) {
                for row in kept.d_qkv.chunks_exact(width) {
                    add(&mut grads[bias.clone()], row);
                }
            }
            let d_qkv = Mat::new(&kept.d_qkv, t, width);
            multiply(
                MatMut::new(&mut kept.d_normed, d),
                Into::Set,
                d_qkv,
                Mat::new(&w[at.qkv.clone()], width, d),
            );
            self.weight_gradient(grads, &at.qkv, d_qkv, Mat::new(&block.attn_in, t, d));
            self.norm_back(
                grads,
                &at.attn_norm,
                NormPass {
                    x: &block.x,
                    inverse: &block.attn_inverse,
                    dy: &mut kept.d_normed,
                    dx: &mut kept.d_stream,
                },
            );
        }
        if self.low_rank.is_some() {
            return;
        }
        let embedding = &mut grads[self.layout.embedding.clone()];
        for (row, id) in kept.d_stream.chunks_exact(d).zip(ids) {
            add(&mut embedding[*id as usize * d..][..d], row);
        }
    }
}

#[derive(Clone, Copy)]
enum Turn {
    Forward,
    Back,
}

/// Backward of one norm over all positions.
struct NormPass<'a> {
    x: &'a [f32],
    inverse: &'a [f32],
    dy: &'a mut [f32],
    dx: &'a mut [f32],
}
