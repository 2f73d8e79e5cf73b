//! The one matrix kernel: activations times panels, for 1 to many rows.
//!
//! Batch invariance rests here. Output `(r, n)` is always the chain
//! `acc = x[r][i] * w[i][n] + acc` over `i` in order, starting from zero (or, to extend a chain,
//! from the stored value), whatever tile the row falls into; tiles only decide which chains run
//! side by side.

use std::ops::Range;

use super::out::Out;
use super::panel::PanelRow;
use super::simd::{Kernel, LANES, PANEL, Simd};

/// Rows of a tile; with two vectors a row, six rows fill the registers of AVX2.
const MAX_TILE: usize = 6;

/// Row-major activations.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// At least `(count - 1) * stride + width` values.
    pub(crate) data: &'a [f32],
    /// Distance between rows.
    pub(crate) stride: usize,
    /// Number of rows.
    pub(crate) count: usize,
}

/// Panels of equal length, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, R> {
    /// Panel `p` is `rows[p * stride..]`.
    pub(crate) rows: &'a [R],
    /// Distance between panels.
    pub(crate) stride: usize,
}

/// What happens to a finished sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Replaces the output.
    Set,
    /// Is added to the output.
    Add,
    /// The chain started from the output and replaces it.
    Extend,
}

/// `out[:, panels] = x * w[inner, panels]`.
pub(crate) struct Gemm<'a, 'o, R> {
    /// Column `i` of `x` meets row `inner.start + i` of the panels.
    pub(crate) x: Rows<'a>,
    pub(crate) w: Panels<'a, R>,
    pub(crate) inner: Range<usize>,
    pub(crate) panels: Range<usize>,
    pub(crate) out: &'a mut Out<'o>,
    pub(crate) store: Store,
}

impl<R: PanelRow> Kernel for Gemm<'_, '_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let count = self.x.count;
        match count {
            0 => {}
            1 => self.sweep::<S, 1, 4>(simd),
            2 => self.sweep::<S, 2, 2>(simd),
            3 => self.sweep::<S, 3, 2>(simd),
            _ => {
                for panel in self.panels.clone() {
                    self.rows_of_panel(simd, panel);
                }
            }
        }
    }
}

impl<R: PanelRow> Gemm<'_, '_, R> {
    /// All rows as one tile, `P` panels at a time: few rows alone would leave the multipliers
    /// waiting for each other.
    #[inline(always)]
    fn sweep<S: Simd, const M: usize, const P: usize>(&mut self, simd: S) {
        let mut panel = self.panels.start;
        while panel + P <= self.panels.end {
            self.tile::<S, M, P>(simd, 0, panel);
            panel += P;
        }
        while panel < self.panels.end {
            self.tile::<S, M, 1>(simd, 0, panel);
            panel += 1;
        }
    }

    /// All rows in tiles of nearly equal height, while the panel stays in cache.
    #[inline(always)]
    fn rows_of_panel<S: Simd>(&mut self, simd: S, panel: usize) {
        let count = self.x.count;
        let tiles = count.div_ceil(MAX_TILE);
        for tile in 0..tiles {
            let (row, end) = (tile * count / tiles, (tile + 1) * count / tiles);
            match end - row {
                3 => self.tile::<S, 3, 1>(simd, row, panel),
                4 => self.tile::<S, 4, 1>(simd, row, panel),
                5 => self.tile::<S, 5, 1>(simd, row, panel),
                _ => self.tile::<S, MAX_TILE, 1>(simd, row, panel),
            }
        }
    }

    /// Rows `row..row + M` of panels `panel..panel + P`.
    #[expect(
        clippy::needless_range_loop,
        reason = "constant bounds unroll into registers"
    )]
    #[inline(always)]
    fn tile<S: Simd, const M: usize, const P: usize>(&mut self, simd: S, row: usize, panel: usize) {
        let depth = self.inner.len();
        let mut x: [&[f32]; M] = [&[]; M];
        for r in 0..M {
            x[r] = &self.x.data[(row + r) * self.x.stride..][..depth];
        }
        let mut w: [&[R]; P] = [&[]; P];
        for p in 0..P {
            w[p] = &self.w.rows[(panel + p) * self.w.stride + self.inner.start..][..depth];
        }
        let mut acc = [[[simd.splat(0.0); 2]; P]; M];
        if self.store == Store::Extend {
            for r in 0..M {
                for p in 0..P {
                    acc[r][p] = load_panel(simd, self.out.panel(row + r, panel + p));
                }
            }
        }
        for i in 0..depth {
            for p in 0..P {
                let (low, high) = w[p][i].expand(simd);
                for r in 0..M {
                    let value = simd.splat(x[r][i]);
                    acc[r][p][0] = simd.mul_add(value, low, acc[r][p][0]);
                    acc[r][p][1] = simd.mul_add(value, high, acc[r][p][1]);
                }
            }
        }
        for r in 0..M {
            for p in 0..P {
                let out = self.out.panel(row + r, panel + p);
                let mut sum = acc[r][p];
                if self.store == Store::Add {
                    let before = load_panel(simd, out);
                    sum = [simd.add(before[0], sum[0]), simd.add(before[1], sum[1])];
                }
                store_panel(simd, sum, out);
            }
        }
    }
}

/// Up to sixteen values as two vectors, zeros beyond.
#[inline(always)]
fn load_panel<S: Simd>(simd: S, from: &[f32]) -> [S::V; 2] {
    let mut padded = [0.0; PANEL];
    padded[..from.len()].copy_from_slice(from);
    let (halves, _) = padded.as_chunks::<LANES>();
    [simd.load(&halves[0]), simd.load(&halves[1])]
}

#[inline(always)]
fn store_panel<S: Simd>(simd: S, values: [S::V; 2], to: &mut [f32]) {
    if let ([low, high], []) = to.as_chunks_mut::<LANES>() {
        simd.store(values[0], low);
        simd.store(values[1], high);
    } else {
        let (low, high) = (simd.to_array(values[0]), simd.to_array(values[1]));
        for (slot, value) in to.iter_mut().zip(low.into_iter().chain(high)) {
            *slot = value;
        }
    }
}
