//! Sequences through the decoder and back, one behind the other in the rows of every matrix product:
//! ragged, without padding, and the weights are brought into the product's order once for all of them.

use std::ops::Range;

use cpu_engine::Vectors;
use lm::host::{Mat, MatMut, RotaryTable, Store, multiply};

use crate::activations::{Activations, clear, fit};
use crate::attention::Attention;
use crate::elementwise::{NormBackward, NormForward, SiluBackward, add};
use crate::layout::Layout;
use crate::low_rank::LowRank;
use crate::objective::{Graded, Objective, Scored};

/// What all workers read.
pub(crate) struct Shared<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) weights: &'a [f32],
    pub(crate) rope: &'a RotaryTable,
    pub(crate) vectors: Vectors,
    /// Rows of the output head for every subset of the objective.
    pub(crate) gathered: &'a [Vec<f32>],
    pub(crate) objective: &'a dyn Objective,
    /// Trained instead of the weights.
    pub(crate) low_rank: Option<&'a LowRank>,
}

/// Gradients of one worker.
#[derive(Default)]
pub(crate) struct Gradients {
    /// Flat, as the weights, or as the adapter that is trained instead of them.
    pub(crate) weights: Vec<f32>,
    /// Of the gathered rows of the head; empty while an adapter is trained.
    pub(crate) gathered: Vec<Vec<f32>>,
}

/// Sequences that go through the decoder together.
#[derive(Default)]
pub(crate) struct Pack<'a> {
    /// Index of each in the batch, and its rows.
    spans: Vec<(usize, Range<usize>)>,
    ids: Vec<&'a [u32]>,
    rows: usize,
}

impl<'a> Pack<'a> {
    pub(crate) fn push(&mut self, index: usize, ids: &'a [u32]) {
        self.spans.push((index, self.rows..self.rows + ids.len()));
        self.rows += ids.len();
        self.ids.push(ids);
    }

    /// Tokens of all sequences.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.ids.iter().map(|ids| ids.len())
    }

    fn tokens(&self) -> impl Iterator<Item = usize> {
        self.ids.iter().copied().flatten().map(|id| *id as usize)
    }
}

/// A group of scored positions of one sequence of a pack.
struct Wanted {
    columns: Option<usize>,
    /// Place in the pack, and in what the objective scores of it.
    member: usize,
    group: usize,
    /// Rows of the pack.
    rows: Vec<usize>,
}

/// Logits that are alive at a time, for every column of the hidden state. What lies beyond the caches
/// is written and read some seven times, which is little beside what a logit costs to compute, the
/// less the wider the model; what is gained is that the head is packed once for more rows.
const LOGITS_PER_WIDTH: usize = 1 << 13;

impl Shared<'_> {
    /// The losses of a pack's sequences; with `gradients`, their gradient is added there.
    pub(crate) fn run(
        &self,
        pack: &Pack<'_>,
        kept: &mut Activations,
        gradients: Option<&mut Gradients>,
    ) -> Vec<(usize, Graded)> {
        self.forward(pack, kept);
        match gradients {
            None => self.score(pack, kept, None),
            Some(gradients) => {
                let graded = self.score(pack, kept, Some(&mut *gradients));
                self.backward(pack, kept, &mut gradients.weights);
                graded
            }
        }
    }

    fn norm(&self, x: &[f32], weight: &[f32], inverse: &mut [f32], out: &mut [f32]) {
        let d = weight.len();
        let eps = self.layout.config.rms_norm_eps as f32;
        for ((x, out), inverse) in x
            .chunks_exact(d)
            .zip(out.chunks_exact_mut(d))
            .zip(inverse.iter_mut())
        {
            *inverse = self.vectors.run(NormForward {
                x,
                weight,
                eps,
                out,
            });
        }
    }

    /// Calls `f` for every sequence of a pack with its attention, its rows, and where its attention
    /// weights lie.
    fn attend(
        &self,
        pack: &Pack<'_>,
        mut f: impl FnMut(Attention<'_>, &Range<usize>, Range<usize>),
    ) {
        let mut start = 0;
        for (_, rows) in &pack.spans {
            let attention = Attention {
                config: &self.layout.config,
                vectors: self.vectors,
                t: rows.len(),
            };
            let probs = start..start + attention.probs_len();
            start = probs.end;
            f(attention, rows, probs);
        }
    }

    fn forward(&self, pack: &Pack<'_>, kept: &mut Activations) {
        let (config, t, w) = (&self.layout.config, pack.rows(), self.weights);
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, width) = (config.q_width(), config.q_width() + 2 * config.kv_width());
        kept.fit(self.layout, pack.lengths());
        let embedding = &w[self.layout.embedding.clone()];
        for (row, id) in kept.x.chunks_exact_mut(d).zip(pack.tokens()) {
            row.copy_from_slice(&embedding[id * d..][..d]);
        }
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
                Store::Set,
                Mat::new(&block.attn_in, t, d),
                Mat::new(&w[at.qkv.clone()], width, d).t(),
            );
            if let Some(bias) = &at.qkv_bias {
                for row in block.qkv.chunks_exact_mut(width) {
                    add(row, &w[bias.clone()]);
                }
            }
            self.rotate(pack, &mut block.qkv, Turn::Forward);
            self.attend(pack, |attention, rows, probs| {
                attention.forward(
                    &block.qkv[rows.start * width..rows.end * width],
                    &mut block.probs[probs],
                    &mut block.mixed[rows.start * q..rows.end * q],
                );
            });
            multiply(
                MatMut::new(&mut kept.x, d),
                Store::Add,
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
                Store::Set,
                Mat::new(&block.mlp_in, t, d),
                Mat::new(&w[at.gate_up.clone()], 2 * f, d).t(),
            );
            for (row, out) in block
                .gate_up
                .chunks_exact(2 * f)
                .zip(block.active.chunks_exact_mut(f))
            {
                let (gate, up) = row.split_at(f);
                self.vectors.silu_mul(gate, up, out);
            }
            multiply(
                MatMut::new(&mut kept.x, d),
                Store::Add,
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
    fn rotate(&self, pack: &Pack<'_>, qkv: &mut [f32], turn: Turn) {
        let config = &self.layout.config;
        let width = config.q_width() + 2 * config.kv_width();
        let rotated = config.q_width() + config.kv_width();
        let positions = pack.lengths().flat_map(|len| 0..len);
        for (position, row) in positions.zip(qkv.chunks_exact_mut(width)) {
            for head in row[..rotated].chunks_exact_mut(config.head_dim) {
                match turn {
                    Turn::Forward => self.rope.rotate_in_place(position, head),
                    Turn::Back => self.rope.rotate_back(position, head),
                }
            }
        }
    }

    /// What the objective wants of a pack, in runs over the same columns.
    fn wanted(&self, pack: &Pack<'_>) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for (member, (index, span)) in pack.spans.iter().enumerate() {
            for (group, scored) in self.objective.scored(*index).into_iter().enumerate() {
                let Scored { positions, columns } = scored;
                wanted.push(Wanted {
                    columns,
                    member,
                    group,
                    rows: positions.into_iter().map(|p| span.start + p).collect(),
                });
            }
        }
        wanted.sort_by_key(|wanted| wanted.columns);
        wanted
    }

    /// Logits, losses and, with `gradients`, the gradient of the hidden states and of the head.
    fn score(
        &self,
        pack: &Pack<'_>,
        kept: &mut Activations,
        mut gradients: Option<&mut Gradients>,
    ) -> Vec<(usize, Graded)> {
        let d = self.layout.config.hidden_size;
        let of = |(index, _): &(usize, _)| (*index, Graded::default());
        let mut graded: Vec<_> = pack.spans.iter().map(of).collect();
        let len = kept.hidden.len();
        clear(&mut kept.d_hidden, len);
        let wanted = self.wanted(pack);
        for same in wanted.chunk_by(|a, b| a.columns == b.columns) {
            let columns = same[0].columns;
            let head = match columns {
                Some(subset) => &self.gathered[subset][..],
                None => &self.weights[self.layout.head.clone()],
            };
            let most = LOGITS_PER_WIDTH * d / (head.len() / d).max(1);
            let mut rest = same;
            while !rest.is_empty() {
                let mut rows = 0;
                let fits = rest.iter().take_while(|wanted| {
                    let first = rows == 0;
                    rows += wanted.rows.len();
                    first || rows <= most
                });
                let (now, later) = rest.split_at(fits.count());
                rest = later;
                self.score_together(pack, now, head, kept, gradients.as_deref_mut(), &mut graded);
            }
        }
        graded
    }

    /// [`score`](Self::score) of groups over the same columns, whose rows of the head are `head`.
    fn score_together(
        &self,
        pack: &Pack<'_>,
        wanted: &[Wanted],
        head: &[f32],
        kept: &mut Activations,
        gradients: Option<&mut Gradients>,
        graded: &mut [(usize, Graded)],
    ) {
        let d = self.layout.config.hidden_size;
        let picked = || wanted.iter().flat_map(|wanted| &wanted.rows);
        let (rows, count) = (picked().count(), head.len() / d);
        fit(&mut kept.rows, rows * d);
        for (row, from) in kept.rows.chunks_exact_mut(d).zip(picked()) {
            row.copy_from_slice(&kept.hidden[from * d..][..d]);
        }
        fit(&mut kept.logits, rows * count);
        multiply(
            MatMut::new(&mut kept.logits, count),
            Store::Set,
            Mat::new(&kept.rows, rows, d),
            Mat::new(head, count, d).t(),
        );
        let mut rest = &mut kept.logits[..];
        for Wanted {
            member,
            group,
            rows,
            ..
        } in wanted
        {
            let (own, after) = rest.split_at_mut(rows.len() * count);
            rest = after;
            let index = pack.spans[*member].0;
            let one = self.objective.grade(index, *group, own);
            graded[*member].1.add(one);
        }
        let Some(gradients) = gradients else {
            return;
        };
        let d_logits = Mat::new(&kept.logits, rows, count);
        fit(&mut kept.d_rows, rows * d);
        multiply(
            MatMut::new(&mut kept.d_rows, d),
            Store::Set,
            d_logits,
            Mat::new(head, count, d),
        );
        for (row, to) in kept.d_rows.chunks_exact(d).zip(picked()) {
            add(&mut kept.d_hidden[to * d..][..d], row);
        }
        if self.low_rank.is_some() {
            return;
        }
        let d_head = match wanted.first().and_then(|wanted| wanted.columns) {
            Some(subset) => &mut gradients.gathered[subset][..],
            None => &mut gradients.weights[self.layout.head.clone()],
        };
        multiply(
            MatMut::new(d_head, d),
            Store::Add,
            d_logits.t(),
            Mat::new(&kept.rows, rows, d),
        );
    }

    /// Adds the gradient of the matrix at `at`, or of its adapters.
    fn weight_gradient(&self, grads: &mut [f32], at: &Range<usize>, dy: Mat<'_>, x: Mat<'_>) {
        match self.low_rank {
            Some(low_rank) => low_rank.add_gradients(at, dy, x, grads),
            None => {
                let to = MatMut::new(&mut grads[at.clone()], x.cols());
                multiply(to, Store::Add, dy.t(), x);
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
            self.vectors.run(NormBackward {
                x,
                weight,
                inverse: *inverse,
                dy,
                dx,
                dw,
            });
        }
    }

    fn backward(&self, pack: &Pack<'_>, kept: &mut Activations, grads: &mut [f32]) {
        let (config, t, w) = (&self.layout.config, pack.rows(), self.weights);
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
        for (block, at) in kept.blocks.iter_mut().zip(&self.layout.blocks).rev() {
            let d_stream = Mat::new(&kept.d_stream, t, d);
            multiply(
                MatMut::new(&mut kept.d_active, f),
                Store::Set,
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
                self.vectors.run(SiluBackward { gate, up, d });
            }
            let d_gate_up = Mat::new(&block.gate_up, t, 2 * f);
            multiply(
                MatMut::new(&mut kept.d_normed, d),
                Store::Set,
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
                Store::Set,
                d_stream,
                Mat::new(&w[at.out.clone()], d, q),
            );
            self.weight_gradient(grads, &at.out, d_stream, Mat::new(&block.mixed, t, q));
            clear(&mut kept.d_qkv, t * width);
            self.attend(pack, |attention, rows, probs| {
                let (wide, mixed) = (
                    rows.start * width..rows.end * width,
                    rows.start * q..rows.end * q,
                );
                attention.backward(
                    &block.qkv[wide.clone()],
                    &block.probs[probs],
                    &kept.d_mixed[mixed],
                    &mut kept.d_qkv[wide],
                    &mut kept.d_probs,
                );
            });
            self.rotate(pack, &mut kept.d_qkv, Turn::Back);
            if let Some(bias) = at.qkv_bias.as_ref().filter(|_| self.low_rank.is_none()) {
                for row in kept.d_qkv.chunks_exact(width) {
                    add(&mut grads[bias.clone()], row);
                }
            }
            let d_qkv = Mat::new(&kept.d_qkv, t, width);
            multiply(
                MatMut::new(&mut kept.d_normed, d),
                Store::Set,
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
        for (row, id) in kept.d_stream.chunks_exact(d).zip(pack.tokens()) {
            add(&mut embedding[id * d..][..d], row);
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
