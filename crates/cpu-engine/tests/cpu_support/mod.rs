//! Small models, and their logits by the reference engine.
#![allow(dead_code, reason = "each test binary uses its own part")]

use cpu_engine::{CpuEngine, EngineOptions, KernelChoice};
use lm::{Checkpoint, LanguageModel, LmConfig, ReferenceEngine, WeightType};

/// A model shape for the tests.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub qwen2: bool,
    pub hidden: usize,
    pub inner: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    pub tied: bool,
}

/// A shape with all widths aligned to panels.
pub const EVEN: Shape = Shape {
    qwen2: false,
    hidden: 64,
    inner: 160,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_dim: 16,
    vocab: 256,
    tied: false,
};

/// A shape with nothing aligned to panels or vectors: partial panels everywhere, biases, tied head.
pub const ODD: Shape = Shape {
    qwen2: true,
    hidden: 37,
    inner: 75,
    layers: 2,
    heads: 6,
    kv_heads: 2,
    head_dim: 10,
    vocab: 101,
    tied: true,
};

/// A shape large enough that regions are split between threads.
pub const WIDE: Shape = Shape {
    qwen2: true,
    hidden: 160,
    inner: 352,
    layers: 2,
    heads: 5,
    kv_heads: 5,
    head_dim: 32,
    vocab: 1000,
    tied: false,
};

impl Shape {
    pub fn config(self) -> LmConfig {
        let json = serde_json::json!({
            "model_type": if self.qwen2 { "qwen2" } else { "llama" },
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": self.tied,
        });
        LmConfig::from_json(&json.to_string(), "config.json".as_ref()).expect("a valid shape")
    }

    /// Random weights, larger than a fresh initialisation's so that attention is far from uniform,
    /// with random norms and biases.
    pub fn checkpoint(self, seed: u64) -> Checkpoint {
        let mut checkpoint = lm::random_checkpoint(&self.config(), seed);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for (name, tensor) in &mut checkpoint.tensors {
            for x in &mut tensor.data {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let noise = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
                *x = if name.ends_with("bias") || name.ends_with("norm.weight") {
                    *x + 0.5 * noise
                } else {
                    *x * 6.0
                };
            }
        }
        checkpoint
    }

    /// The same weights, all rounded to bf16.
    pub fn bf16_checkpoint(self, seed: u64) -> Checkpoint {
        let mut checkpoint = self.checkpoint(seed);
        for x in checkpoint.tensors.values_mut().flat_map(|t| &mut t.data) {
            *x = half::bf16::from_f32(*x).to_f32();
        }
        checkpoint
    }
}

/// Options of a small engine.
pub fn options(weights: WeightType, kernels: KernelChoice, threads: usize) -> EngineOptions {
    EngineOptions {
        weights,
        threads,
        max_len: 512,
        kernels,
        ..EngineOptions::default()
    }
}

/// The kernel sets that this machine can run.
pub fn kernel_sets() -> Vec<KernelChoice> {
    let tiny = EVEN.checkpoint(0);
    let sets = KernelChoice::ALL.into_iter().skip(1);
    sets.filter(|k| CpuEngine::new(&tiny, options(WeightType::F32, *k, 1)).is_ok())
        .collect()
}

/// True if these kernels round every product and sum as most do: not without fused multiplication,
/// and not if tiles sum products of bf16 numbers in their own order.
pub fn sums_as_most(kernels: KernelChoice, weights: WeightType) -> bool {
    match kernels {
        KernelChoice::Portable => false,
        KernelChoice::Amx => weights != WeightType::Bf16,
        _ => true,
    }
}

/// Token ids without a pattern.
pub fn tokens(vocab: usize, count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_add(0x1234_5678_9abc_def1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab as u64) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// Largest absolute difference, NaN if there is one; panics on unequal lengths.
pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |worst, x| {
        if worst.is_nan() || x <= worst {
            worst
        } else {
            x
        }
    })
}

/// Root mean square of the differences over that of `b`; panics on unequal lengths.
pub fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum = |squares: &mut dyn Iterator<Item = f32>| -> f64 {
        squares.map(|x| f64::from(x).powi(2)).sum()
    };
    let error = sum(&mut a.iter().zip(b).map(|(a, b)| a - b));
    (error / sum(&mut b.iter().copied())).sqrt()
}

/// `checkpoint` with its matrices rounded to bf16.
pub fn rounded(checkpoint: &Checkpoint) -> Checkpoint {
    let mut rounded = checkpoint.clone();
    for (name, tensor) in &mut rounded.tensors {
        if !name.ends_with("bias") && !name.ends_with("norm.weight") {
            for x in &mut tensor.data {
                *x = half::bf16::from_f32(*x).to_f32();
            }
        }
    }
    rounded
}

/// Bit patterns, for an equality that distinguishes -0 from 0 and compares NaN.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Logits of every position, `[ids.len()][vocab]`, computed one number at a time in f64.
pub fn reference_logits(checkpoint: &Checkpoint, ids: &[u32]) -> Vec<f32> {
    logits_of(
        ReferenceEngine::new(checkpoint, ids.len()).expect("a valid model"),
        ids,
    )
}

/// The same logits, with weights and the inputs of every projection rounded to bf16.
pub fn reference_logits_in_bf16(checkpoint: &Checkpoint, ids: &[u32]) -> Vec<f32> {
    let engine = ReferenceEngine::new(&rounded(checkpoint), ids.len()).expect("a valid model");
    let round = |x: f64| f64::from(half::bf16::from_f32(x as f32).to_f32());
    logits_of(engine.with_rounded_inputs(round), ids)
}

fn logits_of(mut engine: ReferenceEngine, ids: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    engine
        .forward(ids, &mut logits)
        .expect("room for the tokens");
    logits
}
