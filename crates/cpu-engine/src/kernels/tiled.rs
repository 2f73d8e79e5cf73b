//! Matrix products by tiles: up to sixteen rows at a time with several panels, more rows with one
//! panel at a time.
//!
//! A row of a tile of sums is the chain of its own row of activations and nothing else. Weights are
//! taken in the same order for any number of rows, so the bits of a row do not depend on that
//! number.

use std::ops::Range;

use super::compact::filled_up;
use super::gemm::{PART_BYTES, Sink};
use super::quant::{Int8Row, IntRow, IntRows, group_words};
use super::row::{F32Row, PairRow, PanelRow, ScaleRow};
use super::simd::{PANEL, Simd};
use super::walk::NARROW;
use super::x86::amx::{Factors, ROWS, SUMS, Tile, Tiles, Unit, WORDS};

/// Largest number of rows at once.
const STRIP: usize = SUMS * ROWS;

/// Sums of a tile.
type TileSums<T> = [[T; PANEL]; ROWS];

/// Cuts rows into strips, all of whole tiles but the last.
#[inline(always)]
fn strips(count: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..count).step_by(STRIP);
    starts.map(move |start| start..count.min(start + STRIP))
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
        sink: &mut impl Sink,
    ) {
        let mut rest = [[0; WORDS]; STRIP];
        for rows in strips(self.count) {
            self.fill_rest(rows.clone(), &mut rest);
            let mut unit = tiles.open(rows.len(), WORDS);
            let mut strip = Strip {
                product: self,
                simd,
                rows,
                rest: &rest,
            };
            if strip.rows.len() > ROWS {
                strip.wide(&mut unit, panels.clone(), sink);
                continue;
            }
            match strip.simd.walk().streams(strip.rows.len().min(NARROW)) {
                1 => strip.narrow::<1>(&mut unit, panels.clone(), sink),
                2 => strip.narrow::<2>(&mut unit, panels.clone(), sink),
                _ => strip.narrow::<4>(&mut unit, panels.clone(), sink),
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
        sink: &mut impl Sink,
    ) {
        let Range { start, end } = panels;
        let apart = (end - start) / P;
        for first in start..start + apart {
            self.panels::<P>(unit, std::array::from_fn(|p| first + p * apart), sink);
        }
        for panel in start + P * apart..end {
            self.panels::<1>(unit, [panel], sink);
        }
    }

    #[inline(always)]
    fn panels<const P: usize>(
        &mut self,
        unit: &mut Unit,
        panels: [usize; P],
        sink: &mut impl Sink,
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
            self.put(unit, p, 0..self.rows.len(), panel, sink);
        }
    }

    /// Multiplies more rows, one panel after the other.
    #[inline(always)]
    fn wide(&mut self, unit: &mut Unit, panels: Range<usize>, sink: &mut impl Sink) {
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
                self.put(unit, sum, row..height.min(row + ROWS), panel, sink);
            }
        }
    }

    #[inline(always)]
    fn put(&self, unit: &Unit, sum: usize, rows: Range<usize>, panel: usize, sink: &mut impl Sink) {
        let mut sums: TileSums<f32> = [[0.0; PANEL]; ROWS];
        unit.store(sum, &mut sums);
        for (row, sums) in rows.zip(&sums) {
            let sums = self.simd.load_panel(sums);
            sink.put(self.simd, self.rows.start + row, panel, sums);
        }
    }
}

/// Largest number of rows of weights that are kept as tiles of bytes.
const PART: usize = PART_BYTES / (4 * WORDS);

/// Activations times weights of 8 or 4 bits. Tiles sum each group exactly; groups are added up as
/// in [`IntGroups`](super::quant::IntGroups), with the same bits.
pub(crate) struct IntProduct<'a, R> {
    pub(crate) x: IntRows<'a>,
    /// Weights, panel after panel.
    pub(crate) rows: &'a [R],
    /// Scales, panel after panel, one row per group.
    pub(crate) scales: &'a [ScaleRow],
    /// Units, one row per panel.
    pub(crate) units: &'a [F32Row],
    /// Number of groups of a panel.
    pub(crate) groups: usize,
}

/// Working memory of [`IntProduct`].
struct IntRoom {
    /// Sums of a group.
    groups: TileSums<i32>,
    /// Sums of rows.
    rows: [[f32; PANEL]; STRIP],
}

impl<R: IntRow> IntProduct<'_, R> {
    /// Passes every sum of `panels` to `sink`.
    #[inline(always)]
    pub(crate) fn run<S: Simd>(
        &self,
        simd: S,
        tiles: Tiles,
        panels: Range<usize>,
        sink: &mut impl Sink,
    ) {
        let mut room = IntRoom {
            groups: [[0; PANEL]; ROWS],
            rows: [[0.0; PANEL]; STRIP],
        };
        let mut bytes = [Int8Row::default(); PART];
        let part = PART / group_words::<R>();
        let mut unit = tiles.open(STRIP.min(self.x.count), group_words::<R>());
        for panel in panels {
            for rows in strips(self.x.count) {
                unit.configure(rows.len(), group_words::<R>());
                room.rows[..rows.len()].fill([0.0; PANEL]);
                for first in (0..self.groups).step_by(part) {
                    let part = IntPart {
                        product: self,
                        simd,
                        panel,
                        groups: first..self.groups.min(first + part),
                        rows: rows.clone(),
                    };
                    part.add(&mut unit, &mut bytes, &mut room);
                }
                for (row, sums) in rows.zip(&room.rows) {
                    sink.put(simd, row, panel, simd.load_panel(sums));
                }
            }
        }
    }
}

/// Some groups of a panel and the rows that they are multiplied with.
struct IntPart<'a, 'b, S, R> {
    product: &'a IntProduct<'b, R>,
    simd: S,
    panel: usize,
    groups: Range<usize>,
    rows: Range<usize>,
}

impl<S: Simd, R: IntRow> IntPart<'_, '_, S, R> {
    /// Adds the groups to the sums of the rows.
    #[inline(always)]
    fn add(&self, unit: &mut Unit, bytes: &mut [Int8Row], room: &mut IntRoom) {
        let group_rows = R::GROUP / R::INPUTS;
        let at = self.panel * self.product.groups + self.groups.start;
        let stored = &self.product.rows[at * group_rows..][..self.groups.len() * group_rows];
        let weights = R::bytes(stored, bytes).chunks_exact(group_words::<R>());
        let weights = self.groups.clone().zip(weights);
        let wide = self.rows.len() > ROWS;
        // With few rows, the sums of several groups are held in tiles before any is moved, so that
        // moving them overlaps with multiplying.
        let mut held = 0;
        for ((group, weights), stored) in weights.zip(stored.chunks_exact(group_rows)) {
            if self.rows.start == 0 {
                self.simd.fetch_ahead(&stored[0], group_rows);
            }
            if held == 0 {
                unit.zero();
            }
            if wide {
                unit.load_panel(weights);
                for (sum, row) in self.rows.clone().step_by(ROWS).enumerate() {
                    unit.add_inputs(Factors::Bytes, sum, self.inputs(group, row), weights.len());
                }
                for (sum, row) in self.rows.clone().step_by(ROWS).enumerate() {
                    self.move_sums(unit, sum, group, row, room);
                }
                continue;
            }
            unit.load_inputs(self.inputs(group, self.rows.start), weights.len());
            unit.add_panel(Factors::Bytes, held, weights);
            held += 1;
            if held == SUMS || group + 1 == self.groups.end {
                for sum in 0..held {
                    self.move_sums(unit, sum, group + 1 - held + sum, self.rows.start, room);
                }
                held = 0;
            }
        }
    }

    /// The activations of a group, of rows from `row` on.
    #[inline(always)]
    fn inputs(&self, group: usize, row: usize) -> &[i32] {
        let x = &self.product.x;
        &x.words[(group * x.count + row) * group_words::<R>()..]
    }

    /// Adds the sums of a group in tile `sum` to those of rows from `row` on.
    #[inline(always)]
    fn move_sums(&self, unit: &Unit, sum: usize, group: usize, row: usize, room: &mut IntRoom) {
        let (simd, product) = (self.simd, self.product);
        let units = product.units[self.panel].load(simd);
        let scales = product.scales[self.panel * product.groups + group].load(simd, units);
        let x_scales: [f32; ROWS] = filled_up(&product.x.scales[group * product.x.count + row..]);
        unit.store(sum, &mut room.groups);
        let (sums, _) = room.rows.as_chunks_mut::<ROWS>();
        let sums = &mut sums[(row - self.rows.start) / ROWS];
        for i in 0..ROWS {
            let total = simd.expand_words(&room.groups[i]);
            let factor = simd.mul_panel(simd.splat_panel(x_scales[i]), scales);
            let new = simd.mul_add_panel(total, factor, simd.load_panel(&sums[i]));
            simd.store_panel(new, &mut sums[i]);
        }
    }
}
