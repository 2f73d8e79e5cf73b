//! Element-wise kernels: exponential, softmax numerators, soft caps, gated activations, RMSNorm.

use lm::Activation;

use super::simd::{Kernel, LANES, Lanes, ROUND_MAGIC, Simd};

/// Least `x` for which `e^x` is a normal f32. Below it the result is zero.
const EXP_MIN: f32 = -87.336_54;
/// Largest `x`; above it `e^x` stays at its largest value, about 1.6e38.
const EXP_MAX: f32 = 88.0;
/// `ln 2` in two parts. The first has few enough bits that small multiples of it are exact.
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
/// NaN. Every lane runs the same operations, so equal inputs give equal bits.
#[inline(always)]
pub fn exp<S: Lanes>(simd: S, x: S::V) -> S::V {
    let low = simd.splat(EXP_MIN);
    // The constant is the first operand: `max` and `min` return their second operand for NaN.
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
/// multiple of eight, padded with minus infinity, which adds exact zeros to the sum. A score's lane
/// then depends on its index only.
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

/// `values` become `cap * tanh(factor * value / cap)`.
pub(crate) struct SoftCap<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) factor: f32,
    pub(crate) cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factor = simd.splat(2.0 * self.factor / self.cap);
        let cap = simd.splat(self.cap);
        let (chunks, rest) = self.values.as_chunks_mut::<LANES>();
        for chunk in chunks {
            simd.store(capped(simd, simd.load(chunk), factor, cap), chunk);
        }
        if !rest.is_empty() {
            let mut lanes = [0.0; LANES];
            lanes[..rest.len()].copy_from_slice(rest);
            let lanes = simd.to_array(capped(simd, simd.load(&lanes), factor, cap));
            rest.copy_from_slice(&lanes[..rest.len()]);
        }
    }
}

/// `cap * tanh(x * factor / 2)`, by `tanh(y) = 1 - 2 / (1 + e^2y)`.
#[inline(always)]
fn capped<S: Lanes>(simd: S, x: S::V, factor: S::V, cap: S::V) -> S::V {
    let (one, two) = (simd.splat(1.0), simd.splat(2.0));
    let e = exp(simd, simd.mul(x, factor));
    let tanh = simd.sub(one, simd.div(two, simd.add(one, e)));
    simd.mul(cap, tanh)
}

/// `out = activation(gate) * up`. The slices have equal lengths.
pub(crate) struct GateMul<'a> {
    pub(crate) activation: Activation,
    pub(crate) gate: &'a [f32],
    pub(crate) up: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for GateMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.activation {
            Activation::Silu => self.with(simd, Silu),
            Activation::Gelu => self.with(simd, Gelu),
            Activation::GeluTanh => self.with(simd, GeluTanh),
            Activation::Relu => self.with(simd, Relu),
        }
    }
}

impl GateMul<'_> {
    #[inline(always)]
    fn with<S: Simd>(self, simd: S, function: impl Function) {
        let (gates, gate_rest) = self.gate.as_chunks::<LANES>();
        let (ups, up_rest) = self.up.as_chunks::<LANES>();
        let (outs, out_rest) = self.out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
            let active = function.of(simd, simd.load(gate));
            simd.store(simd.mul(active, simd.load(up)), out);
        }
        if !out_rest.is_empty() {
            let (mut gate, mut up) = ([0.0; LANES], [0.0; LANES]);
            gate[..gate_rest.len()].copy_from_slice(gate_rest);
            up[..up_rest.len()].copy_from_slice(up_rest);
            let active = function.of(simd, simd.load(&gate));
            let product = simd.mul(active, simd.load(&up));
            out_rest.copy_from_slice(&simd.to_array(product)[..out_rest.len()]);
        }
    }
}

/// A function of a number, applied lane by lane. It is a trait, not a closure or function argument,
/// because only `#[inline(always)]` ensures that the body is compiled with the instruction set of
/// the caller.
trait Function: Copy {
    fn of<S: Lanes>(self, simd: S, x: S::V) -> S::V;
}

#[derive(Clone, Copy)]
struct Silu;
#[derive(Clone, Copy)]
struct Gelu;
#[derive(Clone, Copy)]
struct GeluTanh;
#[derive(Clone, Copy)]
struct Relu;

/// `x / (1 + e^-x)`
impl Function for Silu {
    #[inline(always)]
    fn of<S: Lanes>(self, simd: S, x: S::V) -> S::V {
        let e = exp(simd, simd.sub(simd.splat(0.0), x));
        simd.div(x, simd.add(simd.splat(1.0), e))
    }
}

impl Function for Relu {
    #[inline(always)]
    fn of<S: Lanes>(self, simd: S, x: S::V) -> S::V {
        simd.max(simd.splat(0.0), x)
    }
}

/// `x / 2 * (1 + tanh(u))` is `x / (1 + e^-2u)`, with `u = sqrt(2 / pi) * (x + 0.044715 x^3)`.
impl Function for GeluTanh {
    #[inline(always)]
    fn of<S: Lanes>(self, simd: S, x: S::V) -> S::V {
        /// `-2 sqrt(2 / pi)`
        const FACTOR: f32 = -1.595_769;
        let cubic = simd.mul_add(simd.mul(x, x), simd.splat(0.044_715), simd.splat(1.0));
        let e = exp(simd, simd.mul(simd.mul(x, cubic), simd.splat(FACTOR)));
        simd.div(x, simd.add(simd.splat(1.0), e))
    }
}

/// Coefficients of `erfc(z) = t (a_1 + t (a_2 + ...)) e^(-z^2)` with `t = 1 / (1 + p z)`, `z >= 0`,
/// within 1.5e-7 (Abramowitz and Stegun, 7.1.26), highest power first, and `p`.
const ERFC_POLY: [f32; 5] = [
    1.061_405_4,
    -1.453_152_1,
    1.421_413_8,
    -0.284_496_72,
    0.254_829_6,
];
const ERFC_P: f32 = 0.327_591_1;

/// `x Phi(x)` as `max(x, 0) - |x| Phi(-|x|)`.
impl Function for Gelu {
    #[inline(always)]
    fn of<S: Lanes>(self, simd: S, x: S::V) -> S::V {
        let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
        let size = simd.max(simd.sub(zero, x), x);
        let z = simd.mul(size, simd.splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = simd.div(one, simd.mul_add(z, simd.splat(ERFC_P), one));
        let mut poly = simd.splat(ERFC_POLY[0]);
        for c in &ERFC_POLY[1..] {
            poly = simd.mul_add(poly, t, simd.splat(*c));
        }
        let e = exp(simd, simd.mul(simd.mul(x, x), simd.splat(-0.5)));
        let tail = simd.mul(simd.mul(simd.splat(0.5), t), simd.mul(poly, e));
        simd.sub(simd.max(zero, x), simd.mul(size, tail))
    }
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
