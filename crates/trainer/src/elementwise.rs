//! Row kernels of the backward pass.

use cpu_engine::{LANES, Lanes, RowKernel, exp};

/// Number of sums that an objective reports.
pub(crate) const ROW_TERMS: usize = 4;

/// `a . b`. Eight lanes are added in a fixed tree, so that the result does not depend on the
/// machine.
#[inline(always)]
fn dot<S: Lanes>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let mut sum = simd.splat(0.0);
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        sum = simd.mul_add(simd.load(a), simd.load(b), sum);
    }
    let mut total = simd.sum(sum);
    for (a, b) in a_rest.iter().zip(b_rest) {
        total += a * b;
    }
    total
}

/// Loads up to eight numbers; missing ones are `fill`.
#[inline(always)]
fn load_padded<S: Lanes>(simd: S, from: &[f32], fill: f32) -> S::V {
    let mut lanes = [fill; LANES];
    lanes[..from.len()].copy_from_slice(from);
    simd.load(&lanes)
}

/// Cross entropy of one row. The logits become `weight * (softmax - onehot)`; the result is `weight
/// * -log softmax[label]`.
pub(crate) struct CrossEntropyRow<'a> {
    pub(crate) logits: &'a mut [f32],
    pub(crate) label: usize,
    pub(crate) weight: f32,
}

impl RowKernel for CrossEntropyRow<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> f64 {
        let Self {
            logits,
            label,
            weight,
        } = self;
        let picked = logits[label];
        let (chunks, rest) = logits.as_chunks_mut::<LANES>();
        let mut max = load_padded(simd, rest, f32::NEG_INFINITY);
        for chunk in chunks.iter() {
            max = simd.max(max, simd.load(chunk));
        }
        let max = simd
            .to_array(max)
            .into_iter()
            .fold(f32::NEG_INFINITY, f32::max);
        let shift = simd.splat(max);
        let mut sum = simd.splat(0.0);
        for chunk in chunks.iter_mut() {
            let e = exp(simd, simd.sub(simd.load(chunk), shift));
            sum = simd.add(sum, e);
            simd.store(e, chunk);
        }
        if !rest.is_empty() {
            let e = exp(
                simd,
                simd.sub(load_padded(simd, rest, f32::NEG_INFINITY), shift),
            );
            sum = simd.add(sum, e);
            rest.copy_from_slice(&simd.to_array(e)[..rest.len()]);
        }
        let total = simd.sum(sum);
        let factor = simd.splat(weight / total);
        for chunk in chunks {
            simd.store(simd.mul(simd.load(chunk), factor), chunk);
        }
        for value in rest {
            *value *= weight / total;
        }
        logits[label] -= weight;
        f64::from(weight) * (f64::from(total).ln() + f64::from(max) - f64::from(picked))
    }
}

/// Division of softmax numerators by their sum.
pub(crate) struct Scale<'a> {
    pub(crate) row: &'a mut [f32],
    pub(crate) factor: f32,
}

impl RowKernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        for value in self.row {
            *value *= self.factor;
        }
    }
}

/// Backward pass of a scaled softmax row: `d = p * (d - p . d) * scale`.
pub(crate) struct SoftmaxBackward<'a> {
    pub(crate) probs: &'a [f32],
    pub(crate) d: &'a mut [f32],
    pub(crate) scale: f32,
}

impl RowKernel for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let mean = dot(simd, self.probs, self.d);
        for (d, p) in self.d.iter_mut().zip(self.probs) {
            *d = p * (*d - mean) * self.scale;
        }
    }
}

/// RMSNorm that keeps the inverse root for the backward pass.
pub(crate) struct NormForward<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl RowKernel for NormForward<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> f32 {
        let mean_square = dot(simd, self.x, self.x) / self.x.len() as f32;
        let inverse = 1.0 / (mean_square + self.eps).sqrt();
        for ((out, x), w) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = x * inverse * w;
        }
        inverse
    }
}

/// Backward pass of RMSNorm. It adds to the gradients of input and weight.
///
/// With `y = x r w`, `r = (mean x^2 + eps)^(-1/2)`:
/// `dx = r (dy w) - x r^3 mean(dy w x)`, `dw = dy x r`.
pub(crate) struct NormBackward<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) inverse: f32,
    pub(crate) dy: &'a mut [f32],
    pub(crate) dx: &'a mut [f32],
    pub(crate) dw: &'a mut [f32],
}

impl RowKernel for NormBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let r = self.inverse;
        for (((dy, x), w), dw) in self
            .dy
            .iter_mut()
            .zip(self.x)
            .zip(self.weight)
            .zip(self.dw.iter_mut())
        {
            *dw += *dy * x * r;
            *dy *= w;
        }
        let mean = dot(simd, self.dy, self.x) / self.x.len() as f32;
        let pull = r * r * r * mean;
        for ((dx, dy), x) in self.dx.iter_mut().zip(self.dy.iter()).zip(self.x) {
            *dx += r * dy - pull * x;
        }
    }
}

/// Backward pass of `silu(gate) * up`: gate and up are replaced by their gradients.
pub(crate) struct SiluBackward<'a> {
    pub(crate) gate: &'a mut [f32],
    pub(crate) up: &'a mut [f32],
    pub(crate) d: &'a [f32],
}

impl RowKernel for SiluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let (gates, gate_rest) = self.gate.as_chunks_mut::<LANES>();
        let (ups, up_rest) = self.up.as_chunks_mut::<LANES>();
        let (ds, d_rest) = self.d.as_chunks::<LANES>();
        for ((gate, up), d) in gates.iter_mut().zip(ups.iter_mut()).zip(ds) {
            let (d_gate, d_up) = silu_backward(simd, simd.load(gate), simd.load(up), simd.load(d));
            simd.store(d_gate, gate);
            simd.store(d_up, up);
        }
        if !d_rest.is_empty() {
            let (d_gate, d_up) = silu_backward(
                simd,
                load_padded(simd, gate_rest, 0.0),
                load_padded(simd, up_rest, 0.0),
                load_padded(simd, d_rest, 0.0),
            );
            let count = d_rest.len();
            gate_rest.copy_from_slice(&simd.to_array(d_gate)[..count]);
            up_rest.copy_from_slice(&simd.to_array(d_up)[..count]);
        }
    }
}

/// Gradients of gate and up.
#[inline(always)]
fn silu_backward<S: Lanes>(simd: S, gate: S::V, up: S::V, d: S::V) -> (S::V, S::V) {
    let one = simd.splat(1.0);
    let e = exp(simd, simd.sub(simd.splat(0.0), gate));
    let sigmoid = simd.div(one, simd.add(one, e));
    let silu = simd.mul(gate, sigmoid);
    // silu' = s (1 + g (1 - s))
    let slope = simd.mul(sigmoid, simd.mul_add(gate, simd.sub(one, sigmoid), one));
    (simd.mul(simd.mul(d, up), slope), simd.mul(d, silu))
}

/// `to += from`.
pub(crate) fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
