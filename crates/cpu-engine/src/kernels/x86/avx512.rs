//! Panels in one register of 512 bits, with and without instructions for bf16.

use std::arch::x86_64::*;

use super::amx::Tiles;
use super::{Avx512, Avx512Vnni, X86};
use crate::kernels::simd::{Book, GRANULE, Granule, Kernel, PANEL, Simd};
use crate::kernels::walk::Walk;

/// The sixty-four bytes of `bytes`.
#[inline(always)]
fn load_bytes<T, const BF16: bool>(_: X86<true, BF16>, bytes: &[T; 4 * PANEL]) -> __m512i {
    const { assert!(size_of::<T>() == 1) }
    // SAFETY: the token proves AVX-512; the reference covers the 64 bytes read.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

// In every method below the instruction is available because the token exists only where `detect`
// saw AVX-512 F, BW, VL and VNNI; loads and stores go through references to as many bytes.
impl<const BF16: bool> Simd for X86<true, BF16> {
    type P = __m512;
    type Words = __m512i;
    type Book = __m512i;
    type Signed = __m512i;
    type SignedSums = __m512i;
    type Nibbles = __m512i;
    type NibbleSums = __m512i;

    const TILE: usize = 12;
    // The instruction multiplies unsigned with signed bytes, so weights are counted from -128.
    const SIGNED_OFFSET: i32 = 128;

    #[inline(always)]
    fn apart<K: Kernel>(self, kernel: K) -> K::Output {
        let Self { walk, tiles } = self;
        if BF16 {
            Avx512 { walk, tiles }.run(kernel)
        } else {
            Avx512Vnni { walk, tiles }.run(kernel)
        }
    }

    #[inline(always)]
    fn walk(self) -> Walk {
        self.walk
    }

    #[inline(always)]
    fn tiles(self) -> Option<Tiles> {
        if BF16 { self.tiles } else { None }
    }

    #[inline(always)]
    fn splat_panel(self, x: f32) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load_panel(self, from: &[f32; PANEL]) -> __m512 {
        // SAFETY: the token proves AVX-512; the reference covers the 64 bytes read.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn widen_halves(self, from: &[u16; PANEL]) -> __m512 {
        // SAFETY: the token proves AVX-512; the reference covers the 32 bytes read.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store_panel(self, v: __m512, to: &mut [f32; PANEL]) {
        // SAFETY: the token proves AVX-512; the reference covers the 64 bytes written.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn add_panel(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul_panel(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add_panel(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn expand_bytes(self, from: &[i8; PANEL]) -> __m512 {
        // SAFETY: the token proves AVX-512; the reference covers the 16 bytes read.
        unsafe {
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
        }
    }

    #[inline(always)]
    fn expand_words(self, from: &[i32; PANEL]) -> __m512 {
        // SAFETY: the token proves AVX-512; the reference covers the 64 bytes read.
        unsafe { _mm512_cvtepi32_ps(_mm512_loadu_si512(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn words(self, from: &[u32; PANEL]) -> __m512i {
        // SAFETY: the token proves AVX-512; the reference covers the 64 bytes read.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_words(self, words: __m512i, to: &mut [u32; PANEL]) {
        // SAFETY: the token proves AVX-512; the reference covers the 64 bytes written.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn book(self, from: &Book) -> __m512i {
        // SAFETY: the token proves AVX-512; the reference covers the 16 bytes read.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn granule(self, book: __m512i, granule: &Granule) -> [__m512i; GRANULE] {
        let low = [
            load_bytes(self, &granule.low[0]),
            load_bytes(self, &granule.low[1]),
        ];
        let codes = self.nibbles(&granule.codes);
        // SAFETY: the token proves AVX-512 BW.
        unsafe {
            let high = [
                _mm512_shuffle_epi8(book, codes.0),
                _mm512_shuffle_epi8(book, codes.1),
            ];
            [
                _mm512_unpacklo_epi8(low[0], high[0]),
                _mm512_unpackhi_epi8(low[0], high[0]),
                _mm512_unpacklo_epi8(low[1], high[1]),
                _mm512_unpackhi_epi8(low[1], high[1]),
            ]
        }
    }

    #[inline(always)]
    fn replace_words(self, words: __m512i, columns: u16, word: u32) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mask_set1_epi32(words, columns, word as i32) }
    }

    #[inline(always)]
    fn widen(self, words: __m512i, which: usize) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe {
            _mm512_castsi512_ps(match which {
                0 => _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32)),
                _ => _mm512_slli_epi32::<16>(words),
            })
        }
    }

    #[inline(always)]
    fn add_pairs<const M: usize, const P: usize>(
        self,
        sums: &mut [[__m512; P]; M],
        p: usize,
        words: __m512i,
        x: [&i32; M],
    ) {
        let weights = [0, 1].map(|which| self.widen(words, which));
        for (sums, x) in sums.iter_mut().zip(x) {
            // SAFETY: the token proves AVX-512.
            let x = unsafe { _mm512_set1_epi32(*x) };
            sums[p] = if BF16 {
                // The instruction takes the high halves first.
                // SAFETY: the token proves AVX-512 with bf16; any bits are bf16 numbers.
                unsafe {
                    let [w, x] = std::mem::transmute::<[__m512i; 2], [__m512bh; 2]>([words, x]);
                    _mm512_dpbf16_ps(sums[p], w, x)
                }
            } else {
                let first = self.mul_add_panel(self.widen(x, 0), weights[0], sums[p]);
                self.mul_add_panel(self.widen(x, 1), weights[1], first)
            };
        }
    }

    #[inline(always)]
    fn signed(self, bytes: &[i8; 4 * PANEL]) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_xor_si512(load_bytes(self, bytes), _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn start_signed(self, correction: i32) -> __m512i {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_set1_epi32(correction) }
    }

    #[inline(always)]
    fn add_signed(self, sum: __m512i, w: __m512i, word: i32) -> __m512i {
        // SAFETY: the token proves VNNI.
        unsafe { _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(word)) }
    }

    #[inline(always)]
    fn signed_to_f32(self, sums: __m512i) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_cvtepi32_ps(sums) }
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 4 * PANEL]) -> (__m512i, __m512i) {
        let bytes = load_bytes(self, bytes);
        // SAFETY: the token proves AVX-512.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask);
            (_mm512_and_si512(bytes, mask), high)
        }
    }

    #[inline(always)]
    fn start_nibbles(self, correction: i32) -> __m512i {
        self.start_signed(correction)
    }

    #[inline(always)]
    fn add_nibbles(self, sum: __m512i, w: __m512i, word: i32) -> __m512i {
        self.add_signed(sum, w, word)
    }

    #[inline(always)]
    fn nibbles_to_f32(self, sums: __m512i, _correction: i32) -> __m512 {
        self.signed_to_f32(sums)
    }
}
