//! Weights of 8 and 4 bits and activations quantised to meet them.
//!
//! AVX2 multiplies 16-bit integers twice as fast as f32 and 8-bit ones four times (VNNI also spares
//! the additions), so activations become integers too, group by group with a scale each: 16 bits
//! beside 8-bit weights (an error far below the weights' own), 8 bits beside 4-bit ones. Products
//! of a group are summed exactly in integers, groups in f32 in order, so the sums do not depend on
//! instruction set or tile.

use std::ops::Range;

use super::gemm::{Operands, PART_BYTES, Rows, Sums, fetch, fetch_steps};
use super::panel::{Bf16Row, PanelRow};
use super::simd::{Kernel, LANES, PANEL, ROUND_MAGIC, Simd};

/// A few input dimensions of a panel of integer weights.
pub(crate) trait IntRow: Copy + Default + Send + Sync {
    /// Input dimensions of a row.
    const INPUTS: usize;
    /// Input dimensions that share a scale; a multiple of [`Self::INPUTS`].
    const GROUP: usize;
    /// Largest magnitude of an activation.
    const LEVELS: f32;
    /// What an integer sum of stored weights counts too much per unit of activation.
    const OFFSET: i32;
    /// Weights ready to multiply, eight columns.
    type Wide<S: Simd>: Copy;
    /// Integer sums of eight columns.
    type Sum<S: Simd>: Copy;

    /// Scale of a group of weights.
    fn scale(weights: &[f32]) -> f32;

    /// Stores the weight of one column and input, given as a multiple of the scale.
    fn set(&mut self, column: usize, input: usize, multiple: f32);

    fn zero<S: Simd>(simd: S) -> Self::Sum<S>;

    /// Columns 0 to 7 and 8 to 15.
    fn widen<S: Simd>(&self, simd: S) -> (Self::Wide<S>, Self::Wide<S>);

    /// `sum` plus the products of the row's inputs with the activations in `word`.
    fn multiply<S: Simd>(simd: S, sum: Self::Sum<S>, w: Self::Wide<S>, word: i32) -> Self::Sum<S>;

    /// The group's sums with `correction` added.
    fn total<S: Simd>(simd: S, sum: Self::Sum<S>, correction: i32) -> S::V;
}

/// Two inputs of sixteen columns, byte `2 * column + input`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Int8Row([i8; 32]);

impl IntRow for Int8Row {
    const INPUTS: usize = 2;
    const GROUP: usize = 64;
    const LEVELS: f32 = 32767.0;
    const OFFSET: i32 = 0;
    type Wide<S: Simd> = S::I16;
    type Sum<S: Simd> = S::I32;

    fn scale(weights: &[f32]) -> f32 {
        largest(weights).abs() / 127.0
    }

    fn set(&mut self, column: usize, input: usize, multiple: f32) {
        self.0[2 * column + input] = multiple.round_ties_even().clamp(-127.0, 127.0) as i8;
    }

    #[inline(always)]
    fn zero<S: Simd>(simd: S) -> S::I32 {
        simd.zero_i32()
    }

    #[inline(always)]
    fn widen<S: Simd>(&self, simd: S) -> (S::I16, S::I16) {
        simd.widen_i8(&self.0)
    }

    #[inline(always)]
    fn multiply<S: Simd>(simd: S, sum: S::I32, w: S::I16, word: i32) -> S::I32 {
        simd.add_pairs(sum, w, word)
    }

    #[inline(always)]
    fn total<S: Simd>(simd: S, sum: S::I32, _correction: i32) -> S::V {
        simd.i32_to_f32(sum)
    }
}

/// Four inputs of sixteen columns: byte `4 * (column % 8) + input`, columns 0 to 7 in the low
/// nibbles, 8 to 15 in the high ones, each weight plus eight.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Int4Row([u8; 32]);

impl IntRow for Int4Row {
    const INPUTS: usize = 4;
    // Eight additions of two products of at most 15 * 127 stay below 2^15.
    const GROUP: usize = 32;
    const LEVELS: f32 = 127.0;
    const OFFSET: i32 = 8;
    type Wide<S: Simd> = S::U8;
    type Sum<S: Simd> = S::Quads;

    fn scale(weights: &[f32]) -> f32 {
        // The far end of the range is -8, so the largest weight decides the sign.
        largest(weights) / -8.0
    }

    fn set(&mut self, column: usize, input: usize, multiple: f32) {
        let level = (multiple.round_ties_even() + 8.0).clamp(0.0, 15.0) as u8;
        let byte = &mut self.0[4 * (column % LANES) + input];
        *byte = if column < LANES {
            (*byte & 0xf0) | level
        } else {
            (*byte & 0x0f) | level << 4
        };
    }

    #[inline(always)]
    fn zero<S: Simd>(simd: S) -> S::Quads {
        simd.zero_quads()
    }

    #[inline(always)]
    fn widen<S: Simd>(&self, simd: S) -> (S::U8, S::U8) {
        simd.nibbles(&self.0)
    }

    #[inline(always)]
    fn multiply<S: Simd>(simd: S, sum: S::Quads, w: S::U8, word: i32) -> S::Quads {
        simd.add_quads(sum, w, word)
    }

    #[inline(always)]
    fn total<S: Simd>(simd: S, sum: S::Quads, correction: i32) -> S::V {
        simd.i32_to_f32(simd.sum_quads(sum, correction))
    }
}

/// The value of largest magnitude, NaN if there is one.
fn largest(values: &[f32]) -> f32 {
    let larger = |a: f32, b: &f32| {
        if a.abs() >= b.abs() || a.is_nan() {
            a
        } else {
            *b
        }
    };
    values.iter().fold(0.0, larger)
}

/// Rows of a panel for `inputs` input dimensions, the last one padded with zeros.
pub(crate) fn panel_rows<R: IntRow>(inputs: usize) -> usize {
    inputs.div_ceil(R::INPUTS)
}

/// Scales of a column.
pub(crate) fn groups<R: IntRow>(inputs: usize) -> usize {
    inputs.div_ceil(R::GROUP)
}

/// Quantises `columns` (up to sixteen rows of `inputs` weights) into one panel and its scales.
/// Scales are bf16; weights are rounded against the scale as stored.
pub(crate) fn pack_panel<R: IntRow>(
    columns: &[f32],
    inputs: usize,
    rows: &mut [R],
    scales: &mut [Bf16Row],
) {
    let group_rows = R::GROUP / R::INPUTS;
    for (group, (rows, stored)) in rows.chunks_mut(group_rows).zip(scales).enumerate() {
        let mut scale = [0.0; PANEL];
        for (column, weights) in columns.chunks_exact(inputs).enumerate() {
            let end = inputs.min((group + 1) * R::GROUP);
            let weights = &weights[group * R::GROUP..end];
            scale[column] = half::bf16::from_f32(R::scale(weights)).to_f32();
            // A scale too small for its inverse stands for weights of zero.
            let inverse = Some(1.0 / scale[column])
                .filter(|inverse| inverse.is_finite())
                .unwrap_or(0.0);
            for (input, weight) in weights.iter().enumerate() {
                rows[input / R::INPUTS].set(column, input % R::INPUTS, weight * inverse);
            }
            for input in weights.len()..rows.len() * R::INPUTS {
                rows[input / R::INPUTS].set(column, input % R::INPUTS, 0.0);
            }
        }
        *stored = Bf16Row::pack(&scale);
    }
}

/// Activations as integers, allocated once.
#[derive(Debug)]
pub(crate) struct QuantScratch {
    words: Vec<i32>,
    scales: Vec<f32>,
    corrections: Vec<i32>,
}

impl QuantScratch {
    /// Room for `rows` rows of up to `width` activations in any format.
    pub(crate) fn new(rows: usize, width: usize) -> Self {
        let groups = rows * groups::<Int4Row>(width);
        Self {
            words: vec![0; rows * panel_rows::<Int8Row>(width)],
            scales: vec![0.0; groups],
            corrections: vec![0; groups],
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words.as_slice())
            + size_of_val(self.scales.as_slice())
            + size_of_val(self.corrections.as_slice())
    }

    /// The first rows as filled by [`Quantize`] for weights of format `R`.
    pub(crate) fn rows<R: IntRow>(&self, count: usize, width: usize) -> IntRows<'_> {
        let (words, groups) = (panel_rows::<R>(width), groups::<R>(width));
        IntRows {
            words: &self.words[..count * words],
            scales: &self.scales[..count * groups],
            corrections: &self.corrections[..count * groups],
            count,
        }
    }
}

/// Activations as integers.
#[derive(Clone, Copy)]
pub(crate) struct IntRows<'a> {
    /// The activations that meet one panel row each.
    words: &'a [i32],
    scales: &'a [f32],
    corrections: &'a [i32],
    count: usize,
}

/// Quantises the first `width` activations of every row, in groups, to nearest even. A group with
/// an infinite or undefined activation gets an undefined scale, and so do all outputs.
pub(crate) struct Quantize<'a, R> {
    pub(crate) x: Rows<'a>,
    pub(crate) width: usize,
    pub(crate) to: &'a mut QuantScratch,
    pub(crate) format: std::marker::PhantomData<R>,
}

impl<R: IntRow> Kernel for Quantize<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (words, groups) = (panel_rows::<R>(self.width), groups::<R>(self.width));
        for row in 0..self.x.count {
            let x = &self.x.data[row * self.x.stride..][..self.width];
            let to = &mut self.to.words[row * words..][..words];
            let scales = &mut self.to.scales[row * groups..][..groups];
            let corrections = &mut self.to.corrections[row * groups..][..groups];
            let parts = x.chunks(R::GROUP).zip(to.chunks_mut(R::GROUP / R::INPUTS));
            for ((x, to), (scale, correction)) in parts.zip(scales.iter_mut().zip(corrections)) {
                let mut padded = [0.0; 64];
                let padded = &mut padded[..R::GROUP];
                padded[..x.len()].copy_from_slice(x);
                (*scale, *correction) = quantize_group::<S, R>(simd, padded, to);
            }
        }
    }
}

/// One padded group; returns its scale and the correction of its integer sums.
#[inline(always)]
fn quantize_group<S: Simd, R: IntRow>(simd: S, x: &[f32], to: &mut [i32]) -> (f32, i32) {
    let (chunks, _) = x.as_chunks::<LANES>();
    let zero = simd.splat(0.0);
    let (mut most, mut undefined) = (zero, zero);
    for chunk in chunks {
        let v = simd.load(chunk);
        most = simd.max(most, simd.max(v, simd.sub(zero, v)));
        undefined = simd.add(undefined, simd.mul(v, zero));
    }
    let most = simd.to_array(most).into_iter().fold(0.0, f32::max);
    let scale = most / R::LEVELS + simd.sum(undefined);
    let inverse = Some(R::LEVELS / most)
        .filter(|inverse| inverse.is_finite())
        .unwrap_or(0.0);
    let (inverse, magic) = (simd.splat(inverse), simd.splat(ROUND_MAGIC));
    let bits = 32 / R::INPUTS;
    let mut sum = 0_i32;
    let words_per_chunk = LANES / R::INPUTS;
    for (chunk, to) in chunks.iter().zip(to.chunks_mut(words_per_chunk)) {
        // Product and sum apart: a fused operation would round differently.
        let rounded = simd.add(simd.mul(simd.load(chunk), inverse), magic);
        let lanes = simd.to_array(rounded).map(f32::to_bits);
        for (lanes, word) in lanes.chunks_exact(R::INPUTS).zip(to) {
            let mut packed = 0_u32;
            for (i, lane) in lanes.iter().enumerate() {
                let shifted = lane << (32 - bits);
                sum = sum.wrapping_add(shifted as i32 >> (32 - bits));
                packed |= (shifted >> (32 - bits)) << (bits * i);
            }
            *word = packed as i32;
        }
    }
    (scale, sum.wrapping_mul(-R::OFFSET))
}

/// Integer activations times integer weights: the chain of an output is
/// `sum = group sum * (x scale * w scale) + sum`, a unit being a group.
#[derive(Clone)]
pub(crate) struct IntGroups<'a, R> {
    pub(crate) x: IntRows<'a>,
    /// Panel after panel.
    pub(crate) rows: &'a [R],
    /// Panel after panel, a row a group.
    pub(crate) scales: &'a [Bf16Row],
    /// Input dimensions.
    pub(crate) inputs: usize,
}

impl<R: Copy> Copy for IntGroups<'_, R> {}

impl<R: IntRow> Operands for IntGroups<'_, R> {
    #[inline(always)]
    fn rows(&self) -> usize {
        self.x.count
    }

    #[inline(always)]
    fn depth(&self) -> usize {
        groups::<R>(self.inputs)
    }

    #[inline(always)]
    fn part(&self) -> usize {
        PART_BYTES / (size_of::<R>() * R::GROUP / R::INPUTS)
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
        panel: usize,
        units: Range<usize>,
        mut sums: Sums<S::V, M, P>,
    ) -> Sums<S::V, M, P> {
        let (words, groups) = (panel_rows::<R>(self.inputs), self.depth());
        let group_rows = R::GROUP / R::INPUTS;
        let mut x: [&[i32]; M] = [&[]; M];
        for r in 0..M {
            x[r] = &self.x.words[(row + r) * words..][..words];
        }
        let mut w: [&[R]; P] = [&[]; P];
        for p in 0..P {
            w[p] = &self.rows[(panel + p) * words..][..words];
        }
        for group in units {
            let mut integers = [[[R::zero(simd); 2]; P]; M];
            let range = group * group_rows..words.min((group + 1) * group_rows);
            for step in fetch_steps::<S, R>(M, range) {
                fetch(simd, M, &w[0][step.start]);
                for i in step {
                    for p in 0..P {
                        let (low, high) = w[p][i].widen(simd);
                        for r in 0..M {
                            let word = x[r][i];
                            integers[r][p][0] = R::multiply(simd, integers[r][p][0], low, word);
                            integers[r][p][1] = R::multiply(simd, integers[r][p][1], high, word);
                        }
                    }
                }
            }
            for p in 0..P {
                let (low, high) = self.scales[(panel + p) * groups + group].expand(simd);
                for r in 0..M {
                    let at = (row + r) * groups + group;
                    let scale = simd.splat(self.x.scales[at]);
                    let correction = self.x.corrections[at];
                    for (half, w_scale) in [low, high].into_iter().enumerate() {
                        let total = R::total(simd, integers[r][p][half], correction);
                        let factor = simd.mul(scale, w_scale);
                        sums[r][p][half] = simd.mul_add(total, factor, sums[r][p][half]);
                    }
                }
            }
        }
        sums
    }
}
