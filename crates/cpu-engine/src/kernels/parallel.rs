//! Kernels that run on all threads of the pool. Threads own disjoint output columns (or attention
//! rows), so results do not depend on their number.
#![expect(
    unsafe_code,
    reason = "hands each chunk its own columns of a shared output"
)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use lm::Activation;

use crate::cache::Segment;
use crate::pool::Pool;

use super::Kernels;
use super::compact::{CompactChains, Exact, Rounded};
use super::fused::{Attention, AttentionCall, AttentionScratch, Epilogue, Projection, QUERY_ROWS};
use super::gemm::{Chains, Operands, Panels, Rows};
use super::out::{Out, SharedOut};
use super::pairs::{PairChains, RoundPairs, stride};
use super::panel::{IntPanels, PackedMatrix, PanelData};
use super::quant::{IntGroups, IntRow, QuantScratch, Quantize, group_words};
use super::row::PanelRow;
use super::simd::PANEL;

/// Largest number of chunks per thread. Each chunk is half as large as the one before it, so that a
/// thread that starts late, is interrupted or has slower memory takes less work, and the last
/// chunks are short.
// Equal chunks gave 2 to 14% fewer tokens per second, with int4 weights the fewest: results/LOG.md,
// 2026-11-25.
const TURNS: u32 = 4;
/// Least number of bytes of weights of a thread's last chunk, because prefetchers need time to
/// start on a chunk.
const LAST_BYTES: usize = 64 << 10;
/// Least number of panels of a chunk: as many as the matrix kernel interleaves for a single row.
const MIN_PANELS: usize = 4;
/// Least work of a chunk, in multiply-adds: about a microsecond, several times the cost of claiming
/// a chunk and of meeting at the end of a region.
const MIN_CHUNK_WORK: usize = 100_000;
/// Cost of reading a weight, in multiply-adds.
const READ_COST: usize = 3;

/// Least number of rows that a thread rounds, and largest number of threads that do.
const SHARE: usize = 16;
const MOST_SHARES: usize = 16;
/// Least number of activations that a thread makes integers of: a few microseconds.
const SHARE_VALUES: usize = 8192;

/// Instruction set and threads.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) kernels: Kernels,
    /// The same instruction set, with the walk of the weights.
    pub(crate) weights: Kernels,
    pub(crate) pool: Arc<Pool>,
}

/// A projection whose columns the threads divide.
struct Product<'a> {
    w: &'a PackedMatrix,
    panels: Range<usize>,
    epilogue: Epilogue<'a>,
    out: SharedOut<'a>,
    /// As in [`Projection`].
    gated: Option<(Activation, SharedOut<'a>)>,
}

impl Executor {
    /// Division into chunks of `units`, each of which costs `cost` multiply-adds; all of them
    /// together have `bytes` bytes.
    fn chunks(&self, units: usize, min_units: usize, cost: usize, bytes: usize) -> Chunks {
        // Largest number of chunks of equal size.
        let most = (units / min_units).min(units * cost / MIN_CHUNK_WORK);
        let threads = self.pool.threads().clamp(1, most.max(1));
        let most = match threads {
            1 => 1,
            _ => most.min(bytes / LAST_BYTES),
        };
        let mut chunks = Chunks {
            units,
            granule: min_units.div_ceil(2),
            threads,
            turns: 1,
        };
        while chunks.turns < TURNS && 2 * chunks.parts() + threads <= most {
            chunks.turns += 1;
        }
        chunks
    }

    /// `out = epilogue(x * w)`.
    pub(crate) fn project(
        &self,
        x: Rows<'_>,
        w: &PackedMatrix,
        epilogue: Epilogue<'_>,
        quantised: &mut QuantScratch,
        out: Out<'_>,
    ) {
        self.project_panels(x, w, 0..w.panels, epilogue, quantised, out);
    }

    /// Computes the columns of some panels of [`project`](Self::project); `epilogue` and `out`
    /// cover all columns.
    pub(crate) fn project_panels(
        &self,
        x: Rows<'_>,
        w: &PackedMatrix,
        panels: Range<usize>,
        epilogue: Epilogue<'_>,
        quantised: &mut QuantScratch,
        out: Out<'_>,
    ) {
        let product = Product {
            w,
            panels,
            epilogue,
            out: SharedOut::new(out),
            gated: None,
        };
        self.multiply(x, quantised, &product);
    }

    /// `out = activation(gate) * up`, where panels of `gate` and `up` alternate in `gate_up =
    /// epilogue(x * w)`.
    pub(crate) fn project_gated(
        &self,
        x: Rows<'_>,
        w: &PackedMatrix,
        epilogue: Epilogue<'_>,
        quantised: &mut QuantScratch,
        gate_up: Out<'_>,
        (activation, out): (Activation, Out<'_>),
    ) {
        let product = Product {
            w,
            panels: 0..w.panels,
            epilogue,
            out: SharedOut::new(gate_up),
            gated: Some((activation, SharedOut::new(out))),
        };
        self.multiply(x, quantised, &product);
    }

    fn multiply(&self, x: Rows<'_>, quantised: &mut QuantScratch, product: &Product<'_>) {
        if x.count == 0 {
            return;
        }
        let w = product.w;
        match &w.data {
            PanelData::F32(rows) => self.spread(chains(x, rows, w.inputs), product),
            PanelData::F16(rows) => self.spread(chains(x, rows, w.inputs), product),
            PanelData::Bf16(rows) => {
                let operands = PairChains {
                    x: self.round(x, w, quantised),
                    count: x.count,
                    rows,
                    inputs: w.inputs,
                };
                self.spread(operands, product);
            }
            PanelData::CompactF32(panels) => {
                let operands = CompactChains {
                    x: Exact(x),
                    w: panels,
                    inputs: w.inputs,
                };
                self.spread(operands, product);
            }
            PanelData::CompactBf16(panels) => {
                let operands = CompactChains {
                    x: Rounded {
                        words: self.round(x, w, quantised),
                        count: x.count,
                    },
                    w: panels,
                    inputs: w.inputs,
                };
                self.spread(operands, product);
            }
            PanelData::Int8(panels) => self.integers(x, panels, quantised, product),
            PanelData::Int4(panels) => self.integers(x, panels, quantised, product),
        }
    }

    /// The rows in bf16, for bf16 weights. If there are many, the threads share them.
    fn round<'a>(&self, x: Rows<'_>, w: &PackedMatrix, scratch: &'a mut QuantScratch) -> &'a [i32] {
        let width = w.inputs;
        let to = scratch.pairs(x.count, width);
        let shares = self.pool.threads().min(MOST_SHARES).min(x.count / SHARE);
        let rows = x.count.div_ceil(shares.max(1));
        let mut left = to.chunks_mut((rows * stride(width)).max(1));
        let parts: [_; MOST_SHARES] = std::array::from_fn(|_| left.next().map(Mutex::new));
        self.pool.run(x.count.div_ceil(rows.max(1)), &|share, _| {
            let Some(part) = parts.get(share).and_then(Option::as_ref) else {
                return;
            };
            // Never contended: every share belongs to one thread.
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let first = share * rows;
            self.kernels.run(RoundPairs {
                x: Rows {
                    data: &x.data[first * x.stride..],
                    stride: x.stride,
                    count: rows.min(x.count - first),
                },
                width,
                to: &mut part,
            });
        });
        to
    }

    /// The rows in integers, for weights of format `R`. If there are many, the threads share their
    /// groups.
    fn quantise<R: IntRow>(&self, x: Rows<'_>, width: usize, scratch: &mut QuantScratch) {
        let (scales, corrections, words) = scratch.parts::<R>(x.count, width);
        let groups = scales.len() / x.count.max(1);
        let shares = self.pool.threads().min(MOST_SHARES);
        let shares = shares.min(x.count * width / SHARE_VALUES);
        let each = groups.div_ceil(shares.max(1)).max(1);
        let mut left = scales
            .chunks_mut(each * x.count)
            .zip(corrections.chunks_mut(each * x.count))
            .zip(words.chunks_mut(each * x.count * group_words::<R>()));
        let parts: [_; MOST_SHARES] = std::array::from_fn(|_| left.next().map(Mutex::new));
        self.pool.run(groups.div_ceil(each), &|share, _| {
            let Some(part) = parts.get(share).and_then(Option::as_ref) else {
                return;
            };
            // Never contended: every share belongs to one thread.
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let ((scales, corrections), words) = &mut *part;
            self.kernels.run(Quantize::<R> {
                x,
                width,
                first: share * each,
                scales,
                corrections,
                words,
                format: PhantomData,
            });
        });
    }

    fn integers<R: IntRow>(
        &self,
        x: Rows<'_>,
        panels: &IntPanels<R>,
        quantised: &mut QuantScratch,
        product: &Product<'_>,
    ) {
        let inputs = product.w.inputs;
        self.quantise::<R>(x, inputs, quantised);
        let operands = IntGroups {
            x: quantised.rows::<R>(x.count, inputs),
            rows: &panels.rows,
            scales: &panels.scales,
            units: &panels.units,
            inputs,
        };
        self.spread(operands, product);
    }

    fn spread<T: Operands + Sync>(&self, operands: T, product: &Product<'_>) {
        let (w, panels) = (product.w, &product.panels);
        // Number of panels that are taken together.
        let unit = if product.gated.is_some() { 2 } else { 1 };
        let cost = unit * w.inputs * PANEL * (operands.rows() + READ_COST);
        let bytes = w.bytes() / w.panels * panels.len();
        let chunks = self.chunks(panels.len() / unit, MIN_PANELS / unit, cost, bytes);
        self.pool.run(chunks.count(), &|chunk, _| {
            let Range { start, end } = chunks.range(chunk);
            // SAFETY: chunks are disjoint ranges of panels, or of pairs of panels, hence of columns
            // of both outputs.
            let out = unsafe { product.out.claim() };
            let gated = product.gated.as_ref().map(|(activation, out)| {
                // SAFETY: as above.
                (*activation, unsafe { out.claim() })
            });
            self.weights.run(Projection {
                operands,
                panels: panels.start + unit * start..panels.start + unit * end,
                epilogue: product.epilogue,
                out,
                gated,
            });
        });
    }

    /// Attention of every head for calls that read one cache; `out` is `[rows, heads * head_dim]`.
    pub(crate) fn attend<'a, R: PanelRow>(
        &self,
        calls: impl Iterator<Item = AttentionCall<'a>> + Clone + Sync,
        segments: &[Segment<R>],
        scratch: &[Mutex<AttentionScratch>],
        out: Out<'_>,
    ) {
        let rows = |call: &AttentionCall<'_>| call.count * call.group;
        let tiles = |call: &AttentionCall<'_>| rows(call).div_ceil(QUERY_ROWS);
        let cost = |call: &AttentionCall<'_>| {
            let seen = (call.start + call.count).min(call.window);
            2 * seen * call.shape.head_dim * rows(call).min(QUERY_ROWS)
        };
        let all = calls.clone().map(|call| tiles(&call) * call.shape.kv_heads);
        let most = calls.clone().map(|call| cost(&call)).max();
        let chunks = self.chunks(all.sum(), 1, most.unwrap_or(0), usize::MAX);
        let out = SharedOut::new(out);
        self.pool.run(chunks.count(), &|chunk, thread| {
            // Never contended: a thread number is in use once at a time.
            let mut scratch = scratch[thread]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for task in chunks.range(chunk) {
                let mut task = task;
                let own = calls.clone().find(|call| {
                    let tasks = tiles(call) * call.shape.kv_heads;
                    let own = task < tasks;
                    if !own {
                        task -= tasks;
                    }
                    own
                });
                let Some(call) = own else {
                    continue;
                };
                let (rows, tiles) = (rows(&call), tiles(&call));
                let (kv_head, tile) = (task / tiles, task % tiles);
                // SAFETY: a task writes one head group's columns of its own rows; tasks are
                // disjoint.
                let out = unsafe { out.claim() };
                self.kernels.run(Attention {
                    call,
                    segments,
                    kv_head,
                    rows: tile * rows / tiles..(tile + 1) * rows / tiles,
                    scratch: &mut scratch,
                    out,
                });
            }
        });
    }
}

/// Division of `units` into ranges whose bounds are multiples of `granule`, except for the end.
///
/// The pool assigns them from both ends, to the caller from the front and to all helpers from the
/// back. The largest are therefore at the ends and the smallest in the middle: for two threads and
/// three turns they have 4, 2, 1, 1, 2 and 4 of fourteen parts.
#[derive(Clone, Copy)]
struct Chunks {
    units: usize,
    granule: usize,
    threads: usize,
    /// Number of chunks per thread if all are equally fast, at least 1.
    turns: u32,
}

impl Chunks {
    fn count(self) -> usize {
        self.threads * self.turns as usize
    }

    /// Number of parts of a thread in its first `turns` chunks.
    fn share(self, turns: u32) -> usize {
        (1 << self.turns) - (1 << (self.turns - turns))
    }

    /// Number of all parts; the last chunk of a thread has one.
    fn parts(self) -> usize {
        self.threads * self.share(self.turns)
    }

    fn range(self, chunk: usize) -> Range<usize> {
        let granules = self.units.div_ceil(self.granule);
        let bound = |chunk| {
            let before = self.before(chunk) * granules / self.parts();
            (before * self.granule).min(self.units)
        };
        bound(chunk)..bound(chunk + 1)
    }

    /// Number of parts before a chunk.
    fn before(self, chunk: usize) -> usize {
        if chunk <= self.turns as usize {
            return self.share(chunk as u32);
        }
        let (helpers, behind) = (self.threads - 1, self.count() - chunk);
        let (turns, rest) = ((behind / helpers) as u32, behind % helpers);
        let next = match rest {
            0 => 0,
            _ => self.share(turns + 1) - self.share(turns),
        };
        self.parts() - helpers * self.share(turns) - rest * next
    }
}

/// Activations times all rows of panels.
fn chains<'a, R>(x: Rows<'a>, rows: &'a [R], inputs: usize) -> Chains<'a, R> {
    Chains {
        x,
        w: Panels {
            rows,
            stride: inputs,
        },
        inner: (0, inputs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_unit_once() {
        for units in 0..70 {
            for granule in 1..5 {
                for (threads, turns) in (1..6).flat_map(|n| [(n, 1), (n, 2), (n, 3), (n, 4)]) {
                    let chunks = Chunks {
                        units,
                        granule,
                        threads,
                        turns,
                    };
                    let all = (0..chunks.count()).flat_map(|i| chunks.range(i));
                    assert_eq!(all.collect::<Vec<_>>(), (0..units).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn chunks_are_smallest_where_threads_meet() {
        let sizes = |threads, turns| {
            let chunks = Chunks {
                units: 7 * threads,
                granule: 1,
                threads,
                turns,
            };
            let ranges = (0..chunks.count()).map(|i| chunks.range(i).len());
            ranges.collect::<Vec<_>>()
        };
        assert_eq!(sizes(1, 3), [4, 2, 1]);
        assert_eq!(sizes(2, 3), [4, 2, 1, 1, 2, 4]);
        assert_eq!(sizes(3, 3), [4, 2, 1, 1, 1, 2, 2, 4, 4]);
        assert_eq!(sizes(4, 1), [7, 7, 7, 7]);
    }
}
