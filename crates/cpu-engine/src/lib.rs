#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! A speculative step scores `k + 1` tokens with the target (Algorithm 1), which pays only if that
//! costs little more than scoring one. Weights are packed into panels of sixteen output columns,
//! inputs are broadcast, and up to twelve rows are multiplied while a panel row is in registers:
//! while weights come from memory, more rows are nearly free; once they fit in cache, arithmetic
//! counts. So narrow weights meet narrow activations: bf16 ones beside bf16, bytes with a scale a
//! group beside 8 and 4 bits. That is what other engines do with such weights, and without it fewer
//! bytes would only make verification wait for the multipliers.
//!
//! bf16 weights that are read from memory are kept in 12 bits ([`Compact`]), from which the kernel
//! makes the same words on the way; so are f32 weights that a bf16 checkpoint was read into.
//!
//! Instruction sets: AVX-512 with bf16 and VNNI (bf16 products summed in pairs, byte products in
//! fours), AVX2 with FMA, and portable code. The first two give the same bits. NEON is absent
//! because it could not be run where this was written.
//!
//! [`CpuEngine`] states what is guaranteed. `unsafe` stays in the kernel files and the pool, and
//! every kernel is checked against plain scalar code.

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

/// Whether bf16 weights are kept in 12 bits instead of 16, and so the f32 weights of checkpoints that
/// are bf16 throughout, as most are published, instead of 32. The results are the same, bit for bit:
/// weights are written in a shorter code, not rounded, and f32 ones meet f32 inputs. Only matrices
/// whose weights use few exponents become compact, as those of trained models do; the others stay
/// plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compact {
    /// Where reading weights from memory takes longest: from 24 MiB of them on, with AVX-512 or AMX. AVX2
    /// computes so long that shorter codes only add to it.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Which kernels run.
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
    /// AVX2 and FMA with AVX-512 F, BW, VL, BF16 and VNNI.
    Avx512,
    /// The same with AMX tiles for products of bf16 numbers and of bytes: sixteen rows take about as
    /// long as one. bf16 products are summed in another order than by the other sets, bytes exactly as
    /// there.
    Amx,
}

impl KernelChoice {
    /// What [`Auto`](Self::Auto) means on this processor.
    pub fn widest() -> Self {
        Kernels::select(Self::Auto).map_or(Self::Portable, Kernels::choice)
    }
}

impl std::fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        })
    }
}

/// How to build a [`CpuEngine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Storage of the weights.
    pub weights: WeightType,
    /// Whether they are kept compact.
    pub compact: Compact,
    /// Threads of a forward; 1 (or 0) runs on the calling thread alone.
    pub threads: usize,
    /// Most tokens the KV cache holds; the model's `max_context` if that is less. Memory is taken as
    /// tokens come, not for all of them. Rotations that depend on the length of the context are those
    /// of this length.
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
