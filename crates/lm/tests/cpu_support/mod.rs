//! Small models and a plain forward to compare the engine with.
#![allow(dead_code, reason = "each test binary uses its own part")]

use lm::{Checkpoint, CpuEngine, EngineOptions, KernelChoice, LmConfig, WeightType, in_layer};

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

/// Everything aligned to panels.
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

/// Nothing aligned to panels or vectors: partial panels everywhere, biases, tied head.
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

/// Large enough that regions are split between threads.
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

    /// The same with every weight rounded to bf16.
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

/// The kernel sets this machine can run.
pub fn kernel_sets() -> Vec<KernelChoice> {
    let tiny = EVEN.checkpoint(0);
    [
        KernelChoice::Portable,
        KernelChoice::Avx2,
        KernelChoice::Avx512,
    ]
    .into_iter()
    .filter(|k| CpuEngine::new(&tiny, options(WeightType::F32, *k, 1)).is_ok())
    .collect()
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

/// Largest absolute difference; panics on unequal lengths.
pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
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

/// Bit patterns, for equality that tells -0 from 0 and compares NaN.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Logits of every position, `[ids.len()][vocab]`, computed one scalar at a time in f64.
pub fn reference_logits(checkpoint: &Checkpoint, ids: &[u32]) -> Vec<f32> {
    reference_of(checkpoint, ids, |x| x)
}

/// The same with the inputs of every projection rounded to bf16.
pub fn reference_logits_in_bf16(checkpoint: &Checkpoint, ids: &[u32]) -> Vec<f32> {
    let round = |x: f64| f64::from(half::bf16::from_f32(x as f32).to_f32());
    reference_of(&rounded(checkpoint), ids, round)
}

fn reference_of(checkpoint: &Checkpoint, ids: &[u32], round: impl Fn(f64) -> f64) -> Vec<f32> {
    let matvec = |weights: &[f32], x: &[f64]| {
        let x: Vec<f64> = x.iter().map(|x| round(*x)).collect();
        matvec(weights, &x)
    };
    let c = &checkpoint.config;
    let tensor = |name: &str| -> &[f32] { &checkpoint.tensors[name].data };
    let embedding = tensor("model.embed_tokens.weight");
    let row = |id: &u32| &embedding[*id as usize * c.hidden_size..][..c.hidden_size];
    let mut hidden: Vec<Vec<f64>> = ids
        .iter()
        .map(|id| row(id).iter().map(|x| f64::from(*x)).collect())
        .collect();
    for layer in 0..c.num_layers {
        let part = |name: &str| tensor(&in_layer(layer, name));
        let normed: Vec<_> = hidden
            .iter()
            .map(|h| norm(h, part("input_layernorm.weight"), c.rms_norm_eps))
            .collect();
        let projected = |name: &str| -> Vec<Vec<f64>> {
            let bias = checkpoint
                .tensors
                .get(&in_layer(layer, &format!("self_attn.{name}.bias")));
            normed
                .iter()
                .map(|x| {
                    let mut y = matvec(part(&format!("self_attn.{name}.weight")), x);
                    for (y, b) in y.iter_mut().zip(bias.map_or(&[][..], |b| &b.data)) {
                        *y += f64::from(*b);
                    }
                    y
                })
                .collect()
        };
        let (q, k, v) = (
            projected("q_proj"),
            projected("k_proj"),
            projected("v_proj"),
        );
        let mixed = attention(c, &rotated(c, q), &rotated(c, k), &v);
        for (h, x) in hidden.iter_mut().zip(&mixed) {
            add(h, &matvec(part("self_attn.o_proj.weight"), x));
            let x = norm(h, part("post_attention_layernorm.weight"), c.rms_norm_eps);
            let gate = matvec(part("mlp.gate_proj.weight"), &x);
            let up = matvec(part("mlp.up_proj.weight"), &x);
            let gated: Vec<f64> = gate
                .iter()
                .zip(&up)
                .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                .collect();
            add(h, &matvec(part("mlp.down_proj.weight"), &gated));
        }
    }
    let head = if c.tie_word_embeddings {
        embedding
    } else {
        tensor("lm_head.weight")
    };
    hidden
        .iter()
        .flat_map(|h| matvec(head, &norm(h, tensor("model.norm.weight"), c.rms_norm_eps)))
        .map(|x| x as f32)
        .collect()
}

fn add(to: &mut [f64], x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += x);
}

fn matvec(weights: &[f32], x: &[f64]) -> Vec<f64> {
    let dot = |w: &[f32]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
    weights.chunks_exact(x.len()).map(dot).collect()
}

fn norm(x: &[f64], weight: &[f32], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter()
        .zip(weight)
        .map(|(x, w)| x / (mean + eps).sqrt() * f64::from(*w))
        .collect()
}

fn rotated(c: &LmConfig, mut rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let half = c.head_dim / 2;
    for (position, row) in rows.iter_mut().enumerate() {
        for head in row.chunks_exact_mut(c.head_dim) {
            for (i, frequency) in c.rope_frequencies().into_iter().enumerate() {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                let (a, b) = (head[i], head[i + half]);
                head[i] = a * cos - b * sin;
                head[i + half] = b * cos + a * sin;
            }
        }
    }
    rows
}

fn attention(c: &LmConfig, q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let group = c.num_heads / c.num_kv_heads;
    let mut out = vec![vec![0.0; c.q_width()]; q.len()];
    for (t, out) in out.iter_mut().enumerate() {
        for head in 0..c.num_heads {
            let at = head / group * c.head_dim;
            let query = &q[t][head * c.head_dim..][..c.head_dim];
            let score = |p: usize| -> f64 {
                let key = &k[p][at..at + c.head_dim];
                query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (c.head_dim as f64).sqrt()
            };
            let scores: Vec<f64> = (0..=t).map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = e.iter().sum();
            for (p, e) in e.iter().enumerate() {
                for i in 0..c.head_dim {
                    out[head * c.head_dim + i] += e / sum * v[p][at + i];
                }
            }
        }
    }
    out
}
