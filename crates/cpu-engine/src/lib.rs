#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! A speculative round scores `k + 1` tokens with the target (Algorithm 1), which pays only if that
//! costs little more than scoring one. Weights are packed into panels of sixteen output columns,
//! inputs are broadcast, and up to twelve rows are multiplied while a panel row is in registers.
//! While weights come from memory, more rows are nearly free; once they fit in cache, arithmetic
//! counts. Activations are therefore as narrow as the weights: bf16 for bf16 weights, bytes with a
//! scale per group for weights of 8 and 4 bits. Other engines do the same; without it fewer bytes
//! of weights would only make verification wait for the multipliers.
//!
//! bf16 weights that are read from memory are stored in 12 bits ([`Compact`]), and the kernel
//! expands them to the same words as it reads. So are f32 weights that were read from a bf16
//! checkpoint.
//!
//! Instruction sets: AVX-512 with VNNI (byte products summed in fours) and, where the processor has
//! it, bf16 (products summed in pairs) and AMX; AVX2 with FMA and, where the processor has it,
//! AVX-VNNI; and portable code. All but the last give the same bits, except for bf16 weights by AMX
//! and for bf16 numbers below the normal range, which the instruction for bf16 treats as zero.
//! There is no NEON because no such machine was available for tests.
//!
//! [`CpuEngine`] states the guarantees. `unsafe` stays in the kernel files and the pool, and every
//! kernel is checked against plain scalar code.

mod arena;
mod bandwidth;
mod cache;
mod cores;
mod engine;
mod forward;
mod kernels;
mod packing;
mod pool;
mod states;
mod vectors;
mod walks;
mod weights;

pub use bandwidth::MemoryProbe;
pub use cores::default_threads;
pub use engine::{CpuEngine, MemoryUse, PackedWeights, WeakWeights};
pub use kernels::quant::{INT4_GROUP, INT8_GROUP, IntWeights};
pub use kernels::simd::{LANES, Lanes};
pub use kernels::vector::exp;
pub use kernels::walk::{UnknownWalk, Walk};
pub use vectors::{RowKernel, Vectors};

use kernels::Kernels;
use lm::{KvType, WeightType};

/// Storage of bf16 weights in 12 bits instead of 16, and of f32 weights from checkpoints that are
/// bf16 throughout, as most are published, in 12 bits instead of 32. The results are the same, bit
/// for bit: weights are encoded in a shorter code and not rounded, and f32 ones are multiplied with
/// f32 inputs. Only matrices whose weights use few exponents become compact, as those of trained
/// models do; the others stay plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compact {
    /// Compact where reading weights from memory takes longest: from 24 MiB of weights on, f32 ones
    /// with any vector instructions, bf16 ones with those for bf16. Without the latter, products of
    /// bf16 weights take so long that a shorter code only adds time.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Instruction set of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KernelChoice {
    /// The widest set this processor has.
    #[default]
    Auto,
    /// No explicit vector instructions.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX2 and FMA with AVX-VNNI, which sums products of four bytes at once: Intel's processors
    /// without AVX-512 since Alder Lake.
    AvxVnni,
    /// AVX2 and FMA with AVX-512 F, BW, VL and VNNI, without bf16: Cascade Lake, Ice Lake, Tiger
    /// Lake.
    Avx512Vnni,
    /// AVX2 and FMA with AVX-512 F, BW, VL, VNNI and BF16.
    Avx512,
    /// The same with AMX tiles for products of bf16 numbers and of bytes: sixteen rows take about
    /// as long as one. bf16 products are summed in another order than by the other sets; products
    /// of bytes are exact in all of them.
    Amx,
}

impl KernelChoice {
    /// All choices: [`Auto`](Self::Auto), then the sets, the narrowest first.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::Portable,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512Vnni,
        Self::Avx512,
        Self::Amx,
    ];

    /// The set that [`Auto`](Self::Auto) selects on this processor.
    pub fn widest() -> Self {
        Kernels::select(Self::Auto).map_or(Self::Portable, |kernels| kernels.choice)
    }

    /// Name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512Vnni => "avx512vnni",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }
}

impl std::fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Options of a [`CpuEngine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Storage of the weights.
    pub weights: WeightType,
    /// Compact storage of the weights.
    pub compact: Compact,
    /// Number of threads of a forward; 1 (or 0) runs on the calling thread alone.
    pub threads: usize,
    /// Largest number of tokens in the KV cache; the model's `max_context` if that is less. Memory
    /// is taken as tokens come, not for all of them. Rotations that depend on the length of the
    /// context use this length.
    pub max_len: usize,
    /// Storage of the KV cache.
    pub kv: KvType,
    /// Instruction set.
    pub kernels: KernelChoice,
}

impl Default for EngineOptions {
    /// f32 weights and KV cache, [every fast core](default_threads), 2048 tokens, the widest
    /// instruction set.
    fn default() -> Self {
        Self {
            weights: WeightType::F32,
            compact: Compact::Auto,
            threads: default_threads(),
            max_len: 2048,
            kv: KvType::F32,
            kernels: KernelChoice::Auto,
        }
    }
}
