//! The matrix driver: activations times panels, for 1 to many rows.
//!
//! This module ensures batch invariance. Output `(r, n)` is always the same chain of additions over
//! the inputs in order, starting from zero (or, to extend a chain, from the stored value), whatever
//! tile the row is in. Tiles only decide which chains run side by side. A chain that is interrupted
//! between two parts of a panel is stored and continued as it was.

use std::ops::Range;

use super::out::Out;
use super::row::PanelRow;
use super::simd::{Kernel, PANEL, Simd};

/// Number of rows whose unfinished sums are kept between two parts of a panel.
// Strips of 128 rows were no faster for prompts: results/LOG.md, 2026-11-21.
const STRIP: usize = 48;

/// Size in bytes of a part of a panel. It stays in the first-level cache while several tiles use
/// it.
pub(crate) const PART_BYTES: usize = 16 << 10;

/// Number of bytes of weights between two prefetches, and the size of each: see
/// [`Simd::fetch_ahead`].
pub(crate) const FETCH_STEP: usize = 256;

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// True if a tile of `p` panels prefetches its weights. Several panels at once are left to the
/// processor's own prefetcher.
#[inline(always)]
fn fetches(p: usize) -> bool {
    p == 1
}

/// Cuts a walk over `range`, rows of type `R`, at the points where a tile of `p` panels prefetches
/// weights.
#[inline(always)]
pub(crate) fn fetch_steps<R>(p: usize, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let step = if fetches(p) {
        FETCH_STEP / size_of::<R>()
    } else {
        range.len().max(1)
    };
    let end = range.end;
    range
        .step_by(step)
        .map(move |start| start..end.min(start + step))
}

/// Prefetches one step of weights, which a tile of `p` panels will need some time after those at
/// `place`.
#[inline(always)]
pub(crate) fn fetch<S: Simd, R>(simd: S, p: usize, place: &R) {
    if fetches(p) {
        simd.fetch_ahead(place, FETCH_STEP / LINE);
    }
}

/// Prefetches as many bytes as an `R` has, for every `R` of a walk that unpacks weights. Unlike
/// [`fetch`], it leaves it to the caller to check the number of panels.
#[inline(always)]
pub(crate) fn fetch_each<S: Simd, R>(simd: S, place: &R) {
    simd.fetch_ahead(place, size_of::<R>() / LINE);
}

/// The sums of `M` rows and `P` panels.
pub(crate) type Sums<V, const M: usize, const P: usize> = [[V; P]; M];

/// Activations and weights in one format.
pub(crate) trait Operands: Copy {
    /// Largest number of rows, up to 5, with which a tile reads several panels at once. The more
    /// work a weight takes to unpack, the less there is to gain.
    // From memory, two streams without prefetches are as fast as one with them, and from the cache
    // up to 1.5 times as fast: results/LOG.md, 2026-11-21.
    const STREAM_ROWS: usize = 3;

    /// [`Kernel::NARROW`] of a product.
    const NARROW: bool;

    /// Number of activation rows.
    fn rows(&self) -> usize;

    /// Length of a chain in units of this format.
    fn depth(&self) -> usize;

    /// Number of units that fill [`PART_BYTES`].
    fn part(&self) -> usize;

    /// Continues the chains of rows `row..row + M` in `panels` over some units.
    fn extend<S: Simd, const M: usize, const P: usize>(
        self,
        simd: S,
        row: usize,
        panels: [usize; P],
        units: Range<usize>,
        sums: Sums<S::P, M, P>,
    ) -> Sums<S::P, M, P>;

    /// Multiplies by tiles and passes every sum to `sink`. Returns false if these operands do not
    /// suit tiles. The condition for that must not change the bits of a row.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn tiled<S: Simd>(
        &self,
        _simd: S,
        _tiles: super::x86::amx::Tiles,
        _panels: Range<usize>,
        _sink: &mut impl Sink,
    ) -> bool {
        false
    }
}

/// Row-major activations.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// At least `(count - 1) * stride + width` values.
    pub(crate) data: &'a [f32],
    /// Distance between rows, in values.
    pub(crate) stride: usize,
    /// Number of rows.
    pub(crate) count: usize,
}

/// Panels of equal length, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, R> {
    /// Rows of all panels; panel `p` is `rows[p * stride..]`.
    pub(crate) rows: &'a [R],
    /// Distance between panels, in rows.
    pub(crate) stride: usize,
}

/// f32 activations times weights that are widened to f32. The chain of an output is `sum = x[i] *
/// w[i] + sum`.
#[derive(Clone, Copy)]
pub(crate) struct Chains<'a, R> {
    /// Activations. Column `i` is multiplied with row `inner.0 + i` of the panels.
    pub(crate) x: Rows<'a>,
    pub(crate) w: Panels<'a, R>,
    /// First row of a panel, and the end of the rows, exclusive.
    pub(crate) inner: (usize, usize),
}

impl<R: PanelRow> Operands for Chains<'_, R> {
    const STREAM_ROWS: usize = 5;
    const NARROW: bool = false;

    #[inline(always)]
    fn rows(&self) -> usize {
        self.x.count
    }

    #[inline(always)]
    fn depth(&self) -> usize {
        self.inner.1 - self.inner.0
    }

    #[inline(always)]
    fn part(&self) -> usize {
        PART_BYTES / size_of::<R>()
    }

    #[expect(
        clippy::needless_range_loop,
        reason = "constant bounds unroll into registers"
    )]
    #[inline(always)]
    fn extend<S: Simd, const M: usize, const P: usize>(
        self,
        simd: S,
        row: usize,
        panels: [usize; P],
        units: Range<usize>,
        mut sums: Sums<S::P, M, P>,
    ) -> Sums<S::P, M, P> {
        let depth = units.len();
        let mut x: [&[f32]; M] = [&[]; M];
        for r in 0..M {
            x[r] = &self.x.data[(row + r) * self.x.stride + units.start..][..depth];
        }
        let mut w: [&[R]; P] = [&[]; P];
        for p in 0..P {
            let start = panels[p] * self.w.stride + self.inner.0 + units.start;
            w[p] = &self.w.rows[start..][..depth];
        }
        for step in fetch_steps::<R>(P, 0..depth) {
            fetch(simd, P, &w[0][step.start]);
            for i in step {
                for p in 0..P {
                    let weights = w[p][i].load(simd);
                    for r in 0..M {
                        let value = simd.splat_panel(x[r][i]);
                        sums[r][p] = simd.mul_add_panel(value, weights, sums[r][p]);
                    }
                }
            }
        }
        sums
    }
}

/// Use of a finished sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// The sum replaces the output.
    Set,
    /// The sum is added to the output.
    Add,
    /// The chain started from the output and replaces it.
    Extend,
}

/// `out[:, panels] = x * w[:, panels]`.
pub(crate) struct Gemm<'a, 'o, T> {
    pub(crate) operands: T,
    pub(crate) panels: Range<usize>,
    pub(crate) out: &'a mut Out<'o>,
    pub(crate) store: Store,
}

impl<T: Operands> Kernel for Gemm<'_, '_, T> {
    type Output = ();

    const NARROW: bool = T::NARROW;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.operands.rows();
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = simd.tiles()
            && self.store != Store::Extend
        {
            let (operands, panels) = (self.operands, self.panels.clone());
            if operands.tiled(simd, tiles, panels, &mut self) {
                return;
            }
        }
        let many = T::STREAM_ROWS >= rows;
        match (rows, simd.walk().streams(rows)) {
            (0, _) => {}
            (1, 1) => simd.apart(Sweep::<T, 1, 1>(&mut self)),
            (1, 4) if T::STREAM_ROWS >= 2 => simd.apart(Sweep::<T, 1, 4>(&mut self)),
            (1, _) => simd.apart(Sweep::<T, 1, 2>(&mut self)),
            (2, 2) if many => simd.apart(Sweep::<T, 2, 2>(&mut self)),
            (2, 4) if many => simd.apart(Sweep::<T, 2, 3>(&mut self)),
            (2, _) => simd.apart(Sweep::<T, 2, 1>(&mut self)),
            (3, 2 | 4) if many => simd.apart(Sweep::<T, 3, 2>(&mut self)),
            (3, _) => simd.apart(Sweep::<T, 3, 1>(&mut self)),
            (4, 2 | 4) if many && S::TILE >= 8 => simd.apart(Sweep::<T, 4, 2>(&mut self)),
            (4, _) => simd.apart(Sweep::<T, 4, 1>(&mut self)),
            (5, 2 | 4) if many && S::TILE >= 10 => simd.apart(Sweep::<T, 5, 2>(&mut self)),
            (5, _) => simd.apart(Sweep::<T, 5, 1>(&mut self)),
            (6, _) => simd.apart(Sweep::<T, 6, 1>(&mut self)),
            (7, _) if S::TILE >= 7 => simd.apart(Sweep::<T, 7, 1>(&mut self)),
            (8, _) if S::TILE >= 8 => simd.apart(Sweep::<T, 8, 1>(&mut self)),
            (9, _) if S::TILE >= 9 => simd.apart(Sweep::<T, 9, 1>(&mut self)),
            (count, _) => {
                let mut unfinished = [[0.0; PANEL]; STRIP];
                let strips = count.div_ceil(STRIP);
                for panel in self.panels.clone() {
                    for strip in 0..strips {
                        let rows = strip * count / strips..(strip + 1) * count / strips;
                        self.strip(simd, panel, rows, &mut unfinished);
                    }
                }
            }
        }
    }
}

impl<T: Operands> Gemm<'_, '_, T> {
    #[inline(always)]
    fn tile<S: Simd, const M: usize, const P: usize>(&mut self, simd: S, panels: [usize; P]) {
        let sums = self.begin::<S, M, P>(simd, 0, panels);
        let units = 0..self.operands.depth();
        let sums = self.operands.extend(simd, 0, panels, units, sums);
        self.finish(simd, 0, panels, sums);
    }

    /// Multiplies up to [`STRIP`] rows, more than a [`Sweep`] takes, by one panel, in tiles of
    /// nearly equal height. All tiles use one part of the panel before the next part, so that every
    /// tile but the first finds the part in the nearest cache.
    #[inline(always)]
    fn strip<S: Simd>(
        &mut self,
        simd: S,
        panel: usize,
        rows: Range<usize>,
        unfinished: &mut [[f32; PANEL]; STRIP],
    ) {
        let (depth, part) = (self.operands.depth(), self.operands.part());
        let tiles = rows.len().div_ceil(S::TILE);
        let mut start = 0;
        loop {
            let units = start..depth.min(start + part);
            for tile in 0..tiles {
                let first = tile * rows.len() / tiles;
                let height = (tile + 1) * rows.len() / tiles - first;
                let step = Step {
                    row: rows.start + first,
                    panel,
                    units: units.clone(),
                    last: units.end == depth,
                };
                let unfinished = &mut unfinished[first..first + height];
                match height {
                    3 => simd.apart(Tile::<T, 3>(self, step, unfinished)),
                    4 => simd.apart(Tile::<T, 4>(self, step, unfinished)),
                    5 => simd.apart(Tile::<T, 5>(self, step, unfinished)),
                    7 if S::TILE >= 7 => simd.apart(Tile::<T, 7>(self, step, unfinished)),
                    8 if S::TILE >= 8 => simd.apart(Tile::<T, 8>(self, step, unfinished)),
                    9 if S::TILE >= 9 => simd.apart(Tile::<T, 9>(self, step, unfinished)),
                    10 if S::TILE >= 10 => simd.apart(Tile::<T, 10>(self, step, unfinished)),
                    11 if S::TILE >= 11 => simd.apart(Tile::<T, 11>(self, step, unfinished)),
                    12 if S::TILE >= 12 => simd.apart(Tile::<T, 12>(self, step, unfinished)),
                    _ => simd.apart(Tile::<T, 6>(self, step, unfinished)),
                }
            }
            start = units.end;
            if start == depth {
                break;
            }
        }
    }

    /// Start values of the chains of a tile.
    #[inline(always)]
    fn begin<S: Simd, const M: usize, const P: usize>(
        &mut self,
        simd: S,
        row: usize,
        panels: [usize; P],
    ) -> Sums<S::P, M, P> {
        let mut sums = [[simd.splat_panel(0.0); P]; M];
        if self.store == Store::Extend {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (p, sum) in sums.iter_mut().enumerate() {
                    *sum = load_panel(simd, self.out.panel(row + r, panels[p]));
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn finish<S: Simd, const M: usize, const P: usize>(
        &mut self,
        simd: S,
        row: usize,
        panels: [usize; P],
        sums: Sums<S::P, M, P>,
    ) {
        for (r, sums) in sums.into_iter().enumerate() {
            for (p, sum) in sums.into_iter().enumerate() {
                self.put(simd, row + r, panels[p], sum);
            }
        }
    }
}

/// Receiver of finished sums. It is no closure, because closures are not compiled with the
/// instructions of the kernel that calls them.
pub(crate) trait Sink {
    /// Takes the sums of a row and a panel.
    fn put<S: Simd>(&mut self, simd: S, row: usize, panel: usize, sum: S::P);
}

impl<T> Sink for Gemm<'_, '_, T> {
    #[inline(always)]
    fn put<S: Simd>(&mut self, simd: S, row: usize, panel: usize, mut sum: S::P) {
        let out = self.out.panel(row, panel);
        if self.store == Store::Add {
            sum = simd.add_panel(load_panel(simd, out), sum);
        }
        store_panel(simd, sum, out);
    }
}

/// A product of all rows as one tile, `P` panels at a time. Few rows and one panel have too few
/// independent sums to keep the multipliers busy, which matters if weights are in cache.
struct Sweep<'g, 'a, 'o, T, const M: usize, const P: usize>(&'g mut Gemm<'a, 'o, T>);

impl<T: Operands, const M: usize, const P: usize> Kernel for Sweep<'_, '_, '_, T, M, P> {
    type Output = ();

    const NARROW: bool = T::NARROW;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self(gemm) = self;
        let Range { start, end } = gemm.panels;
        // Far apart, so that each stream continues where it ended: prefetchers follow long streams.
        let apart = (end - start) / P;
        for first in start..start + apart {
            let mut panels = [first; P];
            for (p, panel) in panels.iter_mut().enumerate() {
                *panel += p * apart;
            }
            gemm.tile::<S, M, P>(simd, panels);
        }
        for panel in start + P * apart..end {
            gemm.tile::<S, M, 1>(simd, [panel]);
        }
    }
}

/// One tile of `M` rows over one part of a panel.
struct Tile<'g, 'a, 'o, T, const M: usize>(&'g mut Gemm<'a, 'o, T>, Step, &'g mut [[f32; PANEL]]);

impl<T: Operands, const M: usize> Kernel for Tile<'_, '_, '_, T, M> {
    type Output = ();

    const NARROW: bool = T::NARROW;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self(gemm, step, unfinished) = self;
        let Step {
            row,
            panel,
            units,
            last,
        } = step;
        let mut sums = gemm.begin::<S, M, 1>(simd, row, [panel]);
        if units.start > 0 {
            for (sums, stored) in sums.iter_mut().zip(unfinished.iter()) {
                sums[0] = load_panel(simd, stored);
            }
        }
        let sums = gemm.operands.extend(simd, row, [panel], units, sums);
        if last {
            gemm.finish(simd, row, [panel], sums);
        } else {
            for (sums, stored) in sums.iter().zip(unfinished) {
                store_panel(simd, sums[0], stored);
            }
        }
    }
}

/// Work of one tile of a strip.
struct Step {
    row: usize,
    panel: usize,
    units: Range<usize>,
    /// True if the chains end with these units.
    last: bool,
}

/// Up to sixteen values, zeros beyond.
#[inline(always)]
fn load_panel<S: Simd>(simd: S, from: &[f32]) -> S::P {
    if let ([whole], []) = from.as_chunks::<PANEL>() {
        return simd.load_panel(whole);
    }
    let mut padded = [0.0; PANEL];
    padded[..from.len()].copy_from_slice(from);
    simd.load_panel(&padded)
}

#[inline(always)]
fn store_panel<S: Simd>(simd: S, values: S::P, to: &mut [f32]) {
    if let ([whole], []) = to.as_chunks_mut::<PANEL>() {
        simd.store_panel(values, whole);
    } else {
        let mut whole = [0.0; PANEL];
        simd.store_panel(values, &mut whole);
        to.copy_from_slice(&whole[..to.len()]);
    }
}
