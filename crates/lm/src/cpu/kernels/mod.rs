//! Vector kernels and the choice between instruction sets.
//!
//! Everything is written once against [`simd::Simd`] and compiled per instruction set; a wider set
//! is another implementation of that trait and another arm in [`Kernels::run`].

#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod fused;
pub(crate) mod gemm;
pub(crate) mod out;
pub(crate) mod panel;
pub(crate) mod parallel;
pub(crate) mod quant;
pub(crate) mod simd;
#[cfg(test)]
mod tests;
pub(crate) mod vector;

use crate::LmError;

use super::KernelChoice;
use simd::{Kernel, Portable};

/// An instruction set this processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernels {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
}

impl Kernels {
    /// Resolves a choice on this processor.
    pub(crate) fn select(choice: KernelChoice) -> Result<Self, LmError> {
        match choice {
            KernelChoice::Auto => Ok(Self::avx2().unwrap_or(Self::Portable)),
            KernelChoice::Portable => Ok(Self::Portable),
            KernelChoice::Avx2 => Self::avx2().ok_or_else(|| LmError::Kernels {
                kernels: choice.to_string(),
            }),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn avx2() -> Option<Self> {
        avx2::Avx2::detect().map(Self::Avx2)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn avx2() -> Option<Self> {
        None
    }

    /// The choice that names this set.
    pub(crate) fn choice(self) -> KernelChoice {
        match self {
            Self::Portable => KernelChoice::Portable,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => KernelChoice::Avx2,
        }
    }

    /// Runs `kernel` on this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Portable => kernel.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.run(kernel),
        }
    }
}
