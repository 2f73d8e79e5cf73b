//! AVX2 with FMA, and the same vectors with what AVX-512 adds to them, behind [`Simd`].
#![expect(
    unsafe_code,
    reason = "vector intrinsics; reachable only through a detected token"
)]

use std::arch::x86_64::*;

use super::simd::{Kernel, LANES, Simd};

/// How far ahead one stream is asked for.
const AHEAD: usize = 8 << 10;

/// Pages that are asked for together.
const BLOCK: usize = 4 << 12;

/// Proof that this processor has AVX2 and FMA and, if `WIDE`, AVX-512 with VNNI.
///
/// Vectors stay eight lanes wide: what AVX-512 brings is thirty-two registers, so that tiles twice
/// as high read the weights once, and integer products that are summed in the same instruction.
/// Processors that halve 512-bit arithmetic would gain nothing more from wider vectors, and results
/// are the same bit for bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct X86<const WIDE: bool>(());

/// AVX2 and FMA.
pub(crate) type Avx2 = X86<false>;

/// AVX2, FMA, AVX-512 F, BW, VL and VNNI.
pub(crate) type Avx512 = X86<true>;

impl Avx2 {
    /// The token, if the processor has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    /// Runs `kernel` compiled for AVX2 and FMA.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma")]
        fn with_features<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` exists only where `detect` saw both features.
        unsafe { with_features(self, kernel) }
    }
}

impl Avx512 {
    /// The token, if the processor has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        (wide && Avx2::detect().is_some()).then_some(Self(()))
    }

    /// Runs `kernel` compiled for AVX-512.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
        fn with_features<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` exists only where `detect` saw all features.
        unsafe { with_features(self, kernel) }
    }
}

// In every method below the instruction is available because the token `self` exists only where
// `detect` saw AVX2 and FMA, and AVX-512 with VNNI where `WIDE`; loads and stores go through
// references to exactly 32 bytes.
impl<const WIDE: bool> Simd for X86<WIDE> {
    type V = __m256;
    type I32 = __m256i;
    type I16 = __m256i;
    type U8 = __m256i;
    type Quads = __m256i;

    const TILE: usize = if WIDE { 12 } else { 6 };
    // Measured on a Zen 4 and a Zen 3: with one stream asked for in time, the first reads memory
    // faster than with four panels at once, whatever the number of rows.
    const FETCH_ROWS: usize = if WIDE { 1 } else { 4 };

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m256 {
        // SAFETY: the token proves AVX2; the reference covers the 32 bytes read.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m256, to: &mut [f32; LANES]) {
        // SAFETY: the token proves AVX2; the reference covers the 32 bytes written.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token proves FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn zero_below(self, v: __m256, x: __m256, limit: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x, limit), v) }
    }

    #[inline(always)]
    fn exp2_of_rounded(self, rounded: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(rounded));
            let one = _mm256_castps_si256(_mm256_set1_ps(1.0));
            _mm256_castsi256_ps(_mm256_add_epi32(exponent, one))
        }
    }

    #[inline(always)]
    fn expand_bf16(self, words: &[u32; LANES]) -> (__m256, __m256) {
        // SAFETY: the token proves AVX2; the reference covers the 32 bytes read.
        unsafe {
            let words = _mm256_loadu_si256(words.as_ptr().cast());
            let low = _mm256_slli_epi32::<16>(words);
            let high = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
    }

    #[inline(always)]
    fn zero_i32(self) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn zero_quads(self) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn widen_i8(self, bytes: &[i8; 32]) -> (__m256i, __m256i) {
        let (halves, _) = bytes.as_chunks::<16>();
        // SAFETY: the token proves AVX2; each reference covers the 16 bytes read.
        unsafe {
            (
                _mm256_cvtepi8_epi16(_mm_loadu_si128(halves[0].as_ptr().cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(halves[1].as_ptr().cast())),
            )
        }
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 32]) -> (__m256i, __m256i) {
        // SAFETY: the token proves AVX2; the reference covers the 32 bytes read.
        unsafe {
            let bytes = _mm256_loadu_si256(bytes.as_ptr().cast());
            let mask = _mm256_set1_epi8(15);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask);
            (_mm256_and_si256(bytes, mask), high)
        }
    }

    #[inline(always)]
    fn add_pairs(self, sum: __m256i, w: __m256i, word: i32) -> __m256i {
        // SAFETY: the token proves AVX2 and, where wide, VNNI.
        unsafe {
            let word = _mm256_set1_epi32(word);
            if WIDE {
                _mm256_dpwssd_epi32(sum, w, word)
            } else {
                _mm256_add_epi32(sum, _mm256_madd_epi16(w, word))
            }
        }
    }

    #[inline(always)]
    fn add_quads(self, sum: __m256i, w: __m256i, word: i32) -> __m256i {
        // SAFETY: the token proves AVX2 and, where wide, VNNI.
        unsafe {
            let word = _mm256_set1_epi32(word);
            if WIDE {
                _mm256_dpbusd_epi32(sum, w, word)
            } else {
                _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, word))
            }
        }
    }

    #[inline(always)]
    fn sum_quads(self, v: __m256i, plus: i32) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe {
            let sums = if WIDE {
                v
            } else {
                _mm256_madd_epi16(v, _mm256_set1_epi16(1))
            };
            _mm256_add_epi32(sums, _mm256_set1_epi32(plus))
        }
    }

    #[inline(always)]
    fn i32_to_f32(self, v: __m256i) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_cvtepi32_ps(v) }
    }

    #[inline(always)]
    fn fetch_ahead<T>(self, place: &T) {
        let place = std::ptr::from_ref(place).cast::<i8>();
        let (start, stride) = if WIDE {
            (place.wrapping_add(AHEAD), 64)
        } else {
            // A line from each page of the next four: the processor sees four streams instead of
            // one, and its own prefetcher, which stops at the end of a page, runs ahead in all of
            // them. The start of the next block, and from there a line for every four behind.
            let within = place.addr() % BLOCK;
            (
                place.wrapping_add(BLOCK - within + (within / 4) / 64 * 64),
                BLOCK / 4,
            )
        };
        for line in 0..4 {
            // SAFETY: every x86-64 processor has the instruction, and it faults on no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * stride)) }
        }
    }
}
