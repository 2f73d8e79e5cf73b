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
    walk: Walk,
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

/// The instruction sets of a processor beyond portable code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Available {
    pub(crate) avx2: Option<Kernels>,
    pub(crate) avx_vnni: Option<Kernels>,
    pub(crate) avx512_vnni: Option<Kernels>,
    pub(crate) avx512: Option<Kernels>,
    pub(crate) amx: Option<Kernels>,
}

impl Available {
    /// Detects the sets of this processor.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self {
            avx2: x86::Avx2::detect().map(Set::Avx2).map(Kernels::of),
            avx_vnni: x86::AvxVnni::detect().map(Set::AvxVnni).map(Kernels::of),
            avx512_vnni: x86::Avx512Vnni::detect()
                .map(Set::Avx512Vnni)
                .map(Kernels::of),
            avx512: x86::Avx512::detect().map(Set::Avx512).map(Kernels::of),
            amx: x86::Avx512::with_tiles().map(Set::Avx512).map(Kernels::of),
        };
        #[cfg(not(target_arch = "x86_64"))]
        Self::default()
    }
}

impl Kernels {
    /// No vector instructions.
    pub(crate) fn portable() -> Self {
        Self::of(Set::Portable)
    }

    fn of(set: Set) -> Self {
        Self {
            set,
            walk: Walk::usual(set.choice()),
        }
    }

    /// The same instruction set with another walk.
    pub(crate) fn walking(self, walk: Walk) -> Self {
        Self { walk, ..self }
    }

    /// The walk of panels.
    pub(crate) fn walk(self) -> Walk {
        self.walk
    }

    /// The set that `choice` names on this processor.
    pub(crate) fn select(choice: KernelChoice) -> Result<Self, LmError> {
        Self::select_among(choice, Available::detect())
    }

    /// The set that `choice` names if only `sets` may be used.
    pub(crate) fn select_among(choice: KernelChoice, sets: Available) -> Result<Self, LmError> {
        let found = match choice {
            KernelChoice::Auto => sets
                .amx
                .or(sets.avx512)
                .or(sets.avx512_vnni)
                .or(sets.avx_vnni)
                .or(sets.avx2)
                .or(Some(Self::portable())),
            KernelChoice::Portable => Some(Self::portable()),
            KernelChoice::Avx2 => sets.avx2,
            KernelChoice::AvxVnni => sets.avx_vnni,
            KernelChoice::Avx512Vnni => sets.avx512_vnni,
            KernelChoice::Avx512 => sets.avx512,
            KernelChoice::Amx => sets.amx,
        };
        found.ok_or_else(|| LmError::Kernels {
            kernels: choice.to_string(),
        })
    }

    /// The choice that names this set.
    pub(crate) fn choice(self) -> KernelChoice {
        self.set.choice()
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

impl Set {
    fn choice(self) -> KernelChoice {
        match self {
            Self::Portable => KernelChoice::Portable,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => KernelChoice::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => KernelChoice::AvxVnni,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => KernelChoice::Avx512Vnni,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) if simd.has_tiles() => KernelChoice::Amx,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => KernelChoice::Avx512,
        }
    }
}
