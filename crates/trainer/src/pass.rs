//! Forward and backward pass of several sequences at once. Their positions follow each other in the
//! rows of every matrix product, ragged and without padding, and the weights are packed for the
//! product once for all of them.

use std::ops::Range;

use cpu_engine::Vectors;
use distill_loss::{Graded, Objective, Scored};
use lm::host::{Mat, MatMut, Products, RotaryTables, Store};

use crate::activations::{Activations, clear, fit};
use crate::elementwise::add;
use crate::layout::Layout;
use crate::low_rank::LowRank;

/// Data that all workers read.
pub(crate) struct Shared<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) weights: &'a [f32],
    pub(crate) rope: &'a RotaryTables,
    pub(crate) vectors: Vectors,
    pub(crate) products: Products,
    /// Rows of the output head for every subset of the objective.
    pub(crate) gathered: &'a [Vec<f32>],
    pub(crate) objective: &'a dyn Objective,
    /// The adapter that is trained instead of the weights, if there is one.
    pub(crate) low_rank: Option<&'a LowRank>,
}

/// Input of the first block for one sequence.
#[derive(Clone, Copy)]
pub(crate) enum Sequence<'a> {
    /// Tokens, which the embedding turns into states.
    Ids(&'a [u32]),
    /// States, `[len, d]`, from blocks that ran elsewhere.
    States { rows: &'a [f32], width: usize },
}

impl Sequence<'_> {
    /// Number of positions.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ids(ids) => ids.len(),
            Self::States { rows, width } => rows.len() / width,
        }
    }
}

/// Gradients of one worker.
#[derive(Default)]
pub(crate) struct Gradients {
    /// Gradient of the weights, flat, or of the adapter that is trained instead of them.
    pub(crate) weights: Vec<f32>,
    /// Gradients of the gathered rows of the head; empty while an adapter is trained.
    pub(crate) gathered: Vec<Vec<f32>>,
}

/// Sequences that go through the decoder together.
#[derive(Default)]
pub(crate) struct Pack<'a> {
    /// Index in the batch and row range of each sequence.
    pub(crate) spans: Vec<(usize, Range<usize>)>,
    sequences: Vec<Sequence<'a>>,
}

impl<'a> Pack<'a> {
    pub(crate) fn push(&mut self, index: usize, sequence: Sequence<'a>) {
        let start = self.rows();
        self.spans.push((index, start..start + sequence.len()));
        self.sequences.push(sequence);
    }

    /// Number of tokens of all sequences.
    pub(crate) fn rows(&self) -> usize {
        self.spans.last().map_or(0, |(_, rows)| rows.end)
    }

    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().map(Sequence::len)
    }
}

/// A group of scored positions of one sequence of a pack.
struct Wanted {
    columns: Option<usize>,
    /// Index of the sequence in the pack, and of the group in the objective's list.
    member: usize,
    group: usize,
    /// Rows of the pack and, while they are scored, of [`Activations::scored`].
    rows: Vec<usize>,
}

/// Number of logits held at a time, per column of the hidden state. Logits beyond the caches are
/// written and read about seven times. That costs little beside computing them, the less the wider
/// the model, and the head is packed once for more rows.
///
/// Products of bf16 take half the time, so packing and adding to the gradient of the head weigh
/// twice as much. With them every pack is scored at once.
fn logits_per_width(products: Products) -> usize {
    match products {
        Products::F32 => 1 << 13,
        Products::Bf16 => 1 << 17,
    }
}

impl Shared<'_> {
    /// True if the output head has a gradient.
    pub(crate) fn learns_head(&self) -> bool {
        self.low_rank.is_none() && self.layout.head.end <= self.layout.learns
    }

    /// Computes the losses of a pack's sequences. If `gradients` is given, adds their gradient
    /// there.
    pub(crate) fn run(
        &self,
        pack: &Pack<'_>,
        kept: &mut Activations,
        mut gradients: Option<&mut Gradients>,
    ) -> Vec<(usize, Graded)> {
        let mut wanted = self.wanted(pack);
        kept.scored = self.scored(pack, &wanted);
        self.forward(pack, kept);
        for row in wanted.iter_mut().flat_map(|wanted| &mut wanted.rows) {
            *row = kept.scored.binary_search(row).unwrap_or(*row);
        }
        let graded = self.score(pack, &wanted, kept, gradients.as_deref_mut());
        if let Some(gradients) = gradients {
            self.backward(pack, kept, &mut gradients.weights);
        }
        graded
    }

    fn forward(&self, pack: &Pack<'_>, kept: &mut Activations) {
        let d = self.layout.config.hidden_size;
        kept.fit(self.layout, pack.lengths());
        for ((_, span), sequence) in pack.spans.iter().zip(&pack.sequences) {
            let x = &mut kept.x[span.start * d..span.end * d];
            match (sequence, &self.layout.embedding) {
                (Sequence::States { rows, .. }, _) => x.copy_from_slice(rows),
                (Sequence::Ids(ids), Some(at)) => {
                    let embedding = &self.weights[at.clone()];
                    for (row, id) in x.chunks_exact_mut(d).zip(*ids) {
                        row.copy_from_slice(&embedding[*id as usize * d..][..d]);
                    }
                }
                // A trainer of the last blocks is never given tokens.
                (Sequence::Ids(_), None) => x.fill(0.0),
            }
        }
        for layer in 0..self.layout.blocks.len() {
            self.attention_forward(pack, layer, kept);
            self.mlp_forward(layer, kept);
        }
        self.norm(
            &kept.x,
            &self.weights[self.layout.norm.clone()],
            &mut kept.inverse,
            &mut kept.hidden,
        );
    }

    /// The groups that the objective scores in a pack, in runs over the same columns.
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

    /// Rows of the pack that go through what comes after the attention of the last block, ascending:
    /// the others have no loss, and so no gradient there.
    ///
    /// Among all blocks of a model that saves little, and all rows keep the sums in the order that
    /// they always had.
    fn scored(&self, pack: &Pack<'_>, wanted: &[Wanted]) -> Vec<usize> {
        let all = 0..pack.rows();
        if self.layout.embedding.is_some() {
            return all.collect();
        }
        let rows = wanted.iter().flat_map(|wanted| wanted.rows.iter().copied());
        let mut rows: Vec<usize> = rows.filter(|row| all.contains(row)).collect();
        rows.sort_unstable();
        rows.dedup();
        match rows.is_empty() {
            true => all.collect(),
            false => rows,
        }
    }

    /// Computes logits and losses and, with `gradients`, the gradient of the hidden states and of
    /// the head.
    fn score(
        &self,
        pack: &Pack<'_>,
        wanted: &[Wanted],
        kept: &mut Activations,
        mut gradients: Option<&mut Gradients>,
    ) -> Vec<(usize, Graded)> {
        let d = self.layout.config.hidden_size;
        let of = |(index, _): &(usize, _)| (*index, Graded::default());
        let mut graded: Vec<_> = pack.spans.iter().map(of).collect();
        let len = kept.hidden.len();
        clear(&mut kept.d_hidden, len);
        for same in wanted.chunk_by(|a, b| a.columns == b.columns) {
            let columns = same[0].columns;
            let head = match columns {
                Some(subset) => &self.gathered[subset][..],
                None => &self.weights[self.layout.head.clone()],
            };
            let most = logits_per_width(self.products) * d / (head.len() / d).max(1);
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

    /// [`score`](Self::score) for groups over the same columns. `head` has the head's rows for
    /// these columns.
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
        self.products.multiply(
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
        self.products.multiply(
            MatMut::new(&mut kept.d_rows, d),
            Store::Set,
            d_logits,
            Mat::new(head, count, d),
        );
        for (row, to) in kept.d_rows.chunks_exact(d).zip(picked()) {
            add(&mut kept.d_hidden[to * d..][..d], row);
        }
        if !self.learns_head() {
            return;
        }
        let d_head = match wanted.first().and_then(|wanted| wanted.columns) {
            Some(subset) => &mut gradients.gathered[subset][..],
            None => &mut gradients.weights[self.layout.head.clone()],
        };
        self.products.multiply(
            MatMut::new(d_head, d),
            Store::Add,
            d_logits.t(),
            Mat::new(&kept.rows, rows, d),
        );
    }

    fn backward(&self, pack: &Pack<'_>, kept: &mut Activations, grads: &mut [f32]) {
        let d = self.layout.config.hidden_size;
        clear(&mut kept.d_stream, kept.scored.len() * d);
        self.norm_back(
            grads,
            &self.layout.norm,
            &kept.x,
            &kept.inverse,
            &mut kept.d_hidden,
            &mut kept.d_stream,
        );
        for layer in (0..self.layout.blocks.len()).rev() {
            self.mlp_backward(layer, kept, grads);
            self.attention_backward(pack, layer, kept, grads);
        }
        let Some(at) = self
            .layout
            .embedding
            .clone()
            .filter(|_| self.low_rank.is_none())
        else {
            return;
        };
        let embedding = &mut grads[at];
        for ((_, rows), sequence) in pack.spans.iter().zip(&pack.sequences) {
            let Sequence::Ids(ids) = sequence else {
                continue;
            };
            let d_stream = &kept.d_stream[rows.start * d..rows.end * d];
            for (row, id) in d_stream.chunks_exact(d).zip(*ids) {
                add(&mut embedding[*id as usize * d..][..d], row);
            }
        }
    }
}
