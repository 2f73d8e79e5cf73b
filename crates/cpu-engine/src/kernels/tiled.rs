//! Matrix products by tiles: up to sixteen rows at a time with several panels, more rows with one
//! panel at a time.
//!
//! A row of a tile of sums is the chain of its own row of activations and nothing else. Weights are
//! taken in the same order for any number of rows, so the bits of a row do not depend on that
//! number.

use std::ops::Range;

use super::gemm::fetch_each;
use super::row::{F32Row, PairRow, PanelRow, ScaleRow};
use super::simd::{PANEL, Simd};
use super::walk::NARROW;
use super::x86::amx::{Factors, ROWS, SUMS, Tile, Tiles, Unit, WORDS};

/// Largest number of rows at once.
const STRIP: usize = SUMS * ROWS;

/// Sums of a tile.
type TileSums<T> = [[T; PANEL]; ROWS];

/// Cuts rows into strips of nearly equal height.
#[inline(always)]
fn strips(count: usize) -> impl Iterator<Item = Range<usize>> {
    let strips = count.div_ceil(STRIP);
    (0..strips).map(move |strip| strip * count / strips..(strip + 1) * count / strips)
}

/// bf16 weights that are delivered tile by tile.
pub(crate) trait PairTiles {
    /// A position in a panel.
    type Panel<'a, S: Simd>
    where
        Self: 'a;

    /// The position of the first tile of a panel.
    fn panel<S: Simd>(&self, simd: S, panel: usize) -> Self::Panel<'_, S>;

    /// The next tile, with zeros beyond the last input. It is made in `room` unless it is in memory
    /// already.
    fn tile<'p: 't, 't, S: Simd>(
        panel: &'t mut Self::Panel<'p, S>,
        simd: S,
        room: &'t mut Tile<PairRow>,
    ) -> &'t Tile<PairRow>
    where
        Self: 'p;
}

/// Activations rounded to bf16 times bf16 weights.
pub(crate) struct PairProduct<'a, T> {
    /// `[count][stride]`.
    pub(crate) x: &'a [i32],
    pub(crate) count: usize,
    /// Number of words of a row, a pair in each.
    pub(crate) pairs: usize,
    /// Number of words from one row to the next.
    pub(crate) stride: usize,
    pub(crate) weights: T,
}

/// The words of some rows for a panel's last tile if inputs end inside it, filled up with zeros.
type Rest = [[i32; WORDS]; STRIP];

impl<T: PairTiles> PairProduct<'_, T> {
    /// Passes every sum of `panels` to `put`.
    #[inline(always)]
    pub(crate) fn run<S: Simd>(
        &self,
        simd: S,
        tiles: Tiles,
        panels: Range<usize>,
        mut put: impl FnMut(usize, usize, &[f32; PANEL]),
    ) {
        let mut rest = [[0; WORDS]; STRIP];
        for rows in strips(self.count) {
            self.fill_rest(rows.clone(), &mut rest);
            let mut unit = tiles.open(rows.len());
            let mut strip = Strip {
                product: self,
                simd,
                rows,
                rest: &rest,
            };
            if strip.rows.len() > ROWS {
                strip.wide(&mut unit, panels.clone(), &mut put);
                continue;
            }
            match strip.simd.walk().streams(strip.rows.len().min(NARROW)) {
                1 => strip.narrow::<1>(&mut unit, panels.clone(), &mut put),
                2 => strip.narrow::<2>(&mut unit, panels.clone(), &mut put),
                _ => strip.narrow::<4>(&mut unit, panels.clone(), &mut put),
            }
        }
    }

    #[inline(always)]
    fn fill_rest(&self, rows: Range<usize>, rest: &mut Rest) {
        let (whole, len) = (self.pairs / WORDS * WORDS, self.pairs % WORDS);
        for (row, rest) in rows.zip(rest) {
            let start = row * self.stride + whole;
            rest[..len].copy_from_slice(&self.x[start..][..len]);
        }
    }
}

/// Rows that are multiplied together.
struct Strip<'a, 'b, S, T> {
    product: &'a PairProduct<'b, T>,
    simd: S,
    rows: Range<usize>,
    rest: &'a Rest,
}

impl<S: Simd, T: PairTiles> Strip<'_, '_, S, T> {
    /// Number of tiles of a panel.
    #[inline(always)]
    fn depth(&self) -> usize {
        self.product.pairs.div_ceil(WORDS)
    }

    /// The activations of rows from `row` on for tile `at`, and their distance in words.
    #[inline(always)]
    fn inputs(&self, row: usize, at: usize) -> (&[i32], usize) {
        if (at + 1) * WORDS > self.product.pairs {
            return (self.rest[row..].as_flattened(), WORDS);
        }
        let stride = self.product.stride;
        let x = &self.product.x[(self.rows.start + row) * stride + at * WORDS..];
        (x, stride)
    }

    /// Multiplies up to sixteen rows with `P` panels at a time, far apart as in a sweep of vector
    /// kernels.
    #[inline(always)]
    fn narrow<const P: usize>(
        &mut self,
        unit: &mut Unit,
        panels: Range<usize>,
        put: &mut impl FnMut(usize, usize, &[f32; PANEL]),
    ) {
        let Range { start, end } = panels;
        let apart = (end - start) / P;
        for first in start..start + apart {
            self.panels::<P>(unit, std::array::from_fn(|p| first + p * apart), put);
        }
        for panel in start + P * apart..end {
            self.panels::<1>(unit, [panel], put);
        }
    }

    #[inline(always)]
    fn panels<const P: usize>(
        &mut self,
        unit: &mut Unit,
        panels: [usize; P],
        put: &mut impl FnMut(usize, usize, &[f32; PANEL]),
    ) {
        let weights = &self.product.weights;
        let mut places = panels.map(|panel| weights.panel(self.simd, panel));
        let mut room = [PairRow::default(); ROWS];
        unit.zero();
        for at in 0..self.depth() {
            let (x, stride) = self.inputs(0, at);
            unit.load_inputs(x, stride);
            for (p, place) in places.iter_mut().enumerate() {
                let tile = T::tile(place, self.simd, &mut room);
                unit.add_panel(Factors::Pairs, p, tile);
            }
        }
        for (p, panel) in panels.into_iter().enumerate() {
            self.put(unit, p, 0..self.rows.len(), panel, put);
        }
    }

    /// Multiplies more rows, one panel after the other.
    #[inline(always)]
    fn wide(
        &mut self,
        unit: &mut Unit,
        panels: Range<usize>,
        put: &mut impl FnMut(usize, usize, &[f32; PANEL]),
    ) {
        let height = self.rows.len();
        let mut room = [PairRow::default(); ROWS];
        for panel in panels {
            let mut place = self.product.weights.panel(self.simd, panel);
            unit.zero();
            for at in 0..self.depth() {
                unit.load_panel(T::tile(&mut place, self.simd, &mut room));
                for (sum, row) in (0..height).step_by(ROWS).enumerate() {
                    let (x, stride) = self.inputs(row, at);
                    unit.add_inputs(Factors::Pairs, sum, x, stride);
                }
            }
            for (sum, row) in (0..height).step_by(ROWS).enumerate() {
                self.put(unit, sum, row..height.min(row + ROWS), panel, put);
            }
        }
    }

    #[inline(always)]
    fn put(
        &self,
        unit: &Unit,
        sum: usize,
        rows: Range<usize>,
        panel: usize,
        put: &mut impl FnMut(usize, usize, &[f32; PANEL]),
    ) {
        let mut sums: TileSums<f32> = [[0.0; PANEL]; ROWS];
        unit.store(sum, &mut sums);
        for (row, sums) in rows.zip(&sums) {
            put(self.rows.start + row, panel, sums);
        }
    }
}

/// Activations times weights of 8 bits. Tiles sum each group exactly; groups are added up as in
/// [`IntGroups`](super::quant::IntGroups), with the same bits.
pub(crate) struct IntProduct<'a, R> {
    /// Words of activations, `[groups][count][WORDS]`.
    pub(crate) x: &'a [i32],
    /// Scales of activations, `[groups][count]`.
    pub(crate) x_scales: &'a [f32],
    pub(crate) count: usize,
    /// Weights, panel after panel, sixteen rows per group.
    pub(crate) rows: &'a [R],
    /// Scales, panel after panel, one row per group.
    pub(crate) scales: &'a [ScaleRow],
    /// Units, one row per panel.
    pub(crate) units: &'a [F32Row],
    /// Number of groups of a panel.
    pub(crate) groups: usize,
}

impl<R> IntProduct<'_, R> {
    /// Passes every sum of `panels` to `put`.
    #[inline(always)]
    pub(crate) fn run<S: Simd>(
        &self,
        simd: S,
        tiles: Tiles,
        panels: Range<usize>,
        mut put: impl FnMut(usize, usize, &[f32; PANEL]),
    ) {
        let (weights, _) = self.rows.as_chunks::<ROWS>();
        for rows in strips(self.count) {
            let mut unit = tiles.open(rows.len());
            for panel in panels.clone() {
                let weights = &weights[panel * self.groups..][..self.groups];
                let mut sums = [[0.0; PANEL]; STRIP];
                if rows.len() > ROWS {
                    for (group, tile) in weights.iter().enumerate() {
                        fetch_each(simd, tile);
                        unit.zero();
                        unit.load_panel(tile);
                        for (tile, row) in rows.clone().step_by(ROWS).enumerate() {
                            let words = self.inputs(group, row);
                            unit.add_inputs(Factors::Bytes, tile, words, WORDS);
                        }
                        let scales = self.scales(simd, panel, group);
                        for (tile, row) in rows.clone().step_by(ROWS).enumerate() {
                            let rows = row..rows.end.min(row + ROWS);
                            let sums = &mut sums[tile * ROWS..];
                            self.add_group(simd, &unit, (tile, group), rows, scales, sums);
                        }
                    }
                } else {
                    // Several groups at once: the sums of one group are moved while the next are
                    // multiplied.
                    for first in (0..self.groups).step_by(SUMS) {
                        let groups = first..self.groups.min(first + SUMS);
                        unit.zero();
                        for (tile, group) in groups.clone().enumerate() {
                            fetch_each(simd, &weights[group]);
                            unit.load_inputs(self.inputs(group, rows.start), WORDS);
                            unit.add_panel(Factors::Bytes, tile, &weights[group]);
                        }
                        for (tile, group) in groups.enumerate() {
                            let scales = self.scales(simd, panel, group);
                            let at = (tile, group);
                            self.add_group(simd, &unit, at, rows.clone(), scales, &mut sums);
                        }
                    }
                }
                for (row, sums) in rows.clone().zip(&sums) {
                    put(row, panel, sums);
                }
            }
        }
    }

    /// The activations of a group, of rows from `row` on.
    #[inline(always)]
    fn inputs(&self, group: usize, row: usize) -> &[i32] {
        &self.x[(group * self.count + row) * WORDS..]
    }

    /// The scales of a group of weights.
    #[inline(always)]
    fn scales<S: Simd>(&self, simd: S, panel: usize, group: usize) -> S::P {
        let units = self.units[panel].load(simd);
        self.scales[panel * self.groups + group].load(simd, units)
    }

    /// Adds the sums of a group in `tile` to those of `rows`.
    #[inline(always)]
    fn add_group<S: Simd>(
        &self,
        simd: S,
        unit: &Unit,
        (tile, group): (usize, usize),
        rows: Range<usize>,
        scales: S::P,
        sums: &mut [[f32; PANEL]],
    ) {
        let mut integers: TileSums<i32> = [[0; PANEL]; ROWS];
        unit.store(tile, &mut integers);
        let x_scales = &self.x_scales[group * self.count..][rows];
        for ((x_scale, integers), sum) in x_scales.iter().zip(&integers).zip(sums) {
            let total = simd.load_panel(&integers.map(|integer| integer as f32));
            let factor = simd.mul_panel(simd.splat_panel(*x_scale), scales);
            let new = simd.mul_add_panel(total, factor, simd.load_panel(sum));
            simd.store_panel(new, sum);
        }
    }
}
