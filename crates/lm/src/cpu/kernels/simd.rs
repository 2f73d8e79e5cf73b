//! The eight-lane vector every kernel is written against.

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;

/// Columns of a weight panel: two vectors.
pub(crate) const PANEL: usize = 2 * LANES;

/// Adding and subtracting this rounds an f32 below 2^22 to the nearest integer, which then sits in
/// the low mantissa bits.
pub(crate) const ROUND_MAGIC: f32 = 12_582_912.0;

/// Eight f32 lanes and the arithmetic the kernels need.
///
/// A value of the implementing type is the proof that the processor has the instructions, so every
/// method is safe. Lanes never mix: lane `i` of a result depends on lane `i` of the operands only.
pub(crate) trait Simd: Copy {
    /// Eight lanes.
    type V: Copy;
    /// Eight 32-bit integers.
    type I32: Copy;
    /// Sixteen signed 16-bit integers.
    type I16: Copy;
    /// Thirty-two bytes.
    type U8: Copy;
    /// Eight sums of products of bytes, in whatever form adding is cheapest.
    type Quads: Copy;

    /// Rows of activations whose sums, two vectors a row, fit in registers beside the weights.
    const TILE: usize;

    /// Tiles of at least this many rows walk one panel and ask for weights ahead of time; lower
    /// ones walk several panels at once, which the processor's own prefetcher follows.
    const FETCH_ROWS: usize;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the instruction set can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger lane; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller lane; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `v` where `x >= limit` or `x` is NaN, zero elsewhere.
    fn zero_below(self, v: Self::V, x: Self::V, limit: Self::V) -> Self::V;
    /// `2^n` for lanes holding `ROUND_MAGIC + n`, `-126 <= n <= 127`.
    fn exp2_of_rounded(self, rounded: Self::V) -> Self::V;
    /// Sixteen bf16 numbers: the low halves of the words are lanes of the first vector, the high
    /// halves of the second.
    fn expand_bf16(self, words: &[u32; LANES]) -> (Self::V, Self::V);

    fn zero_i32(self) -> Self::I32;
    fn zero_quads(self) -> Self::Quads;
    /// The first and the last sixteen bytes.
    fn widen_i8(self, bytes: &[i8; 32]) -> (Self::I16, Self::I16);
    /// Low and high nibbles of every byte.
    fn nibbles(self, bytes: &[u8; 32]) -> (Self::U8, Self::U8);
    /// Adds to lane `i` the products of integers `2i` and `2i + 1` of `w` with the two 16-bit
    /// integers in `word`, low half first.
    fn add_pairs(self, sum: Self::I32, w: Self::I16, word: i32) -> Self::I32;
    /// Adds to sum `i` the products of bytes `4i` to `4i + 3` of `w` with the four signed bytes of
    /// `word`. The sum of any neighbouring pair of products may not leave 16 bits, however many are
    /// added up.
    fn add_quads(self, sum: Self::Quads, w: Self::U8, word: i32) -> Self::Quads;
    /// The sums, `plus` added to each.
    fn sum_quads(self, sums: Self::Quads, plus: i32) -> Self::I32;
    /// Each integer as the nearest f32.
    fn i32_to_f32(self, v: Self::I32) -> Self::V;

    /// Hints that memory some KiB after `place` will be read soon; the memory need not exist.
    /// Called every 256 bytes, it covers everything once.
    fn fetch_ahead<T>(self, place: &T);

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

/// A computation that runs on whichever vector the processor has.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;

    /// Runs it. Implementations are `#[inline(always)]`, so that the body is compiled with the
    /// instruction set of the caller.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Plain arrays: runs anywhere, vectorised by the compiler as far as the build target allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

/// Lane-wise combination of two arrays.
#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

impl Simd for Portable {
    type V = [f32; LANES];
    type I32 = [i32; LANES];
    type I16 = [i16; 2 * LANES];
    type U8 = [u8; 4 * LANES];
    type Quads = [i32; LANES];

    const TILE: usize = 6;
    const FETCH_ROWS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }

    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Not `f32::mul_add`: without the instruction that is a library call per lane.
        zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, limit: Self::V) -> Self::V {
        let mut out = v;
        for i in 0..LANES {
            if x[i] < limit[i] {
                out[i] = 0.0;
            }
        }
        out
    }

    #[inline(always)]
    fn exp2_of_rounded(self, rounded: Self::V) -> Self::V {
        let mut out = rounded;
        for lane in &mut out {
            *lane = f32::from_bits((lane.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
        }
        out
    }

    #[inline(always)]
    fn expand_bf16(self, words: &[u32; LANES]) -> (Self::V, Self::V) {
        let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            low[i] = f32::from_bits(words[i] << 16);
            high[i] = f32::from_bits(words[i] & 0xffff_0000);
        }
        (low, high)
    }

    #[inline(always)]
    fn zero_i32(self) -> Self::I32 {
        [0; LANES]
    }

    #[inline(always)]
    fn zero_quads(self) -> Self::Quads {
        [0; LANES]
    }

    #[inline(always)]
    fn widen_i8(self, bytes: &[i8; 32]) -> (Self::I16, Self::I16) {
        let half = |first: usize| std::array::from_fn(|i| i16::from(bytes[first + i]));
        (half(0), half(2 * LANES))
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 32]) -> (Self::U8, Self::U8) {
        (bytes.map(|b| b & 15), bytes.map(|b| b >> 4))
    }

    #[inline(always)]
    fn add_pairs(self, sum: Self::I32, w: Self::I16, word: i32) -> Self::I32 {
        let (low, high) = (i32::from(word as i16), word >> 16);
        let add = |i: usize| {
            let products = i32::from(w[2 * i]) * low + i32::from(w[2 * i + 1]) * high;
            sum[i].wrapping_add(products)
        };
        std::array::from_fn(add)
    }

    #[inline(always)]
    fn add_quads(self, sum: Self::Quads, w: Self::U8, word: i32) -> Self::Quads {
        let x = word.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|i| {
            let products = x.iter().zip(&w[4 * i..]).map(|(x, w)| x * i32::from(*w));
            sum[i] + products.sum::<i32>()
        })
    }

    #[inline(always)]
    fn sum_quads(self, sums: Self::Quads, plus: i32) -> Self::I32 {
        sums.map(|sum| sum.wrapping_add(plus))
    }

    #[inline(always)]
    fn i32_to_f32(self, v: Self::I32) -> Self::V {
        v.map(|x| x as f32)
    }

    #[inline(always)]
    fn fetch_ahead<T>(self, _place: &T) {}
}
