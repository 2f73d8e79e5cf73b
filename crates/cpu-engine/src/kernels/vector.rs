//! Element-wise kernels: exponential, softmax numerators, gated SiLU, RMSNorm.

use super::simd::{Kernel, LANES, Lanes, ROUND_MAGIC, Simd};

/// Below this, `e^x` is no normal f32 and becomes zero.
const EXP_MIN: f32 = -87.336_54;
/// Above this, `e^x` stays at its largest value, about 1.6e38.
const EXP_MAX: f32 = 88.0;
/// `ln 2` in two parts; the first has few enough bits that small multiples of it are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Minimax coefficients of `(e^r - 1 - r) / r^2` on `|r| <= ln 2 / 2`, highest power first.
const EXP_POLY: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_6e-1,
    0.5,
];

/// `e^x` within 2 units in the last place for `x` in `-87.3..88`; 0 below, constant above, NaN for
/// NaN. The same operations for every lane, so equal inputs give equal bits.
#[inline(always)]
pub fn exp<S: Lanes>(simd: S, x: S::V) -> S::V {
    let low = simd.splat(EXP_MIN);
    // The constant goes first: `max` and `min` return their second operand for NaN.
    let bounded = simd.min(simd.splat(EXP_MAX), simd.max(low, x));
    let magic = simd.splat(ROUND_MAGIC);
    let rounded = simd.mul_add(bounded, simd.splat(std::f32::consts::LOG2_E), magic);
    let n = simd.sub(rounded, magic);
    let r = simd.mul_add(n, simd.splat(-LN2_HIGH), bounded);
    let r = simd.mul_add(n, simd.splat(-LN2_LOW), r);
    let mut p = simd.splat(EXP_POLY[0]);
    for c in &EXP_POLY[1..] {
        p = simd.mul_add(p, r, simd.splat(*c));
    }
    let p = simd.mul_add(p, simd.mul(r, r), r);
    let p = simd.add(p, simd.splat(1.0));
    simd.zero_below(simd.mul(p, simd.exp2_of_rounded(rounded)), x, low)
}

/// Replaces `scores` by `e^(scale * (score - max))` and returns the sum. The length must be a
/// multiple of eight, padded with minus infinity, which adds exact zeros to the sum: a score's
/// lane depends on its index only.
pub(crate) struct SoftmaxNumerators<'a> {
    pub(crate) scores: &'a mut [f32],
    pub(crate) scale: f32,
}

impl Kernel for SoftmaxNumerators<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let (chunks, rest) = self.scores.as_chunks_mut::<LANES>();
        debug_assert!(rest.is_empty());
        let mut max = simd.splat(f32::NEG_INFINITY);
        for chunk in chunks.iter() {
            max = simd.max(max, simd.load(chunk));
        }
        let max = simd
            .to_array(max)
            .into_iter()
            .fold(f32::NEG_INFINITY, f32::max);
        let (max, scale) = (simd.splat(max), simd.splat(self.scale));
        let mut sum = simd.splat(0.0);
        for chunk in chunks {
            let e = exp(simd, simd.mul(simd.sub(simd.load(chunk), max), scale));
            sum = simd.add(sum, e);
            simd.store(e, chunk);
        }
        simd.sum(sum)
    }
}

/// `out = gate / (1 + e^-gate) * up`. The slices have equal lengths.
pub(crate) struct SiluMul<'a> {
    pub(crate) gate: &'a [f32],
    pub(crate) up: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (gates, gate_rest) = self.gate.as_chunks::<LANES>();
        let (ups, up_rest) = self.up.as_chunks::<LANES>();
        let (outs, out_rest) = self.out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
            simd.store(silu_mul(simd, simd.load(gate), simd.load(up)), out);
        }
        if !out_rest.is_empty() {
            let (mut gate, mut up) = ([0.0; LANES], [0.0; LANES]);
            gate[..gate_rest.len()].copy_from_slice(gate_rest);
            up[..up_rest.len()].copy_from_slice(up_rest);
            let product = silu_mul(simd, simd.load(&gate), simd.load(&up));
            out_rest.copy_from_slice(&simd.to_array(product)[..out_rest.len()]);
        }
    }
}

#[inline(always)]
fn silu_mul<S: Lanes>(simd: S, gate: S::V, up: S::V) -> S::V {
    let e = exp(simd, simd.sub(simd.splat(0.0), gate));
    let silu = simd.div(gate, simd.add(simd.splat(1.0), e));
    simd.mul(silu, up)
}

/// `out = x / sqrt(mean(x^2) + eps) * weight` over one row.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (xs, x_rest) = self.x.as_chunks::<LANES>();
        let mut squares = simd.splat(0.0);
        for chunk in xs {
            let v = simd.load(chunk);
            squares = simd.mul_add(v, v, squares);
        }
        let mut total = simd.sum(squares);
        for v in x_rest {
            total += v * v;
        }
        let scale = 1.0 / (total / self.x.len() as f32 + self.eps).sqrt();
        let (weights, weight_rest) = self.weight.as_chunks::<LANES>();
        let (outs, out_rest) = self.out.as_chunks_mut::<LANES>();
        let factor = simd.splat(scale);
        for ((chunk, weight), out) in xs.iter().zip(weights).zip(outs) {
            let scaled = simd.mul(simd.load(chunk), factor);
            simd.store(simd.mul(scaled, simd.load(weight)), out);
        }
        for ((v, weight), out) in x_rest.iter().zip(weight_rest).zip(out_rest) {
            *out = v * scale * weight;
        }
    }
}
