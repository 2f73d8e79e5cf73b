//! Kernels without vector instructions.

use super::simd::{Book, GRANULE, Granule, Kernel, LANES, Lanes, PANEL, Simd};
use super::walk::Walk;

/// Vectors as plain arrays. They run anywhere; the compiler vectorises them as far as the build
/// target allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable(pub(crate) Walk);

/// Lane-wise combination of two arrays.
#[inline(always)]
fn zip<const N: usize>(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    let mut out = [0.0; N];
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

impl Lanes for Portable {
    type V = [f32; LANES];

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
    fn round_to_bytes(self, x: [Self::V; 4]) -> [i8; 4 * LANES] {
        std::array::from_fn(|i| x[i / LANES][i % LANES].round_ties_even() as i8)
    }

    #[inline(always)]
    fn fetch_ahead<T>(self, _place: &T, _lines: usize) {}
}

/// The two bf16 numbers of a word, high half first.
#[inline(always)]
pub(super) fn halves(word: u32) -> [f32; 2] {
    [
        f32::from_bits(word & 0xffff_0000),
        f32::from_bits(word << 16),
    ]
}

impl Simd for Portable {
    type P = [f32; PANEL];
    type Words = [u32; PANEL];
    type Book = Book;
    type Signed = [i8; 4 * PANEL];
    type SignedSums = [i32; PANEL];
    type Nibbles = [u8; 4 * PANEL];
    type NibbleSums = [i32; PANEL];

    const TILE: usize = 6;
    const SIGNED_OFFSET: i32 = 0;

    #[inline(never)]
    fn apart<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn walk(self) -> Walk {
        self.0
    }

    #[inline(always)]
    fn splat_panel(self, x: f32) -> Self::P {
        [x; PANEL]
    }

    #[inline(always)]
    fn load_panel(self, from: &[f32; PANEL]) -> Self::P {
        *from
    }

    #[inline(always)]
    fn widen_halves(self, from: &[u16; PANEL]) -> Self::P {
        from.map(|bits| half::f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    fn store_panel(self, v: Self::P, to: &mut [f32; PANEL]) {
        *to = v;
    }

    #[inline(always)]
    fn add_panel(self, a: Self::P, b: Self::P) -> Self::P {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn mul_panel(self, a: Self::P, b: Self::P) -> Self::P {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn mul_add_panel(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P {
        // Not `f32::mul_add`: without the instruction that is a library call per column.
        zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
    }

    #[inline(always)]
    fn expand_bytes(self, from: &[i8; PANEL]) -> Self::P {
        from.map(f32::from)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn expand_words(self, from: &[i32; PANEL]) -> Self::P {
        from.map(|word| word as f32)
    }

    #[inline(always)]
    fn words(self, from: &[u32; PANEL]) -> Self::Words {
        *from
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn store_words(self, words: Self::Words, to: &mut [u32; PANEL]) {
        *to = words;
    }

    #[inline(always)]
    fn book(self, from: &Book) -> Book {
        *from
    }

    #[inline(always)]
    fn granule(self, book: Book, granule: &Granule) -> [Self::Words; GRANULE] {
        std::array::from_fn(|row| granule.row(&book, row))
    }

    #[inline(always)]
    fn replace_words(self, words: Self::Words, columns: u16, word: u32) -> Self::Words {
        let set = |column: usize| columns >> column & 1 == 1;
        std::array::from_fn(|i| if set(i) { word } else { words[i] })
    }

    #[inline(always)]
    fn widen(self, words: Self::Words, which: usize) -> Self::P {
        words.map(|word| halves(word)[which])
    }

    #[inline(always)]
    fn add_pairs<const M: usize, const P: usize>(
        self,
        sums: &mut [[Self::P; P]; M],
        p: usize,
        words: Self::Words,
        x: [&i32; M],
    ) {
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = halves(*x as u32);
            for (sum, w) in sums[p].iter_mut().zip(words) {
                let w = halves(w);
                *sum += x[0] * w[0];
                *sum += x[1] * w[1];
            }
        }
    }

    #[inline(always)]
    fn signed(self, bytes: &[i8; 4 * PANEL]) -> Self::Signed {
        *bytes
    }

    #[inline(always)]
    fn start_signed(self, correction: i32) -> Self::SignedSums {
        [correction; PANEL]
    }

    #[inline(always)]
    fn add_signed(self, sum: Self::SignedSums, w: Self::Signed, word: i32) -> Self::SignedSums {
        let x = word.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|i| {
            let products = x.iter().zip(&w[4 * i..]).map(|(x, w)| x * i32::from(*w));
            sum[i].wrapping_add(products.sum::<i32>())
        })
    }

    #[inline(always)]
    fn signed_to_f32(self, sums: Self::SignedSums) -> Self::P {
        sums.map(|x| x as f32)
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 4 * PANEL]) -> (Self::Nibbles, Self::Nibbles) {
        (bytes.map(|b| b & 15), bytes.map(|b| b >> 4))
    }

    #[inline(always)]
    fn start_nibbles(self, correction: i32) -> Self::NibbleSums {
        [correction; PANEL]
    }

    #[inline(always)]
    fn add_nibbles(self, sum: Self::NibbleSums, w: Self::Nibbles, word: i32) -> Self::NibbleSums {
        let x = word.to_le_bytes().map(|b| i32::from(b as i8));
        std::array::from_fn(|i| {
            let products = x.iter().zip(&w[4 * i..]).map(|(x, w)| x * i32::from(*w));
            sum[i].wrapping_add(products.sum::<i32>())
        })
    }

    #[inline(always)]
    fn nibbles_to_f32(self, sums: Self::NibbleSums, _correction: i32) -> Self::P {
        sums.map(|x| x as f32)
    }
}
