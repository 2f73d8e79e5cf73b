//! Vector kernels and the choice between instruction sets.
//!
//! Every kernel is written once against [`simd::Simd`] and compiled for each instruction set. A
//! wider set is another implementation of that trait and another arm in [`Kernels::run`].

pub(crate) mod compact;
pub(crate) mod fused;
pub(crate) mod gemm;
pub(crate) mod out;
pub(crate) mod pairs;
pub(crate) mod panel;
pub(crate) mod parallel;
mod portable;
pub(crate) mod quant;
pub(crate) mod row;
pub(crate) mod simd;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiled;
pub(crate) mod vector;
pub(crate) mod walk;
#[cfg(target_arch = "x86_64")]
mod x86;

use lm::LmError;

use crate::KernelChoice;
use portable::Portable;
use simd::Kernel;
use walk::Walk;

/// An instruction set of this processor, with the walk of its panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    set: Set,
    /// The choice that names the set.
    pub(crate) choice: KernelChoice,
    pub(crate) walk: Walk,
}

#[derive(Clone, Copy, Debug)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(x86::AvxVnni),
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(x86::Avx512Vnni),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
}

impl Kernels {
    /// No vector instructions.
    pub(crate) fn portable() -> Self {
        Self::of(Set::Portable, KernelChoice::Portable)
    }

    fn of(set: Set, choice: KernelChoice) -> Self {
        Self {
            set,
            choice,
            walk: Walk::usual(choice),
        }
    }

    /// The set that `choice` names, if this processor has it.
    fn detect(choice: KernelChoice) -> Option<Self> {
        let set = match choice {
            KernelChoice::Portable => Some(Set::Portable),
            #[cfg(target_arch = "x86_64")]
            KernelChoice::Avx2 => x86::Avx2::detect().map(Set::Avx2),
            #[cfg(target_arch = "x86_64")]
            KernelChoice::AvxVnni => x86::AvxVnni::detect().map(Set::AvxVnni),
            #[cfg(target_arch = "x86_64")]
            KernelChoice::Avx512Vnni => x86::Avx512Vnni::detect().map(Set::Avx512Vnni),
            #[cfg(target_arch = "x86_64")]
            KernelChoice::Avx512 => x86::Avx512::detect().map(Set::Avx512),
            #[cfg(target_arch = "x86_64")]
            KernelChoice::Amx => x86::Avx512::with_tiles().map(Set::Avx512),
            _ => None,
        };
        set.map(|set| Self::of(set, choice))
    }

    /// The same instruction set with another walk.
    pub(crate) fn walking(self, walk: Walk) -> Self {
        Self { walk, ..self }
    }

    /// The set that `choice` names on this processor.
    pub(crate) fn select(choice: KernelChoice) -> Result<Self, LmError> {
        Self::select_among(choice, Self::detect)
    }

    /// The set that `choice` names if only those that `detect` finds may be used.
    fn select_among(
        choice: KernelChoice,
        detect: impl Fn(KernelChoice) -> Option<Self>,
    ) -> Result<Self, LmError> {
        let found = match choice {
            KernelChoice::Auto => KernelChoice::ALL.into_iter().rev().find_map(detect),
            choice => detect(choice),
        };
        found.ok_or_else(|| LmError::Kernels {
            kernels: choice.to_string(),
        })
    }

    /// Runs `kernel` on this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.set {
            Set::Portable => kernel.run(Portable(self.walk)),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(simd) => simd.walking(self.walk).run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni(simd) if K::NARROW => simd.walking(self.walk).run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni(simd) => simd.plain().walking(self.walk).run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni(simd) => simd.walking(self.walk).run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(simd) if K::NARROW => simd.walking(self.walk).run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(simd) => simd.plain().walking(self.walk).run(kernel),
        }
    }
}
