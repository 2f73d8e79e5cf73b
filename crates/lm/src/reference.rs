//! The decoder written out one number at a time: what faster engines and trainers are tested
//! against.

use crate::names::{EMBEDDING, FINAL_NORM, in_layer};
use crate::{Checkpoint, DecodeEngine, LmConfig, LmError, check_call};

/// A decoder that computes every number of a model by its definition, in f64 from f32 weights, one
/// token after the other.
///
/// It is thousands of times slower than an engine that is made for speed and shares no code with
/// one, so that the two can be held against each other.
///
/// ```
/// use lm::{DecodeEngine, LmConfig, ReferenceEngine, random_checkpoint};
/// # let json = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
/// #   "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}"#;
/// let config = LmConfig::from_json(json, "config.json".as_ref())?;
/// let mut engine = ReferenceEngine::new(&random_checkpoint(&config, 1), 16)?;
///
/// let (mut together, mut alone) = (Vec::new(), Vec::new());
/// engine.forward(&[3, 1, 4], &mut together)?;
/// engine.truncate(2);
/// engine.forward(&[4], &mut alone)?;
/// assert_eq!(together[2 * 40..], alone);
/// # Ok::<(), lm::LmError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReferenceEngine {
    checkpoint: Checkpoint,
    frequencies: Vec<f64>,
    caches: Vec<Cache>,
    /// Applied to the inputs of every projection.
    rounding: fn(f64) -> f64,
    len: usize,
    max_len: usize,
}

/// Rotated keys, and values, of one block: `[positions][kv_width]`.
#[derive(Clone, Debug, Default)]
struct Cache {
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl ReferenceEngine {
    /// A decoder with room for `max_len` tokens, or the model's `max_position_embeddings` if that is
    /// less.
    ///
    /// # Errors
    /// Those of [`Checkpoint::check`].
    pub fn new(checkpoint: &Checkpoint, max_len: usize) -> Result<Self, LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        let config = &checkpoint.config;
        Ok(Self {
            frequencies: config.rope_frequencies(),
            caches: vec![Cache::default(); config.num_layers],
            rounding: |x| x,
            len: 0,
            max_len: max_len.min(config.max_position_embeddings),
            checkpoint: checkpoint.clone(),
        })
    }

    /// The same with the inputs of every projection rounded, as engines do that multiply narrow
    /// numbers; weights are rounded in the checkpoint.
    #[must_use]
    pub fn with_rounded_inputs(mut self, rounding: fn(f64) -> f64) -> Self {
        self.rounding = rounding;
        self
    }

    /// As [`forward`](DecodeEngine::forward), without rounding the logits to f32.
    ///
    /// # Errors
    /// As [`forward`](DecodeEngine::forward).
    pub fn forward_f64(&mut self, ids: &[u32]) -> Result<Vec<f64>, LmError> {
        check_call(ids, self.len, self.max_len, self.vocab_size())?;
        let mut logits = Vec::with_capacity(ids.len() * self.vocab_size());
        for id in ids {
            let state = self.append(*id)?;
            logits.extend(self.project(&self.checkpoint.head()?.data, &state));
        }
        Ok(logits)
    }

    /// Appends one token and returns its state behind the final norm.
    fn append(&mut self, id: u32) -> Result<Vec<f64>, LmError> {
        let mut caches = std::mem::take(&mut self.caches);
        let state = self.state(id, &mut caches);
        self.caches = caches;
        self.len += 1;
        state
    }

    fn state(&self, id: u32, caches: &mut [Cache]) -> Result<Vec<f64>, LmError> {
        let config = &self.checkpoint.config;
        let (d, eps) = (config.hidden_size, config.rms_norm_eps);
        let row = &self.weights(EMBEDDING)?[id as usize * d..][..d];
        let mut x: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        for (layer, cache) in caches.iter_mut().enumerate() {
            let weights = |part: &str| self.weights(&in_layer(layer, part));
            let normed = rms_norm(&x, weights("input_layernorm.weight")?, eps);
            let project = |name: &str| -> Result<Vec<f64>, LmError> {
                let matrix = weights(&format!("self_attn.{name}.weight"))?;
                let mut y = self.project(matrix, &normed);
                if config.qkv_bias {
                    let bias = weights(&format!("self_attn.{name}.bias"))?;
                    y.iter_mut()
                        .zip(bias)
                        .for_each(|(y, b)| *y += f64::from(*b));
                }
                Ok(y)
            };
            let mut queries = project("q_proj")?;
            let mut keys = project("k_proj")?;
            self.rotate(&mut queries);
            self.rotate(&mut keys);
            cache.keys.extend(keys);
            cache.values.extend(project("v_proj")?);
            let mixed = attention(config, &queries, cache);
            add(
                &mut x,
                &self.project(weights("self_attn.o_proj.weight")?, &mixed),
            );

            let normed = rms_norm(&x, weights("post_attention_layernorm.weight")?, eps);
            let gate = self.project(weights("mlp.gate_proj.weight")?, &normed);
            let up = self.project(weights("mlp.up_proj.weight")?, &normed);
            let inner = gate
                .iter()
                .zip(&up)
                .map(|(g, u)| g / (1.0 + (-g).exp()) * u);
            let inner: Vec<f64> = inner.collect();
            add(
                &mut x,
                &self.project(weights("mlp.down_proj.weight")?, &inner),
            );
        }
        Ok(rms_norm(&x, self.weights(FINAL_NORM)?, eps))
    }

    fn weights(&self, name: &str) -> Result<&[f32], LmError> {
        Ok(&self.checkpoint.tensor(name)?.data)
    }

    /// `matrix: [out, in]` times `x`.
    fn project(&self, matrix: &[f32], x: &[f64]) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|x| (self.rounding)(*x)).collect();
        let dot = |row: &[f32]| row.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum();
        matrix.chunks_exact(x.len()).map(dot).collect()
    }

    /// Rotates every head of the next position: its two halves against each other.
    fn rotate(&self, heads: &mut [f64]) {
        let half = self.frequencies.len();
        for head in heads.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for ((a, b), frequency) in first.iter_mut().zip(second).zip(&self.frequencies) {
                let (sin, cos) = (self.len as f64 * frequency).sin_cos();
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

impl DecodeEngine for ReferenceEngine {
    fn vocab_size(&self) -> usize {
        self.checkpoint.config.vocab_size
    }

    fn len(&self) -> usize {
        self.len
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        let kept = self.len * self.checkpoint.config.kv_width();
        for cache in &mut self.caches {
            cache.keys.truncate(kept);
            cache.values.truncate(kept);
        }
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), LmError> {
        let exact = self.forward_f64(ids)?;
        logits.clear();
        logits.extend(exact.into_iter().map(|x| x as f32));
        Ok(())
    }
}

/// Mixes the cached values for the newest position; neighbouring query heads share a key head.
fn attention(config: &LmConfig, queries: &[f64], cache: &Cache) -> Vec<f64> {
    let (width, kv_width) = (config.head_dim, config.kv_width());
    let group = config.num_heads / config.num_kv_heads;
    let mut mixed = Vec::with_capacity(queries.len());
    for (head, query) in queries.chunks_exact(width).enumerate() {
        let at = head / group * width;
        let scores = cache.keys.chunks_exact(kv_width).map(|keys| {
            let products = query.iter().zip(&keys[at..at + width]).map(|(q, k)| q * k);
            products.sum::<f64>() / (width as f64).sqrt()
        });
        let scores: Vec<f64> = scores.collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let total: f64 = shares.iter().sum();
        let mut sum = vec![0.0; width];
        for (share, values) in shares.iter().zip(cache.values.chunks_exact(kv_width)) {
            for (sum, value) in sum.iter_mut().zip(&values[at..at + width]) {
                *sum += share / total * value;
            }
        }
        mixed.extend(sum);
    }
    mixed
}

fn rms_norm(x: &[f64], weight: &[f32], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scaled = x.iter().map(|x| x / (mean + eps).sqrt());
    scaled.zip(weight).map(|(x, w)| x * f64::from(*w)).collect()
}

fn add(to: &mut [f64], x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += x);
}
