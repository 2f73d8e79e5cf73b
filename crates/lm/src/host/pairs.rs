//! Products of bf16 numbers by the instruction that multiplies pairs of them (`vdpbf16ps`).
//!
//! Both operands are rounded into blocks that stay in the second-level cache. A word holds the
//! numbers of two neighbouring terms of a sum, and the words of one tile (rows of the left operand)
//! or one panel (columns of the right one) are contiguous. The sums of a tile and a panel fill the
//! registers.
#![expect(
    unsafe_code,
    reason = "vector intrinsics; reachable only through a detected token"
)]

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::{Mat, MatMut, Store};

/// Number of rows of a tile: with two registers of sums per row, 24 of the 32 registers.
const TILE: usize = 12;
/// Number of columns of a panel: two registers.
const PANEL: usize = 32;
/// Number of values in a register.
const LANES: usize = 16;
/// Number of terms of a sum that are packed together. A panel of so many takes half of a
/// first-level cache.
const DEPTH: usize = 256;
/// Number of columns that are packed together.
const COLUMNS: usize = 24 * PANEL;
/// Number of rows that are packed together.
const ROWS: usize = 10 * TILE;

/// Proof that this processor has AVX-512 F, BW and BF16.
#[derive(Clone, Copy)]
pub(super) struct Pairs(());

/// Packed blocks. Every thread keeps its own, to save fresh pages.
#[derive(Default)]
struct Blocks {
    tiles: Vec<[u32; TILE]>,
    panels: Vec<[u32; PANEL]>,
}

thread_local! {
    static BLOCKS: RefCell<Blocks> = RefCell::default();
}

impl Pairs {
    /// The proof; `None` if the processor lacks an instruction.
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        all.then_some(Self(()))
    }

    /// As [`Products::multiply`](super::Products::multiply).
    pub(super) fn multiply(self, to: MatMut<'_>, store: Store, a: Mat<'_>, b: Mat<'_>) {
        assert_eq!(a.cols, b.rows, "inner dimensions");
        assert!(b.cols <= to.stride, "rows of the destination");
        if a.rows > 0 && b.cols > 0 && a.cols == 0 && store == Store::Set {
            let rows = to.data.chunks_mut(to.stride).take(a.rows);
            return rows.for_each(|row| row[..b.cols].fill(0.0));
        }
        BLOCKS.with_borrow_mut(|blocks| {
            // SAFETY: the token proves the instructions.
            unsafe { product(to, store, a, b.t(), blocks) }
        });
    }
}

/// An operand as the sums use it, with a column for every term: the left one, or the right one
/// transposed.
impl Mat<'_> {
    /// Packs some rows for some terms, as many rows at a time as a tile or panel has.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack<const W: usize>(
        self,
        (first, lines): (usize, usize),
        (start, depth): (usize, usize),
        out: &mut Vec<[u32; W]>,
    ) {
        let pairs = depth.div_ceil(2);
        out.resize(lines.div_ceil(W) * pairs, [0; W]);
        if self.row_stride == 1 {
            for pair in 0..pairs {
                let numbers = |place: usize| match place < depth {
                    true => &self.data[(start + place) * self.col_stride + first..][..lines],
                    false => &[],
                };
                let numbers = [numbers(2 * pair), numbers(2 * pair + 1)];
                interleave(numbers, out.iter_mut().skip(pair).step_by(pairs));
            }
        } else {
            for (group, out) in out.chunks_exact_mut(pairs).enumerate() {
                let lines = (first + group * W, (lines - group * W).min(W));
                self.pack_along(lines, (start, depth), out);
            }
        }
    }

    /// Packs rows whose own numbers are contiguous.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack_along<const W: usize>(
        self,
        (first, lines): (usize, usize),
        (start, depth): (usize, usize),
        out: &mut [[u32; W]],
    ) {
        for (block, out) in out.chunks_mut(LANES).enumerate() {
            let from = block * 2 * LANES;
            let count = (depth - from).min(2 * LANES);
            for part in (0..W).step_by(LANES) {
                let mut words = [_mm512_setzero_si512(); LANES];
                let lines = lines.saturating_sub(part);
                for (line, words) in words.iter_mut().take(lines).enumerate() {
                    let numbers = (first + part + line) * self.row_stride + start + from;
                    let numbers = &self.data[numbers..][..count];
                    let (low, high) = numbers.split_at(count.min(LANES));
                    *words = round(low, high);
                }
                for (out, words) in out.iter_mut().zip(transposed(words)) {
                    let to = &mut out[part..W.min(part + LANES)];
                    // SAFETY: the mask keeps the store within the slice.
                    unsafe {
                        _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), mask(to.len()), words);
                    }
                }
            }
        }
    }
}

/// Sixteen rows of sixteen words as columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut columns = rows;
    // Within each quarter of the registers: four rows at a time.
    for at in (0..LANES).step_by(4) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| rows[at + i]);
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        columns[at] = _mm512_unpacklo_epi64(ab, cd);
        columns[at + 1] = _mm512_unpackhi_epi64(ab, cd);
        let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        columns[at + 2] = _mm512_unpacklo_epi64(ab, cd);
        columns[at + 3] = _mm512_unpackhi_epi64(ab, cd);
    }
    // Then the quarters of every fourth register.
    for at in 0..4 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|i| columns[at + i]);
        let (ab, cd) = (
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0x88>(c, d),
        );
        columns[at] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        columns[at + 8] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
        let (ab, cd) = (
            _mm512_shuffle_i32x4::<0xdd>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        );
        columns[at + 4] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        columns[at + 12] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
    }
    columns
}

/// The lanes of the first `len` numbers.
#[inline(always)]
fn mask(len: usize) -> __mmask16 {
    match len {
        0..LANES => (1 << len) - 1,
        _ => !0,
    }
}

/// Writes the words of two contiguous rows of numbers, `W` at a time. A row is read from start to
/// end, because only few rows of a wide matrix fit into a cache together.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn interleave<'a, const W: usize>(
    [low, high]: [&[f32]; 2],
    out: impl Iterator<Item = &'a mut [u32; W]>,
) {
    // Rounding puts the numbers of one row after those of the other, but a word needs one of each.
    let order: [u16; 2 * LANES] = std::array::from_fn(|i| (i / 2 + i % 2 * LANES) as u16);
    // SAFETY: the array has the 64 bytes read.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    for (group, out) in out.enumerate() {
        for (part, to) in out.chunks_mut(LANES).enumerate() {
            let from = group * W + part * LANES;
            let part = |row: &[f32]| {
                let row = row.get(from..).unwrap_or(&[]);
                // SAFETY: the mask keeps the load within the slice.
                unsafe { _mm512_maskz_loadu_ps(mask(row.len().min(to.len())), row.as_ptr()) }
            };
            let rounded = words(_mm512_cvtne2ps_pbh(part(high), part(low)));
            let words = _mm512_permutexvar_epi16(order, rounded);
            // SAFETY: the mask keeps the store within the slice.
            unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), mask(to.len()), words) }
        }
    }
}

/// Up to sixteen numbers of each slice in bf16, those of `high` after those of `low`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn round(low: &[f32], high: &[f32]) -> __m512i {
    // SAFETY: the mask keeps each load within its slice.
    let [low, high] =
        [low, high].map(|from| unsafe { _mm512_maskz_loadu_ps(mask(from.len()), from.as_ptr()) });
    words(_mm512_cvtne2ps_pbh(high, low))
}

/// Pairs as words.
#[inline(always)]
fn words(pairs: __m512bh) -> __m512i {
    // SAFETY: both are 512 bits, and any bits are valid.
    unsafe { std::mem::transmute(pairs) }
}

/// Words as pairs.
#[inline(always)]
fn pairs(words: __m512i) -> __m512bh {
    // SAFETY: as in `words`.
    unsafe { std::mem::transmute(words) }
}

/// The sums of a tile's rows and a panel's columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn sums(tile: &[[u32; TILE]], panel: &[[u32; PANEL]]) -> [[__m512; 2]; TILE] {
    let mut sums = [[_mm512_setzero_ps(); 2]; TILE];
    for (rows, columns) in tile.iter().zip(panel) {
        let (left, right) = columns.split_at(LANES);
        // SAFETY: each half of a panel's words has the 64 bytes read.
        let [left, right] =
            [left, right].map(|half| pairs(unsafe { _mm512_loadu_si512(half.as_ptr().cast()) }));
        for (sums, word) in sums.iter_mut().zip(rows) {
            let row = pairs(_mm512_set1_epi32(*word as i32));
            sums[0] = _mm512_dpbf16_ps(sums[0], row, left);
            sums[1] = _mm512_dpbf16_ps(sums[1], row, right);
        }
    }
    sums
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn product(to: MatMut<'_>, store: Store, a: Mat<'_>, b: Mat<'_>, blocks: &mut Blocks) {
    let Blocks { tiles, panels } = blocks;
    for left in (0..b.rows).step_by(COLUMNS) {
        let columns = (b.rows - left).min(COLUMNS);
        for start in (0..a.cols).step_by(DEPTH) {
            let depth = (a.cols - start).min(DEPTH);
            let add = store == Store::Add || start > 0;
            b.pack((left, columns), (start, depth), panels);
            for top in (0..a.rows).step_by(ROWS) {
                let rows = (a.rows - top).min(ROWS);
                a.pack((top, rows), (start, depth), tiles);
                let pairs = depth.div_ceil(2);
                for (place, panel) in panels.chunks_exact(pairs).enumerate() {
                    let left = left + place * PANEL;
                    let width = (b.rows - left).min(PANEL);
                    for (place, tile) in tiles.chunks_exact(pairs).enumerate() {
                        let top = top + place * TILE;
                        let sums = sums(tile, panel);
                        for (row, sums) in (top..a.rows).zip(&sums) {
                            let row = &mut to.data[row * to.stride + left..][..width];
                            for (to, sum) in row.chunks_mut(LANES).zip(sums) {
                                put(to, *sum, add);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `to = sum` or `to += sum`, of up to sixteen numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn put(to: &mut [f32], mut sum: __m512, add: bool) {
    let mask = mask(to.len());
    // SAFETY: the mask keeps the load and the store within the slice.
    unsafe {
        if add {
            sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to.as_ptr()));
        }
        _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, sum);
    }
}
