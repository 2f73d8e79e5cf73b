//! The engine's vectors, for code outside the engine: training computes its norms, activations and
//! losses with them.

use lm::Activation;

use crate::KernelChoice;
use crate::kernels::Kernels;
use crate::kernels::simd::{Kernel, Lanes, Simd};
use crate::kernels::vector::{GateMul, SoftmaxNumerators};

/// A computation over rows of numbers, written once for all vector types.
pub trait RowKernel {
    /// Result of the computation.
    type Output;

    /// Runs the computation. Implementations are `#[inline(always)]`, so that the body is compiled
    /// with the instruction set of the caller.
    fn run<S: Lanes>(self, lanes: S) -> Self::Output;
}

/// The widest instruction set of this processor that the engine has kernels for.
///
/// ```
/// use cpu_engine::{LANES, Lanes, RowKernel, Vectors};
///
/// struct Double<'a>(&'a mut [f32; LANES]);
///
/// impl RowKernel for Double<'_> {
///     type Output = ();
///
///     #[inline(always)]
///     fn run<S: Lanes>(self, lanes: S) {
///         let values = lanes.load(self.0);
///         lanes.store(lanes.add(values, values), self.0);
///     }
/// }
///
/// let mut row = [1.5; LANES];
/// Vectors::widest().run(Double(&mut row));
/// assert_eq!(row, [3.0; LANES]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Vectors(Kernels);

impl Vectors {
    /// The widest instruction set that the engine has kernels for and this processor supports.
    pub fn widest() -> Self {
        Self(Kernels::select(KernelChoice::Auto).unwrap_or_else(|_| Kernels::portable()))
    }

    /// Runs `kernel` on this instruction set.
    #[inline]
    pub fn run<K: RowKernel>(self, kernel: K) -> K::Output {
        self.0.run(OnRows(kernel))
    }

    /// Replaces `scores` by `e^(scale * (score - max))` and returns the sum. The length must be a
    /// multiple of [`LANES`](crate::LANES), padded with minus infinity, which adds exact zeros.
    /// Values beyond the last multiple stay as they are.
    #[inline]
    pub fn softmax_numerators(self, scores: &mut [f32], scale: f32) -> f32 {
        self.0.run(SoftmaxNumerators { scores, scale })
    }

    /// `out = gate / (1 + e^-gate) * up`. The slices must have equal lengths.
    ///
    /// # Panics
    /// It may panic if they do not.
    #[inline]
    pub fn silu_mul(self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        self.0.run(GateMul {
            activation: Activation::Silu,
            gate,
            up,
            out,
        });
    }
}

/// Adapter from a row kernel to a kernel of the engine.
struct OnRows<K>(K);

impl<K: RowKernel> Kernel for OnRows<K> {
    type Output = K::Output;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> K::Output {
        self.0.run(simd)
    }
}
