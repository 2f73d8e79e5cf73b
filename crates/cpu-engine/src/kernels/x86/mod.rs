//! Kernels for AVX2 with FMA, for AVX-VNNI, and for AVX-512 with VNNI, with bf16 and with AMX.
#![expect(
    unsafe_code,
    reason = "vector intrinsics; reachable only through a detected token"
)]

pub(crate) mod amx;
mod avx2;
mod avx512;

use std::arch::x86_64::*;

use amx::Tiles;

use super::simd::{Kernel, LANES, Lanes};
use super::walk::{Reach, Walk};
use crate::KernelChoice;

/// Distance of prefetches into the second-level cache, in bytes, for one stream.
// Of eight ways to prefetch with five rows, 16 KiB ahead into the second level and 2 KiB into the
// first was the fastest: results/LOG.md, 2026-11-21.
const FAR: usize = 16 << 10;

/// Distance of prefetches into the first-level cache, in bytes. That cache can wait for only a few
/// lines at once, so they must come from the second level and not from memory.
const NEAR: usize = 2 << 10;

/// Size of the pages that are prefetched together, in bytes.
const BLOCK: usize = 4 << 12;

/// Proof that this processor has AVX2 and FMA and, if `WIDE`, AVX-512 with VNNI. `MORE` adds what
/// multiplies narrow numbers faster: to 256 bits VNNI, to 512 bits bf16.
///
/// Row vectors have eight lanes on all, so that their sums are taken in the same order. Panels fill
/// one 512-bit register or two of 256 bits. Chains are the same, and so are the bits of results,
/// except for bf16 numbers below the normal range, which the instruction for bf16 treats as zero,
/// and for sums of bf16 products by tiles, which add in another order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct X86<const WIDE: bool, const MORE: bool> {
    walk: Walk,
    /// The unit that multiplies tiles, if there is one and kernels should use it.
    tiles: Option<Tiles>,
}

/// AVX2 and FMA.
pub(crate) type Avx2 = X86<false, false>;

/// AVX2, FMA and AVX-VNNI.
pub(crate) type AvxVnni = X86<false, true>;

/// AVX2, FMA, AVX-512 F, BW, VL and VNNI.
pub(crate) type Avx512Vnni = X86<true, false>;

/// AVX2, FMA, AVX-512 F, BW, VL, VNNI and BF16.
pub(crate) type Avx512 = X86<true, true>;

impl<const WIDE: bool, const MORE: bool> X86<WIDE, MORE> {
    /// The same proof with another walk.
    #[inline(always)]
    pub(crate) fn walking(self, walk: Walk) -> Self {
        Self { walk, ..self }
    }

    /// The same proof without what `MORE` adds.
    #[inline(always)]
    pub(crate) fn plain(self) -> X86<WIDE, false> {
        X86 {
            walk: self.walk,
            tiles: None,
        }
    }

    /// The proof for a set of instructions that was detected.
    fn found(kernels: KernelChoice) -> Self {
        Self {
            walk: Walk::usual(kernels),
            tiles: None,
        }
    }
}

/// The methods of a token that depend on its instructions.
macro_rules! token {
    ($token:ident: $($feature:tt)+) => {
        impl $token {
            /// The token, if the processor has the instructions.
            pub(crate) fn detect() -> Option<Self> {
                let all = $(is_x86_feature_detected!($feature))&&+;
                all.then_some(Self::found(KernelChoice::$token))
            }

            /// Runs `kernel` compiled for these instructions.
            pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
                #[inline(never)]
                $(#[target_feature(enable = $feature)])+
                fn with_features<K: Kernel>(simd: $token, kernel: K) -> K::Output {
                    kernel.run(simd)
                }
                // SAFETY: `self` exists only where `detect` saw all features.
                unsafe { with_features(self, kernel) }
            }
        }
    };
}

// F16C came before AVX2.
token!(Avx2: "avx2" "fma" "f16c");
token!(AvxVnni: "avx2" "fma" "f16c" "avxvnni");
token!(Avx512Vnni: "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512vnni");
token!(Avx512: "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512vnni" "avx512bf16");

impl Avx512 {
    /// This set with tiles, if the processor has them too.
    pub(crate) fn with_tiles() -> Option<Self> {
        let simd = Self::detect()?;
        let tiles = Some(Tiles::detect()?);
        Some(Self { tiles, ..simd })
    }
}

// In every method below the instruction is available because the token `self` exists only where
// `detect` saw AVX2 and FMA; loads and stores go through references to exactly 32 bytes.
impl<const WIDE: bool, const MORE: bool> Lanes for X86<WIDE, MORE> {
    type V = __m256;

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
    fn round_to_bytes(self, x: [__m256; 4]) -> [i8; 4 * LANES] {
        let mut bytes = [0; 4 * LANES];
        // SAFETY: the token proves AVX2; the array has the 32 bytes written.
        unsafe {
            let (a, b) = (_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
            let (c, d) = (_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
            let words = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
            // Packing works within halves: four bytes of each vector are in each half.
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let ordered = _mm256_permutevar8x32_epi32(words, order);
            _mm256_storeu_si256(bytes.as_mut_ptr().cast(), ordered);
        }
        bytes
    }

    #[inline(always)]
    fn fetch_ahead<T>(self, place: &T, lines: usize) {
        let place = std::ptr::from_ref(place).cast::<i8>();
        if self.walk.reach == Reach::Nothing {
            return;
        }
        if self.walk.reach == Reach::Lines {
            for line in 0..lines {
                // SAFETY: every x86-64 processor has the instruction, and it faults on no address.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T1>(place.wrapping_add(FAR + line * 64));
                    _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(NEAR + line * 64));
                }
            }
            return;
        }
        // A line from each of the next four pages: the processor sees four streams instead of one,
        // and its own prefetcher, which stops at the end of a page, runs ahead in all of them. One
        // call prefetches the start of the next block, and each later call a line for every four
        // that follow.
        let within = place.addr() % BLOCK;
        let start = place.wrapping_add(BLOCK - within + (within / 4) / 64 * 64);
        for line in 0..4 {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * (BLOCK / 4))) }
        }
    }
}
