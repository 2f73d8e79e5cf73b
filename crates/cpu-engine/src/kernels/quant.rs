//! Weights of 8 and 4 bits, and activations quantised to be multiplied with them.
//!
//! Products of bytes are summed four times as fast as f32 ones, so activations become bytes too,
//! with a scale per group. Products of a group are summed exactly in integers, and groups in f32 in
//! order, so the sums do not depend on the tile. Vector instruction sets give the same bits;
//! portable code, which rounds a product before it is added, gives others.

use std::ops::Range;

use super::gemm::{FETCH_STEP, Operands, PART_BYTES, Rows, Sums, fetch};
use super::pairs;
use super::row::{F32Row, PanelRow, ScaleRow};
use super::simd::{Kernel, LANES, PANEL, ROUND_MAGIC, Simd};
#[cfg(target_arch = "x86_64")]
use super::{gemm::Sink, tiled::IntProduct, x86::amx::Tiles};

/// Largest magnitude of an activation.
const LEVELS: f32 = 127.0;

/// Largest scale of weights, as a multiple of its unit.
const SCALE_LEVELS: f32 = 127.0;

/// Number of activations in a word.
const WORD: usize = 4;

/// A few inputs of a panel of integer weights: sixty-four bytes.
pub(crate) trait IntRow: Copy + Default + Send + Sync {
    /// Number of inputs of a row.
    const INPUTS: usize;
    /// Number of inputs that share a scale; a multiple of [`Self::INPUTS`] and of 32.
    const GROUP: usize;
    /// The words of activations for one row.
    type Words: Copy;
    /// Weights, unpacked for multiplication.
    type Wide<S: Simd>: Copy;
    /// Integer sums.
    type Sum<S: Simd>: Copy;

    /// The words of activations, grouped by row.
    fn words(words: &[i32]) -> &[Self::Words];

    /// Scale of a group of weights.
    fn scale(weights: &[f32]) -> f32;

    /// Level of a weight that is `multiple` times its scale.
    fn level(multiple: f32) -> i8;

    /// Stores the level of one column and input.
    fn set(&mut self, column: usize, input: usize, level: i8);

    /// Constant that the products add to every level. The correction removes it from the sums.
    fn offset<S: Simd>() -> i32;

    /// Sums at the start of a group.
    fn start<S: Simd>(simd: S, correction: i32) -> Self::Sum<S>;

    fn widen<S: Simd>(&self, simd: S) -> Self::Wide<S>;

    /// `sum` plus the products of the row's inputs with the activations in `words`.
    fn multiply<S: Simd>(
        simd: S,
        sum: Self::Sum<S>,
        w: Self::Wide<S>,
        words: &Self::Words,
    ) -> Self::Sum<S>;

    /// [`add_group`] with the number of rows of a group.
    fn add_group<S: Simd, const M: usize, const P: usize>(
        simd: S,
        sums: IntSums<Self, S, M, P>,
        w: [&[Self]; P],
        x: &[Self::Words],
    ) -> IntSums<Self, S, M, P>;

    /// The rows as the signed bytes that tiles multiply: unpacked into `room` if they are nibbles.
    #[cfg(target_arch = "x86_64")]
    fn bytes<'r>(rows: &'r [Self], room: &'r mut [Int8Row]) -> &'r [Int8Row];

    /// The group's sums, with the correction applied.
    fn total<S: Simd>(simd: S, sum: Self::Sum<S>, correction: i32) -> S::P;
}

/// The integer sums of `M` rows and `P` panels.
type IntSums<R, S, const M: usize, const P: usize> = [[<R as IntRow>::Sum<S>; P]; M];

/// Adds the products of one group of `ROWS` rows with the activations of `M` rows, one row after
/// the other. `ROWS` is a constant, so that the loop contains nothing but multiplications.
#[expect(
    clippy::needless_range_loop,
    reason = "constant bounds unroll into registers"
)]
#[inline(always)]
fn add_group<S: Simd, R: IntRow, const M: usize, const P: usize, const ROWS: usize>(
    simd: S,
    mut sums: IntSums<R, S, M, P>,
    w: [&[R]; P],
    x: &[R::Words],
) -> IntSums<R, S, M, P> {
    for p in 0..P {
        assert!(w[p].len() == ROWS, "a panel ends inside a group");
    }
    assert!(x.len() == M * ROWS, "activations end inside a group");
    // The inner loop is unrolled: nothing but multiplications stands between two prefetches.
    let step = FETCH_STEP / size_of::<R>();
    for first in (0..ROWS).step_by(step) {
        fetch(simd, P, &w[0][first]);
        for i in first..first + step {
            for p in 0..P {
                let wide = w[p][i].widen(simd);
                for r in 0..M {
                    sums[r][p] = R::multiply(simd, sums[r][p], wide, &x[r * ROWS + i]);
                }
            }
        }
    }
    sums
}

/// Four inputs of sixteen columns, byte `4 * column + input`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Int8Row([i8; WORD * PANEL]);

impl Default for Int8Row {
    fn default() -> Self {
        Self([0; WORD * PANEL])
    }
}

impl IntRow for Int8Row {
    const INPUTS: usize = WORD;
    const GROUP: usize = 64;
    type Words = i32;
    type Wide<S: Simd> = S::Signed;
    type Sum<S: Simd> = S::SignedSums;

    #[inline(always)]
    fn words(words: &[i32]) -> &[i32] {
        words
    }

    fn scale(weights: &[f32]) -> f32 {
        largest(weights).abs() / 127.0
    }

    #[inline(always)]
    fn level(multiple: f32) -> i8 {
        round(multiple.clamp(-127.0, 127.0)) as i8
    }

    #[inline(always)]
    fn set(&mut self, column: usize, input: usize, level: i8) {
        self.0[WORD * column + input] = level;
    }

    #[inline(always)]
    fn offset<S: Simd>() -> i32 {
        S::SIGNED_OFFSET
    }

    #[inline(always)]
    fn start<S: Simd>(simd: S, correction: i32) -> S::SignedSums {
        simd.start_signed(correction)
    }

    #[inline(always)]
    fn widen<S: Simd>(&self, simd: S) -> S::Signed {
        simd.signed(&self.0)
    }

    #[inline(always)]
    fn multiply<S: Simd>(simd: S, sum: S::SignedSums, w: S::Signed, word: &i32) -> S::SignedSums {
        simd.add_signed(sum, w, *word)
    }

    #[inline(always)]
    fn add_group<S: Simd, const M: usize, const P: usize>(
        simd: S,
        sums: IntSums<Self, S, M, P>,
        w: [&[Self]; P],
        x: &[i32],
    ) -> IntSums<Self, S, M, P> {
        add_group::<S, Self, M, P, { Self::GROUP / Self::INPUTS }>(simd, sums, w, x)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn bytes<'r>(rows: &'r [Self], _room: &'r mut [Self]) -> &'r [Self] {
        rows
    }

    #[inline(always)]
    fn total<S: Simd>(simd: S, sum: S::SignedSums, _correction: i32) -> S::P {
        simd.signed_to_f32(sum)
    }
}

/// Eight inputs of sixteen columns: byte `4 * column + input % 4`, inputs 0 to 3 in the low
/// nibbles, 4 to 7 in the high ones, each weight plus eight.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Int4Row([u8; WORD * PANEL]);

impl Default for Int4Row {
    fn default() -> Self {
        Self([0; WORD * PANEL])
    }
}

impl IntRow for Int4Row {
    const INPUTS: usize = 2 * WORD;
    // Eight additions of two products of at most 15 * 127 stay below 2^15.
    const GROUP: usize = 32;
    type Words = [i32; 2];
    type Wide<S: Simd> = (S::Nibbles, S::Nibbles);
    type Sum<S: Simd> = S::NibbleSums;

    #[inline(always)]
    fn words(words: &[i32]) -> &[[i32; 2]] {
        words.as_chunks::<2>().0
    }

    fn scale(weights: &[f32]) -> f32 {
        // Levels are -8 to 7: the weight of largest magnitude gets -8, whichever sign it has.
        largest(weights) / -8.0
    }

    #[inline(always)]
    fn level(multiple: f32) -> i8 {
        round(multiple.clamp(-8.0, 7.0)) as i8
    }

    #[inline(always)]
    fn set(&mut self, column: usize, input: usize, level: i8) {
        let level = (level + 8) as u8;
        let byte = &mut self.0[WORD * column + input % WORD];
        *byte = if input < WORD {
            (*byte & 0xf0) | level
        } else {
            (*byte & 0x0f) | level << 4
        };
    }

    #[inline(always)]
    fn offset<S: Simd>() -> i32 {
        8
    }

    #[inline(always)]
    fn start<S: Simd>(simd: S, correction: i32) -> S::NibbleSums {
        simd.start_nibbles(correction)
    }

    #[inline(always)]
    fn widen<S: Simd>(&self, simd: S) -> Self::Wide<S> {
        simd.nibbles(&self.0)
    }

    #[inline(always)]
    fn multiply<S: Simd>(
        simd: S,
        sum: S::NibbleSums,
        w: Self::Wide<S>,
        words: &[i32; 2],
    ) -> S::NibbleSums {
        let sum = simd.add_nibbles(sum, w.0, words[0]);
        simd.add_nibbles(sum, w.1, words[1])
    }

    #[inline(always)]
    fn add_group<S: Simd, const M: usize, const P: usize>(
        simd: S,
        sums: IntSums<Self, S, M, P>,
        w: [&[Self]; P],
        x: &[[i32; 2]],
    ) -> IntSums<Self, S, M, P> {
        add_group::<S, Self, M, P, { Self::GROUP / Self::INPUTS }>(simd, sums, w, x)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn bytes<'r>(rows: &'r [Self], room: &'r mut [Int8Row]) -> &'r [Int8Row] {
        let (room, _) = room.as_chunks_mut();
        for (Self(nibbles), [low, high]) in rows.iter().zip(&mut *room) {
            for (i, byte) in nibbles.iter().enumerate() {
                low.0[i] = (byte & 15) as i8 - 8;
                high.0[i] = (byte >> 4) as i8 - 8;
            }
        }
        room[..rows.len()].as_flattened()
    }

    #[inline(always)]
    fn total<S: Simd>(simd: S, sum: S::NibbleSums, correction: i32) -> S::P {
        simd.nibbles_to_f32(sum, correction)
    }
}

/// A number below 2^22 rounded to the nearest integer, ties to even. The method of `f32` would be a
/// call if the compiler may not assume the processor's instruction.
fn round(value: f32) -> f32 {
    (value + ROUND_MAGIC) - ROUND_MAGIC
}

/// The first value of largest magnitude, NaN if there is one.
fn largest(values: &[f32]) -> f32 {
    // Without the sign, the bits of numbers are ordered by magnitude, those of NaN above all. One
    // maximum, which the compiler vectorises, and a short search suffice.
    let magnitude = |value: &f32| (value.to_bits() & (u32::MAX >> 1)) as i32;
    let most = values.iter().map(magnitude).fold(0, i32::max);
    match values.iter().find(|value| magnitude(value) == most) {
        Some(value) if most > 0 => *value,
        _ => 0.0,
    }
}

/// Number of rows of a panel for `inputs` inputs: whole groups, padded with zeros.
pub(crate) fn panel_rows<R: IntRow>(inputs: usize) -> usize {
    groups::<R>(inputs) * (R::GROUP / R::INPUTS)
}

/// Number of words of a row of `inputs` activations, padded as panels are.
fn row_words<R: IntRow>(inputs: usize) -> usize {
    panel_rows::<R>(inputs) * R::INPUTS / WORD
}

/// Number of words of a group of activations.
pub(crate) const fn group_words<R: IntRow>() -> usize {
    R::GROUP / WORD
}

/// Number of scales of a column.
pub(crate) fn groups<R: IntRow>(inputs: usize) -> usize {
    inputs.div_ceil(R::GROUP)
}

/// Quantises the weights of one output. It calls `scale` with the code of every group and `level`
/// with the level of every input, and returns the unit. A weight is its level times the code of its
/// group times the unit. A scale is a byte times the unit of its output, so that scales take half
/// of bf16's bytes; weights are rounded against the scale as stored.
#[inline(always)]
fn quantise<R: IntRow>(
    weights: &[f32],
    mut scale: impl FnMut(usize, i8),
    mut level: impl FnMut(usize, i8),
) -> f32 {
    let wanted: Vec<f32> = weights.chunks(R::GROUP).map(R::scale).collect();
    let unit = largest(&wanted).abs() / SCALE_LEVELS;
    for (group, (weights, wanted)) in weights.chunks(R::GROUP).zip(&wanted).enumerate() {
        let code = scale_code(*wanted, unit);
        scale(group, code);
        // A scale too small for its inverse stands for weights of zero.
        let inverse = Some(1.0 / (f32::from(code) * unit))
            .filter(|inverse| inverse.is_finite())
            .unwrap_or(0.0);
        for (input, weight) in weights.iter().enumerate() {
            level(group * R::GROUP + input, R::level(weight * inverse));
        }
    }
    unit
}

/// Quantises `columns` (up to sixteen rows of `inputs` weights) into one panel, its scales and
/// their units.
pub(crate) fn pack_panel<R: IntRow>(
    columns: &[f32],
    inputs: usize,
    rows: &mut [R],
    scales: &mut [ScaleRow],
    units: &mut F32Row,
) {
    for (column, weights) in columns.chunks_exact(inputs).enumerate() {
        let unit = quantise::<R>(
            weights,
            |group, code| scales[group].0[column] = code,
            |input, level| rows[input / R::INPUTS].set(column, input % R::INPUTS, level),
        );
        units.put(column, unit);
        for input in inputs..rows.len() * R::INPUTS {
            rows[input / R::INPUTS].set(column, input % R::INPUTS, 0);
        }
    }
    // A matrix may end inside a panel: columns beyond it are zero.
    for column in columns.len() / inputs..PANEL {
        units.put(column, 0.0);
    }
}

/// Integer weights of one output, as this engine multiplies them, for engines with another layout.
/// A weight is its level times the scale of its group times the unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntWeights {
    /// Levels, `[inputs]`, -127 to 127 in 8 bits, -8 to 7 in 4.
    pub levels: Vec<i8>,
    /// Scales, one per group of [`INT8_GROUP`] or [`INT4_GROUP`] inputs, -127 to 127.
    pub scales: Vec<i8>,
    /// Unit of all scales.
    pub unit: f32,
}

/// Number of inputs that share a scale, in 8 bits.
pub const INT8_GROUP: usize = Int8Row::GROUP;
/// Number of inputs that share a scale, in 4 bits.
pub const INT4_GROUP: usize = Int4Row::GROUP;

impl IntWeights {
    /// Quantises the weights of one output to 8 bits.
    pub fn fill_int8(&mut self, weights: &[f32]) {
        self.fill::<Int8Row>(weights);
    }

    /// Quantises the weights of one output to 4 bits.
    pub fn fill_int4(&mut self, weights: &[f32]) {
        self.fill::<Int4Row>(weights);
    }

    fn fill<R: IntRow>(&mut self, weights: &[f32]) {
        let Self {
            levels,
            scales,
            unit,
        } = self;
        levels.clear();
        scales.clear();
        *unit = quantise::<R>(
            weights,
            |_, code| scales.push(code),
            |_, level| levels.push(level),
        );
    }
}

/// Code of a scale: the number of units that is nearest to it, zero only if the scale is.
fn scale_code(scale: f32, unit: f32) -> i8 {
    let code = (scale / unit).round_ties_even();
    let code = code.clamp(-SCALE_LEVELS, SCALE_LEVELS) as i8;
    if code == 0 && scale.abs() > 0.0 {
        scale.signum() as i8
    } else {
        code
    }
}

/// Activations as integers, in a buffer that is allocated once. The activations of one group lie
/// side by side, row after row, so that a tile reads all of them from one address. With one address
/// per row, registers for addresses would run out.
#[derive(Debug)]
pub(crate) struct QuantScratch {
    words: Vec<i32>,
    scales: Vec<f32>,
    corrections: Vec<i32>,
}

impl QuantScratch {
    /// Buffers for `rows` rows of up to `width` activations in any format.
    pub(crate) fn new(rows: usize, width: usize) -> Self {
        let groups = rows * groups::<Int4Row>(width);
        Self {
            // Pairs of bf16 take the most room, except for the padding of short rows to a group.
            words: vec![0; rows * pairs::stride(width).max(row_words::<Int8Row>(width))],
            scales: vec![0.0; groups],
            corrections: vec![0; groups],
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.words.as_slice())
            + size_of_val(self.scales.as_slice())
            + size_of_val(self.corrections.as_slice())
    }

    /// The words of the first rows for [`RoundPairs`] to fill.
    ///
    /// [`RoundPairs`]: pairs::RoundPairs
    pub(crate) fn pairs(&mut self, count: usize, width: usize) -> &mut [i32] {
        &mut self.words[..count * pairs::stride(width)]
    }

    /// The scales, corrections and words of the first rows for [`Quantize`] to fill.
    pub(crate) fn parts<R: IntRow>(
        &mut self,
        count: usize,
        width: usize,
    ) -> (&mut [f32], &mut [i32], &mut [i32]) {
        let (words, groups) = (row_words::<R>(width), groups::<R>(width));
        (
            &mut self.scales[..count * groups],
            &mut self.corrections[..count * groups],
            &mut self.words[..count * words],
        )
    }

    /// The first rows as filled by [`Quantize`] for weights of format `R`.
    pub(crate) fn rows<R: IntRow>(&self, count: usize, width: usize) -> IntRows<'_> {
        let (words, groups) = (row_words::<R>(width), groups::<R>(width));
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
    /// Words, `[groups][count][words of a group]`.
    pub(crate) words: &'a [i32],
    /// Scales, `[groups][count]`.
    pub(crate) scales: &'a [f32],
    /// Corrections, `[groups][count]`.
    corrections: &'a [i32],
    pub(crate) count: usize,
}

/// Quantises some groups of the first `width` activations of every row, ties to even. A group with
/// an infinite or NaN activation gets a NaN scale, so all outputs of its row are NaN.
pub(crate) struct Quantize<'a, R> {
    pub(crate) x: Rows<'a>,
    pub(crate) width: usize,
    /// Number of the first group.
    pub(crate) first: usize,
    /// Scales and corrections, `[groups][count]`, and words, `[groups][count][words of a group]`.
    /// Their length says how many groups.
    pub(crate) scales: &'a mut [f32],
    pub(crate) corrections: &'a mut [i32],
    pub(crate) words: &'a mut [i32],
    pub(crate) format: std::marker::PhantomData<R>,
}

impl<R: IntRow> Kernel for Quantize<'_, R> {
    type Output = ();

    const NARROW: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let groups = self.scales.len() / self.x.count.max(1);
        for row in 0..self.x.count {
            let x = &self.x.data[row * self.x.stride..][..self.width];
            for (group, x) in x.chunks(R::GROUP).skip(self.first).take(groups).enumerate() {
                let at = group * self.x.count + row;
                let to = &mut self.words[at * group_words::<R>()..][..group_words::<R>()];
                let (scale, sum) = if x.len() == R::GROUP {
                    quantize_group(simd, x, to)
                } else {
                    let mut padded = [0.0; 64];
                    let padded = &mut padded[..R::GROUP];
                    padded[..x.len()].copy_from_slice(x);
                    quantize_group(simd, padded, to)
                };
                self.scales[at] = scale;
                self.corrections[at] = sum.wrapping_mul(-R::offset::<S>());
            }
        }
    }
}

/// Quantises one whole group. Returns its scale and the sum of its levels.
#[inline(always)]
fn quantize_group<S: Simd>(simd: S, x: &[f32], to: &mut [i32]) -> (f32, i32) {
    let (chunks, _) = x.as_chunks::<LANES>();
    let zero = simd.splat(0.0);
    let (mut most, mut undefined) = (zero, zero);
    for chunk in chunks {
        let v = simd.load(chunk);
        most = simd.max(most, simd.max(v, simd.sub(zero, v)));
        undefined = simd.add(undefined, simd.mul(v, zero));
    }
    let most = simd.to_array(most).into_iter().fold(0.0, f32::max);
    let scale = most / LEVELS + simd.sum(undefined);
    let inverse = Some(LEVELS / most)
        .filter(|inverse| inverse.is_finite())
        .unwrap_or(0.0);
    let inverse = simd.splat(inverse);
    let mut sum = 0_i32;
    let (quarters, _) = chunks.as_chunks::<4>();
    for ([a, b, c, d], to) in quarters.iter().zip(to.chunks_mut(LANES)) {
        let bytes = simd.round_to_bytes([
            simd.mul(simd.load(a), inverse),
            simd.mul(simd.load(b), inverse),
            simd.mul(simd.load(c), inverse),
            simd.mul(simd.load(d), inverse),
        ]);
        for byte in bytes {
            sum += i32::from(byte);
        }
        for (word, bytes) in to.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
            *word = i32::from_le_bytes(bytes.map(|byte| byte as u8));
        }
    }
    (scale, sum)
}

/// Integer activations times integer weights. The chain of an output is `sum = group sum * (x scale
/// * w scale) + sum`; one unit is a group.
#[derive(Clone)]
pub(crate) struct IntGroups<'a, R> {
    pub(crate) x: IntRows<'a>,
    /// Panel after panel.
    pub(crate) rows: &'a [R],
    /// Scales, panel after panel, one row per group.
    pub(crate) scales: &'a [ScaleRow],
    /// Units, one row per panel.
    pub(crate) units: &'a [F32Row],
    /// Number of inputs.
    pub(crate) inputs: usize,
}

impl<R: Copy> Copy for IntGroups<'_, R> {}

impl<R: IntRow> Operands for IntGroups<'_, R> {
    const NARROW: bool = true;

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

    #[inline(always)]
    fn extend<S: Simd, const M: usize, const P: usize>(
        self,
        simd: S,
        row: usize,
        panels: [usize; P],
        units: Range<usize>,
        mut sums: Sums<S::P, M, P>,
    ) -> Sums<S::P, M, P> {
        let (rows, groups) = (panel_rows::<R>(self.inputs), self.depth());
        let group_rows = R::GROUP / R::INPUTS;
        let mut w: [&[R]; P] = [&[]; P];
        for p in 0..P {
            w[p] = &self.rows[panels[p] * rows..][..rows];
        }
        let mut scale_units = [simd.splat_panel(0.0); P];
        for p in 0..P {
            scale_units[p] = self.units[panels[p]].load(simd);
        }
        for group in units {
            let at = group * self.x.count + row;
            let x = &self.x.words[at * group_words::<R>()..][..M * group_words::<R>()];
            let x_scales = &self.x.scales[at..][..M];
            let corrections = &self.x.corrections[at..][..M];
            let mut integers = [[R::start(simd, 0); P]; M];
            for r in 0..M {
                integers[r] = [R::start(simd, corrections[r]); P];
            }
            let mut group_w: [&[R]; P] = [&[]; P];
            for p in 0..P {
                group_w[p] = &w[p][group * group_rows..(group + 1) * group_rows];
            }
            integers = R::add_group(simd, integers, group_w, R::words(x));
            for p in 0..P {
                let w_scale = self.scales[panels[p] * groups + group].load(simd, scale_units[p]);
                for r in 0..M {
                    let total = R::total(simd, integers[r][p], corrections[r]);
                    let factor = simd.mul_panel(simd.splat_panel(x_scales[r]), w_scale);
                    sums[r][p] = simd.mul_add_panel(total, factor, sums[r][p]);
                }
            }
        }
        sums
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn tiled<S: Simd>(
        &self,
        simd: S,
        tiles: Tiles,
        panels: Range<usize>,
        sink: &mut impl Sink,
    ) -> bool {
        // So few rows fit the vector registers: one pass over the weights is enough, and no sums
        // are moved to and from tiles. The bits are the same.
        if self.x.count <= S::TILE {
            return false;
        }
        let product = IntProduct {
            x: self.x,
            rows: self.rows,
            scales: self.scales,
            units: self.units,
            groups: self.depth(),
        };
        product.run(simd, tiles, panels, sink);
        true
    }
}
