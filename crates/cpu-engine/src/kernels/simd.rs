//! The vector types and operations that every kernel is written against, and the compact storage
//! that one of these operations unpacks.

use super::walk::Walk;

/// Number of lanes of a row vector.
pub const LANES: usize = 8;

/// Number of columns of a weight panel.
pub(crate) const PANEL: usize = 2 * LANES;

/// Number of rows of pairs in a granule.
pub(crate) const GRANULE: usize = 4;

/// Adding and subtracting this number rounds an f32 below 2^22 to the nearest integer, which is
/// then in the low mantissa bits.
pub(crate) const ROUND_MAGIC: f32 = 12_582_912.0;

/// Eight f32 lanes and the arithmetic of norms, softmax and activations.
///
/// A value of the implementing type proves that the processor has the instructions, so every method
/// is safe. Lanes never mix: lane `i` of a result depends on lane `i` of the operands only.
pub trait Lanes: Copy {
    /// Eight lanes.
    type V: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// Loads eight numbers from memory.
    fn load(self, from: &[f32; LANES]) -> Self::V;
    /// Stores eight numbers to memory.
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once if the instruction set can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger lane; `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller lane; `b` if either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `v` where `x >= limit` or `x` is NaN, zero elsewhere.
    fn zero_below(self, v: Self::V, x: Self::V, limit: Self::V) -> Self::V;
    /// `2^n` for lanes that hold `ROUND_MAGIC + n`, with `-126 <= n <= 127`.
    fn exp2_of_rounded(self, rounded: Self::V) -> Self::V;
    /// Thirty-two numbers of magnitude 127.5 or less as bytes in order, rounded to nearest even.
    fn round_to_bytes(self, x: [Self::V; 4]) -> [i8; 4 * LANES];

    /// Prefetches memory some KiB after `place`, as far as the walk asks for it; that memory need
    /// not exist. It is called once every `lines` cache lines: 3 for compact weights, 16 for pairs
    /// and bytes in AMX tiles, else 4.
    fn fetch_ahead<T>(self, place: &T, lines: usize);

    /// The lanes in memory order.
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        self.store(v, &mut lanes);
        lanes
    }

    /// Sum of the lanes, always in the same tree.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let l = self.to_array(v);
        ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
    }
}

/// High bytes by code.
pub(crate) type Book = [u8; 16];

/// Eight inputs of sixteen columns: three cache lines.
///
/// Low bytes and codes are placed so that unpacking within lanes of 128 bits yields whole
/// [`PairRow`](super::row::PairRow)s: byte `i` of the low bytes of rows `2k` and `2k + 1` is that
/// of row `2k + i / 8 % 2`, column `4 * (i / 16) + i % 8 / 2`, half `i % 2` (the low one first).
/// Its code is in byte `i` of the codes, in the low four bits for `k = 0`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Granule {
    pub(crate) low: [[u8; GRANULE * PANEL]; 2],
    pub(crate) codes: [u8; GRANULE * PANEL],
}

impl Granule {
    /// Indices of the bytes of a word's low half; those of the high half follow.
    fn place(row: usize, column: usize) -> (usize, usize) {
        (
            row / 2,
            16 * (column / 4) + 8 * (row % 2) + 2 * (column % 4),
        )
    }

    pub(crate) fn set(&mut self, row: usize, column: usize, low: [u8; 2], codes: [u8; 2]) {
        let (half, at) = Self::place(row, column);
        for i in 0..2 {
            self.low[half][at + i] = low[i];
            let byte = &mut self.codes[at + i];
            *byte = *byte & (0xf0 >> (4 * half)) | codes[i] << (4 * half);
        }
    }

    /// The words of a row, in plain scalar code.
    pub(crate) fn row(&self, book: &Book, row: usize) -> [u32; PANEL] {
        let mut words = [0; PANEL];
        for (column, word) in words.iter_mut().enumerate() {
            let (half, at) = Self::place(row, column);
            for i in 0..2 {
                let code = self.codes[at + i] >> (4 * half) & 15;
                let bits = u16::from_le_bytes([self.low[half][at + i], book[usize::from(code)]]);
                *word |= u32::from(bits) << (16 * i);
            }
        }
        words
    }
}

/// The sixteen columns of a panel and the arithmetic of the matrix kernel. Columns never mix.
pub(crate) trait Simd: Lanes {
    /// Sixteen f32.
    type P: Copy;
    /// Sixteen words that hold pairs of bf16 numbers, the first of each in the high half.
    type Words: Copy;
    /// Sixteen bytes to look up.
    type Book: Copy;
    /// Four signed bytes per column, ready to multiply.
    type Signed: Copy;
    /// Sixteen sums of products with signed bytes.
    type SignedSums: Copy;
    /// Four bytes below sixteen per column, ready to multiply.
    type Nibbles: Copy;
    /// Sixteen sums of products with such bytes.
    type NibbleSums: Copy;

    /// Number of rows of activations whose sums fit in registers beside the weights.
    const TILE: usize;

    /// Constant that products with signed bytes add to every weight; the correction removes it.
    const SIGNED_OFFSET: i32;

    /// The walk of panels.
    fn walk(self) -> Walk;

    /// Runs `kernel` in a function of its own. The kernels of a product differ in their numbers of
    /// rows; compiled as one function, they take the compiler many times as long.
    fn apart<K: Kernel>(self, kernel: K) -> K::Output;

    /// The unit that multiplies tiles, if there is one and it is to be used.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn tiles(self) -> Option<super::x86::amx::Tiles> {
        None
    }

    fn splat_panel(self, x: f32) -> Self::P;
    fn load_panel(self, from: &[f32; PANEL]) -> Self::P;
    /// Sixteen numbers in half precision, given by their bits.
    fn widen_halves(self, from: &[u16; PANEL]) -> Self::P;
    fn store_panel(self, v: Self::P, to: &mut [f32; PANEL]);
    fn add_panel(self, a: Self::P, b: Self::P) -> Self::P;
    fn mul_panel(self, a: Self::P, b: Self::P) -> Self::P;
    /// `a * b + c`, rounded once if the instruction set can.
    fn mul_add_panel(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P;
    /// Sixteen signed bytes as numbers.
    fn expand_bytes(self, from: &[i8; PANEL]) -> Self::P;
    /// Sixteen integers as numbers.
    #[cfg(target_arch = "x86_64")]
    fn expand_words(self, from: &[i32; PANEL]) -> Self::P;

    fn words(self, from: &[u32; PANEL]) -> Self::Words;
    #[cfg(target_arch = "x86_64")]
    fn store_words(self, words: Self::Words, to: &mut [u32; PANEL]);
    fn book(self, from: &Book) -> Self::Book;
    /// The rows of a granule, whose codes are indices into `book`.
    fn granule(self, book: Self::Book, granule: &Granule) -> [Self::Words; GRANULE];
    /// `words`, with `word` in the columns whose bits are set.
    fn replace_words(self, words: Self::Words, columns: u16, word: u32) -> Self::Words;
    /// The first (`which` is 0) or second bf16 number of every pair.
    fn widen(self, words: Self::Words, which: usize) -> Self::P;
    /// Adds to each column of every `sums[r][p]` the product of its first weight in `words` with
    /// the bf16 number in the high half of `x[r]`, then that of the second with the low half. Each
    /// is rounded once if the instruction set can. Numbers below the normal range may count as
    /// zero.
    fn add_pairs<const M: usize, const P: usize>(
        self,
        sums: &mut [[Self::P; P]; M],
        p: usize,
        words: Self::Words,
        x: [&i32; M],
    );

    fn signed(self, bytes: &[i8; 4 * PANEL]) -> Self::Signed;
    fn start_signed(self, correction: i32) -> Self::SignedSums;
    /// Adds to sum `i` the products of bytes `4i` to `4i + 3` of `w`, none of them -128, with the
    /// four signed bytes of `word`, none of them -128.
    fn add_signed(self, sum: Self::SignedSums, w: Self::Signed, word: i32) -> Self::SignedSums;
    /// The sums as f32, with the correction applied.
    fn signed_to_f32(self, sums: Self::SignedSums) -> Self::P;

    /// Low and high nibbles of every byte.
    fn nibbles(self, bytes: &[u8; 4 * PANEL]) -> (Self::Nibbles, Self::Nibbles);
    fn start_nibbles(self, correction: i32) -> Self::NibbleSums;
    /// As [`Self::add_signed`]. Some sets add the products of neighbouring bytes in 16 bits, so the
    /// sum of each such pair over a whole group must fit.
    fn add_nibbles(self, sum: Self::NibbleSums, w: Self::Nibbles, word: i32) -> Self::NibbleSums;
    /// The sums as f32, with the correction (as at the start) applied.
    fn nibbles_to_f32(self, sums: Self::NibbleSums, correction: i32) -> Self::P;
}

/// A computation that runs on any of the vector types.
pub(crate) trait Kernel {
    /// Result of the computation.
    type Output;

    /// True if it depends on how the set multiplies bytes or pairs of bf16 numbers. Sets that
    /// differ only in that share the code of all other kernels, which takes long to compile.
    const NARROW: bool = false;

    /// Runs the computation. Implementations are `#[inline(always)]`, so that the body is compiled
    /// with the instruction set of the caller.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}
