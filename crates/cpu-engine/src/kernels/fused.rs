//! Kernels of several steps over data that is still in cache.

use std::ops::Range;

use lm::Activation;

use crate::cache::{CacheShape, Segment};

use super::gemm::{Chains, Gemm, Operands, Panels, Rows, Store};
use super::out::Out;
use super::row::PanelRow;
use super::simd::{Kernel, LANES, PANEL, Simd};
use super::vector::{GateMul, SoftCap, SoftmaxNumerators};

/// Step that follows a projection.
#[derive(Clone, Copy)]
pub(crate) enum Epilogue<'a> {
    /// No step. The product is stored in this way.
    None(Store),
    /// A bias per output column, padded to whole panels; empty for none.
    Bias(&'a [f32]),
    /// Logits are divided by a number and, with a cap, become `cap * tanh(x / cap)`.
    Logits {
        /// The divisor.
        divisor: f32,
        /// The soft cap.
        cap: Option<f32>,
    },
}

/// A projection and its epilogue.
pub(crate) struct Projection<'a, T> {
    pub(crate) operands: T,
    pub(crate) panels: Range<usize>,
    pub(crate) epilogue: Epilogue<'a>,
    pub(crate) out: Out<'a>,
    /// If panels of gate and up projections alternate: the activation, and the matrix that receives
    /// `activation(gate) * up`.
    pub(crate) gated: Option<(Activation, Out<'a>)>,
}

impl<T: Operands> Kernel for Projection<'_, T> {
    type Output = ();

    const NARROW: bool = T::NARROW;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self {
            operands,
            panels,
            epilogue,
            mut out,
            gated,
        } = self;
        let store = match epilogue {
            Epilogue::None(store) => store,
            _ => Store::Set,
        };
        Gemm {
            operands,
            panels: panels.clone(),
            out: &mut out,
            store,
        }
        .run(simd);
        match epilogue {
            Epilogue::None(_) | Epilogue::Bias([]) => {}
            Epilogue::Bias(bias) => {
                for row in 0..operands.rows() {
                    for panel in panels.clone() {
                        let bias = &bias[panel * PANEL..];
                        for (value, bias) in out.panel(row, panel).iter_mut().zip(bias) {
                            *value += bias;
                        }
                    }
                }
            }
            Epilogue::Logits { divisor, cap } => {
                for row in 0..operands.rows() {
                    for panel in panels.clone() {
                        let values = out.panel(row, panel);
                        values.iter_mut().for_each(|value| *value /= divisor);
                        let factor = 1.0;
                        if let Some(cap) = cap {
                            SoftCap {
                                values,
                                factor,
                                cap,
                            }
                            .run(simd);
                        }
                    }
                }
            }
        }
        let Some((activation, mut gated)) = gated else {
            return;
        };
        for row in 0..operands.rows() {
            for pair in panels.start / 2..panels.end / 2 {
                let (gate, up) = out.range(row, 2 * pair * PANEL, 2 * PANEL).split_at(PANEL);
                let out = gated.panel(row, pair);
                let width = out.len();
                GateMul {
                    activation,
                    gate: &gate[..width],
                    up: &up[..width],
                    out,
                }
                .run(simd);
            }
        }
    }
}

/// Working memory of one thread's attention.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttentionScratch {
    scores: Vec<f32>,
    mixed: Vec<f32>,
    score_stride: usize,
    head_stride: usize,
}

/// Number of query rows of one attention task: as many as the matrix kernel keeps in registers.
pub(crate) const QUERY_ROWS: usize = 6;

impl AttentionScratch {
    /// Working memory for heads of `head_dim`, at first without room for a context.
    pub(crate) fn new(head_dim: usize) -> Self {
        let head_stride = head_dim.next_multiple_of(PANEL);
        Self {
            scores: Vec::new(),
            mixed: vec![0.0; QUERY_ROWS * head_stride],
            score_stride: 0,
            head_stride,
        }
    }

    /// Makes room for a context of `len`.
    pub(crate) fn reserve(&mut self, len: usize) {
        self.score_stride = self.score_stride.max(len.next_multiple_of(PANEL));
        self.scores.resize(QUERY_ROWS * self.score_stride, 0.0);
    }

    /// Size in bytes after [`reserve`](Self::reserve) of `len`.
    pub(crate) fn bytes_at(len: usize, head_dim: usize) -> usize {
        let columns = len.next_multiple_of(PANEL) + head_dim.next_multiple_of(PANEL);
        QUERY_ROWS * columns * size_of::<f32>()
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.scores.as_slice()) + size_of_val(self.mixed.as_slice())
    }
}

/// Causal attention of one block in one call.
#[derive(Clone, Copy)]
pub(crate) struct AttentionCall<'a> {
    /// Queries, `[kv_heads][positions][group][head_dim]`.
    pub(crate) queries: &'a [f32],
    /// Shape of the cache.
    pub(crate) shape: CacheShape,
    /// Its first row of the outputs.
    pub(crate) row: usize,
    /// Number of positions before this call.
    pub(crate) start: usize,
    /// Position of the cache from which on the keys and values of the new positions stand: `start`,
    /// or a later one for an alternative.
    pub(crate) stored: usize,
    /// Number of new positions.
    pub(crate) count: usize,
    /// Number of query heads per key/value head.
    pub(crate) group: usize,
    /// Factor of the products of queries and keys.
    pub(crate) scale: f32,
    /// Soft cap of the scores.
    pub(crate) cap: Option<f32>,
    /// Number of positions that a position attends to, itself included.
    pub(crate) window: usize,
}

/// The part of a call for a few query rows that share one key/value head.
pub(crate) struct Attention<'a, R> {
    pub(crate) call: AttentionCall<'a>,
    /// Keys and values of every head.
    pub(crate) segments: &'a [Segment<R>],
    /// Index of the key/value head.
    pub(crate) kv_head: usize,
    /// Rows that this task computes, of the queries that share the key/value head. These are
    /// ordered by position, and at one position by query head.
    pub(crate) rows: Range<usize>,
    pub(crate) scratch: &'a mut AttentionScratch,
    /// `[positions, heads * head_dim]`.
    pub(crate) out: Out<'a>,
}

impl<R: PanelRow> Kernel for Attention<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (head_dim, group) = (self.call.shape.head_dim, self.call.group);
        let mut sums = [0.0; QUERY_ROWS];
        self.score(simd);
        for (i, sum) in sums.iter_mut().enumerate().take(self.rows.len()) {
            // Starts at a whole panel, because a score's lane must depend on its position only.
            let (first, context) = (self.first(i), self.context(i));
            let (from, padded) = (first / PANEL * PANEL, context.next_multiple_of(LANES));
            let scores = &mut self.scratch.scores[i * self.scratch.score_stride..][from..padded];
            let mut scale = self.call.scale;
            if let Some(cap) = self.call.cap {
                SoftCap {
                    values: &mut *scores,
                    factor: scale,
                    cap,
                }
                .run(simd);
                scale = 1.0;
            }
            scores[..first - from].fill(f32::NEG_INFINITY);
            scores[context - from..].fill(f32::NEG_INFINITY);
            *sum = SoftmaxNumerators { scores, scale }.run(simd);
        }
        self.mix(simd);
        for (i, sum) in sums.iter().enumerate().take(self.rows.len()) {
            let row = self.rows.start + i;
            let head = self.kv_head * group + row % group;
            let mixed = &self.scratch.mixed[i * self.scratch.head_stride..][..head_dim];
            let out = (self.call.row + row / group, head * head_dim);
            let out = self.out.range(out.0, out.1, head_dim);
            let inverse = 1.0 / sum;
            for (out, mixed) in out.iter_mut().zip(mixed) {
                *out = mixed * inverse;
            }
        }
    }
}

impl<'a, R: PanelRow> Attention<'a, R> {
    /// Number of positions up to and including that of row `i`, which are the ones it may attend
    /// to.
    #[inline(always)]
    fn context(&self, i: usize) -> usize {
        self.call.start + (self.rows.start + i) / self.call.group + 1
    }

    /// The keys of this head in a segment.
    #[inline(always)]
    fn keys(&self, segment: &'a Segment<R>) -> Panels<'a, R> {
        let shape = &self.call.shape;
        let len = shape.positions / PANEL * shape.head_dim;
        Panels {
            rows: &segment.keys[self.kv_head * len..][..len],
            stride: shape.head_dim,
        }
    }

    /// The values of this head in a segment.
    #[inline(always)]
    fn values(&self, segment: &'a Segment<R>) -> Panels<'a, R> {
        let shape = &self.call.shape;
        let len = shape.head_dim.div_ceil(PANEL) * shape.positions;
        Panels {
            rows: &segment.values[self.kv_head * len..][..len],
            stride: shape.positions,
        }
    }

    /// The first position that row `i` of this task attends to.
    #[inline(always)]
    fn first(&self, i: usize) -> usize {
        self.context(i).saturating_sub(self.call.window)
    }

    /// Computes the scores of every row for all positions that any of the rows attends to.
    #[inline(always)]
    fn score<S: Simd>(&mut self, simd: S) {
        let longest = self.context(self.rows.len() - 1);
        let AttentionCall { start, stored, .. } = self.call;
        if start == stored {
            self.score_at(simd, self.first(0)..longest);
            return;
        }
        self.score_at(simd, self.first(0).min(start)..start);
        let own = longest - start;
        self.score_at(simd, stored..stored + own);
        // Where a score stands says which position it is of.
        let rows = self.scratch.scores.chunks_mut(self.scratch.score_stride);
        for scores in rows.take(self.rows.len()) {
            scores.copy_within(stored..stored + own, start);
        }
    }

    /// Computes the scores of every row for some positions of the cache, in whole panels.
    #[inline(always)]
    fn score_at<S: Simd>(&mut self, simd: S, positions: Range<usize>) {
        let AttentionCall { queries, shape, .. } = self.call;
        let stride = self.scratch.score_stride;
        let row = self.kv_head * self.call.count * self.call.group + self.rows.start;
        let x = Rows {
            data: &queries[row * shape.head_dim..],
            stride: shape.head_dim,
            count: self.rows.len(),
        };
        let segments = self.segments;
        let starts = (0..positions.end).step_by(shape.positions);
        for (segment, start) in segments.iter().zip(starts) {
            let w = self.keys(segment);
            let columns = (positions.end - start).min(shape.positions);
            let columns = columns.next_multiple_of(PANEL);
            let unseen = positions.start.saturating_sub(start).min(columns) / PANEL;
            Gemm {
                operands: Chains {
                    x,
                    w,
                    inner: (0, shape.head_dim),
                },
                panels: unseen..columns / PANEL,
                out: &mut Out::new(&mut self.scratch.scores[start..], stride, columns),
                store: Store::Set,
            }
            .run(simd);
        }
    }

    /// Computes values weighted by the softmax numerators: together over the positions that all
    /// rows attend to, and row by row before and after, so that no row reads values of its future
    /// or outside its window. The chain of a row follows its positions in order, whatever rows are
    /// computed with it.
    #[inline(always)]
    fn mix<S: Simd>(&mut self, simd: S) {
        let (rows, stride) = (self.rows.len(), self.scratch.score_stride);
        let common = self.context(0);
        let all_see = self.first(rows - 1).min(common);
        let (before, after) = (0..all_see, common..usize::MAX);
        let mut store = Store::Set;
        if all_see > 0 {
            let used = rows * self.scratch.head_stride;
            self.scratch.mixed[..used].fill(0.0);
            store = Store::Extend;
        }
        for part in [before, after] {
            if part.start == common && all_see < common {
                self.mix_rows(simd, (0, rows, stride), all_see..common, store);
            }
            for i in 0..rows {
                let positions = part.start.max(self.first(i))..part.end.min(self.context(i));
                if positions.start < positions.end {
                    self.mix_rows(simd, (i, 1, 0), positions, Store::Extend);
                }
            }
        }
    }

    /// The part of [`mix`](Self::mix) for `count` rows from `row` on, whose scores are `stride`
    /// apart, segment after segment.
    #[inline(always)]
    fn mix_rows<S: Simd>(
        &mut self,
        simd: S,
        (row, count, stride): (usize, usize, usize),
        positions: Range<usize>,
        mut store: Store,
    ) {
        let AttentionCall { shape, stored, .. } = self.call;
        let mut start = positions.start;
        while start < positions.end {
            // Place in the cache, and end of those that follow each other there.
            let (place, end) = match self.call.start {
                own if own == stored => (start, positions.end),
                own if start < own => (start, positions.end.min(own)),
                own => (start - own + stored, positions.end),
            };
            let segment = place / shape.positions;
            let first = segment * shape.positions;
            let end = end.min(start + first + shape.positions - place);
            let segments = self.segments;
            let w = self.values(&segments[segment]);
            let AttentionScratch {
                scores,
                mixed,
                score_stride,
                head_stride,
            } = &mut *self.scratch;
            let x = Rows {
                data: &scores[row * *score_stride + start..],
                stride,
                count,
            };
            let inner = (place - first, place + end - start - first);
            Gemm {
                operands: Chains { x, w, inner },
                panels: 0..shape.head_dim.div_ceil(PANEL),
                out: &mut Out::new(&mut mixed[row * *head_stride..], *head_stride, *head_stride),
                store,
            }
            .run(simd);
            (start, store) = (end, Store::Extend);
        }
    }
}
