//! Panels in two registers of 256 bits, for AVX2 and for AVX-VNNI.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Avx2, AvxVnni, X86};
use crate::kernels::simd::{Book, GRANULE, Granule, Kernel, LANES, PANEL, Simd};
use crate::kernels::walk::Walk;

/// Signed bytes, ready to multiply.
#[derive(Clone, Copy)]
pub(crate) struct SignedBytes {
    /// Their magnitudes; with VNNI, their distances from -128.
    unsigned: [__m256i; 2],
    /// The bytes themselves for their signs, which VNNI does not need.
    signs: [__m256i; 2],
}

/// Both halves of `bytes`.
#[inline(always)]
fn load_bytes<T, const VNNI: bool>(_: X86<false, VNNI>, bytes: &[T; 4 * PANEL]) -> [__m256i; 2] {
    const { assert!(size_of::<T>() == 1) }
    let start = bytes.as_ptr().cast::<__m256i>();
    // SAFETY: the token proves AVX2; the reference covers the 64 bytes read.
    unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
}

/// Sums of neighbouring 16-bit numbers.
#[inline(always)]
fn sum_neighbours<const VNNI: bool>(_: X86<false, VNNI>, v: __m256i) -> __m256i {
    // SAFETY: the token proves AVX2.
    unsafe { _mm256_madd_epi16(v, _mm256_set1_epi16(1)) }
}

/// The first (`which` is 0) or second bf16 number of every word, in f32.
#[inline(always)]
fn half<const VNNI: bool>(_: X86<false, VNNI>, words: __m256i, which: usize) -> __m256 {
    // SAFETY: the token proves AVX2.
    unsafe {
        _mm256_castsi256_ps(match which {
            0 => _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32)),
            _ => _mm256_slli_epi32::<16>(words),
        })
    }
}

/// Functions that load a word into all lanes, each by its own instruction.
// Left to itself, the compiler extracts a half of the word, moves it and spreads it: twice the
// instructions. The two functions differ, so that it cannot keep the result of one for the other
// half, because there are too few registers. Without them products took up to 1.2 times as long
// (results/LOG.md, 2026-11-27 and 2026-11-28).
macro_rules! spread {
    ($($name:ident: $instruction:literal;)+) => {$(
        #[target_feature(enable = "avx2")]
        #[inline]
        fn $name(word: &i32) -> __m256i {
            let out;
            // SAFETY: the reference covers the four bytes read.
            unsafe {
                asm!(
                    concat!($instruction, " {out}, dword ptr [{word}]"),
                    out = out(ymm_reg) out,
                    word = in(reg) word,
                    options(pure, readonly, nostack, preserves_flags)
                );
            }
            out
        }
    )+};
}

spread! {
    spread_first: "vpbroadcastd";
    spread_second: "vbroadcastss";
}

// In every method below the instruction is available because the token exists only where `detect`
// saw AVX2 and FMA; loads and stores go through references to as many bytes.
impl<const VNNI: bool> Simd for X86<false, VNNI> {
    type P = [__m256; 2];
    type Words = [__m256i; 2];
    type Book = __m256i;
    type Signed = SignedBytes;
    type SignedSums = [__m256i; 2];
    type Nibbles = [__m256i; 2];
    type NibbleSums = [__m256i; 2];

    const TILE: usize = 6;
    // VNNI multiplies unsigned with signed bytes, so weights are counted from -128.
    const SIGNED_OFFSET: i32 = if VNNI { 128 } else { 0 };

    #[inline(always)]
    fn apart<K: Kernel>(self, kernel: K) -> K::Output {
        let Self { walk, tiles } = self;
        if VNNI {
            AvxVnni { walk, tiles }.run(kernel)
        } else {
            Avx2 { walk, tiles }.run(kernel)
        }
    }

    #[inline(always)]
    fn walk(self) -> Walk {
        self.walk
    }

    #[inline(always)]
    fn splat_panel(self, x: f32) -> Self::P {
        // SAFETY: the token proves AVX2.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn load_panel(self, from: &[f32; PANEL]) -> Self::P {
        let start = from.as_ptr();
        // SAFETY: the token proves AVX2; the reference covers the 64 bytes read.
        unsafe { [_mm256_loadu_ps(start), _mm256_loadu_ps(start.add(LANES))] }
    }

    #[inline(always)]
    fn widen_halves(self, from: &[u16; PANEL]) -> Self::P {
        let start = from.as_ptr().cast::<__m128i>();
        // SAFETY: the token proves AVX2 and F16C; the reference covers the 32 bytes read.
        unsafe { [start, start.add(1)].map(|at| _mm256_cvtph_ps(_mm_loadu_si128(at))) }
    }

    #[inline(always)]
    fn store_panel(self, v: Self::P, to: &mut [f32; PANEL]) {
        let start = to.as_mut_ptr();
        // SAFETY: the token proves AVX2; the reference covers the 64 bytes written.
        unsafe {
            _mm256_storeu_ps(start, v[0]);
            _mm256_storeu_ps(start.add(LANES), v[1]);
        }
    }

    #[inline(always)]
    fn add_panel(self, a: Self::P, b: Self::P) -> Self::P {
        // SAFETY: the token proves AVX2.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul_panel(self, a: Self::P, b: Self::P) -> Self::P {
        // SAFETY: the token proves AVX2.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul_add_panel(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P {
        // SAFETY: the token proves FMA.
        unsafe {
            [
                _mm256_fmadd_ps(a[0], b[0], c[0]),
                _mm256_fmadd_ps(a[1], b[1], c[1]),
            ]
        }
    }

    #[inline(always)]
    fn expand_bytes(self, from: &[i8; PANEL]) -> Self::P {
        // SAFETY: the token proves AVX2; the reference covers the 16 bytes read.
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            [bytes, _mm_srli_si128::<8>(bytes)]
                .map(|half| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half)))
        }
    }

    #[inline(always)]
    fn expand_words(self, from: &[i32; PANEL]) -> Self::P {
        let place = from.as_ptr().cast::<__m256i>();
        // SAFETY: the token proves AVX2; the reference covers the 64 bytes read.
        unsafe {
            let (low, high) = (_mm256_loadu_si256(place), _mm256_loadu_si256(place.add(1)));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }
    }

    #[inline(always)]
    fn words(self, from: &[u32; PANEL]) -> [__m256i; 2] {
        let start = from.as_ptr().cast::<__m256i>();
        // SAFETY: the token proves AVX2; the reference covers the 64 bytes read.
        unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
    }

    #[inline(always)]
    fn store_words(self, words: [__m256i; 2], to: &mut [u32; PANEL]) {
        let start = to.as_mut_ptr().cast::<__m256i>();
        // SAFETY: the token proves AVX2; the reference covers the 64 bytes written.
        unsafe {
            _mm256_storeu_si256(start, words[0]);
            _mm256_storeu_si256(start.add(1), words[1]);
        }
    }

    #[inline(always)]
    fn book(self, from: &Book) -> __m256i {
        // SAFETY: the token proves AVX2; the reference covers the 16 bytes read.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn granule(self, book: __m256i, granule: &Granule) -> [[__m256i; 2]; GRANULE] {
        let low = [
            load_bytes(self, &granule.low[0]),
            load_bytes(self, &granule.low[1]),
        ];
        let (first, second) = self.nibbles(&granule.codes);
        let mut rows = [first; GRANULE];
        for (half, codes) in [first, second].into_iter().enumerate() {
            for i in 0..2 {
                // SAFETY: the token proves AVX2.
                unsafe {
                    let high = _mm256_shuffle_epi8(book, codes[i]);
                    rows[2 * half][i] = _mm256_unpacklo_epi8(low[half][i], high);
                    rows[2 * half + 1][i] = _mm256_unpackhi_epi8(low[half][i], high);
                }
            }
        }
        rows
    }

    #[inline(always)]
    fn replace_words(self, words: [__m256i; 2], columns: u16, word: u32) -> [__m256i; 2] {
        let [low, high] = columns.to_le_bytes();
        let mut out = words;
        for (out, columns) in out.iter_mut().zip([low, high]) {
            // SAFETY: the token proves AVX2.
            unsafe {
                let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
                let set = _mm256_and_si256(bits, _mm256_set1_epi32(i32::from(columns)));
                let set = _mm256_cmpeq_epi32(set, bits);
                *out = _mm256_blendv_epi8(*out, _mm256_set1_epi32(word as i32), set);
            }
        }
        out
    }

    #[inline(always)]
    fn widen(self, words: [__m256i; 2], which: usize) -> Self::P {
        words.map(|words| half(self, words, which))
    }

    #[inline(always)]
    fn add_pairs<const M: usize, const P: usize>(
        self,
        sums: &mut [[Self::P; P]; M],
        p: usize,
        words: [__m256i; 2],
        x: [&i32; M],
    ) {
        // One half of every word at a time, so that the sums of six rows leave registers for the
        // weights.
        for which in 0..2 {
            let weights = self.widen(words, which);
            for (sums, x) in sums.iter_mut().zip(x) {
                // SAFETY: the token proves AVX2.
                let x = unsafe {
                    match which {
                        0 => spread_first(x),
                        _ => spread_second(x),
                    }
                };
                sums[p] = self.mul_add_panel([half(self, x, which); 2], weights, sums[p]);
            }
        }
    }

    #[inline(always)]
    fn signed(self, bytes: &[i8; 4 * PANEL]) -> SignedBytes {
        let signs = load_bytes(self, bytes);
        let unsigned = signs.map(|bytes| {
            // SAFETY: the token proves AVX2.
            unsafe {
                match VNNI {
                    true => _mm256_xor_si256(bytes, _mm256_set1_epi8(-128)),
                    false => _mm256_abs_epi8(bytes),
                }
            }
        });
        SignedBytes { unsigned, signs }
    }

    #[inline(always)]
    fn start_signed(self, correction: i32) -> Self::SignedSums {
        // SAFETY: the token proves AVX2.
        unsafe { [_mm256_set1_epi32(correction); 2] }
    }

    #[inline(always)]
    fn add_signed(self, sum: Self::SignedSums, w: SignedBytes, word: i32) -> Self::SignedSums {
        let mut out = sum;
        for (i, out) in out.iter_mut().enumerate() {
            // SAFETY: the token proves AVX2, and AVX-VNNI if `VNNI`.
            unsafe {
                let x = _mm256_set1_epi32(word);
                if VNNI {
                    *out = _mm256_dpbusd_avx_epi32(*out, w.unsigned[i], x);
                    continue;
                }
                let x = _mm256_sign_epi8(x, w.signs[i]);
                // Two products of at most 127 * 127 fit in 16 bits.
                let pairs = _mm256_maddubs_epi16(w.unsigned[i], x);
                *out = _mm256_add_epi32(*out, sum_neighbours(self, pairs));
            }
        }
        out
    }

    #[inline(always)]
    fn signed_to_f32(self, sums: Self::SignedSums) -> Self::P {
        // SAFETY: the token proves AVX2.
        unsafe { [_mm256_cvtepi32_ps(sums[0]), _mm256_cvtepi32_ps(sums[1])] }
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 4 * PANEL]) -> (Self::Nibbles, Self::Nibbles) {
        let bytes = load_bytes(self, bytes);
        // SAFETY: the token proves AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let shifted = [
                _mm256_srli_epi16::<4>(bytes[0]),
                _mm256_srli_epi16::<4>(bytes[1]),
            ];
            (
                [
                    _mm256_and_si256(bytes[0], mask),
                    _mm256_and_si256(bytes[1], mask),
                ],
                [
                    _mm256_and_si256(shifted[0], mask),
                    _mm256_and_si256(shifted[1], mask),
                ],
            )
        }
    }

    #[inline(always)]
    fn start_nibbles(self, correction: i32) -> Self::NibbleSums {
        // Sums of 16 bits have no room for the correction.
        self.start_signed(if VNNI { correction } else { 0 })
    }

    #[inline(always)]
    fn add_nibbles(self, sum: Self::NibbleSums, w: Self::Nibbles, word: i32) -> Self::NibbleSums {
        if VNNI {
            let w = SignedBytes {
                unsigned: w,
                signs: w,
            };
            return self.add_signed(sum, w, word);
        }
        // SAFETY: the token proves AVX2.
        unsafe {
            let x = _mm256_set1_epi32(word);
            [
                _mm256_add_epi16(sum[0], _mm256_maddubs_epi16(w[0], x)),
                _mm256_add_epi16(sum[1], _mm256_maddubs_epi16(w[1], x)),
            ]
        }
    }

    #[inline(always)]
    fn nibbles_to_f32(self, sums: Self::NibbleSums, correction: i32) -> Self::P {
        if VNNI {
            return self.signed_to_f32(sums);
        }
        let (low, high) = (sum_neighbours(self, sums[0]), sum_neighbours(self, sums[1]));
        // SAFETY: the token proves AVX2.
        unsafe {
            let correction = _mm256_set1_epi32(correction);
            self.signed_to_f32([
                _mm256_add_epi32(low, correction),
                _mm256_add_epi32(high, correction),
            ])
        }
    }
}
