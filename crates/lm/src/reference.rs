//! The reference decoder, which computes one number at a time. Faster engines and trainers are
//! compared with it in tests.

use crate::names::{EMBEDDING, FINAL_NORM, in_layer};
use crate::{
    Activation, Checkpoint, LanguageModel, LmConfig, LmError, ModelError, QkNorm, Rope, check_call,
};

/// A decoder that computes every number of a model by its definition, in f64 from f32 weights, one
/// token after the other.
///
/// It is thousands of times slower than an engine made for speed and shares no code with one, so
/// that the two can be compared.
///
/// ```
/// use lm::{LanguageModel, LmConfig, ReferenceEngine, random_checkpoint};
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
    caches: Vec<Cache>,
    /// Rounding of the inputs of every projection.
    rounding: fn(f64) -> f64,
    len: usize,
    max_len: usize,
}

/// Rotated keys, and values, of one block, `[positions][kv_width]` each.
#[derive(Clone, Debug, Default)]
struct Cache {
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl ReferenceEngine {
    /// A decoder with room for `max_len` tokens, or the model's
    /// [`max_context`](LmConfig::max_context) if that is less.
    ///
    /// # Errors
    /// Those of [`Checkpoint::check`].
    pub fn new(checkpoint: &Checkpoint, max_len: usize) -> Result<Self, LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        let config = &checkpoint.config;
        Ok(Self {
            caches: vec![Cache::default(); config.num_layers],
            rounding: |x| x,
            len: 0,
            max_len: max_len.min(config.max_context()),
            checkpoint: checkpoint.clone(),
        })
    }

    /// The same decoder with the inputs of every projection rounded, as in engines that multiply
    /// narrow numbers. Weights must be rounded in the checkpoint.
    #[must_use]
    pub fn with_rounded_inputs(mut self, rounding: fn(f64) -> f64) -> Self {
        self.rounding = rounding;
        self
    }

    /// As [`forward`](LanguageModel::forward), without rounding the logits to f32.
    ///
    /// # Errors
    /// As [`forward`](LanguageModel::forward).
    pub fn forward_f64(&mut self, ids: &[u32]) -> Result<Vec<f64>, LmError> {
        check_call(ids, self.len, self.max_len, self.vocab_size())?;
        let mut logits = Vec::with_capacity(ids.len() * self.vocab_size());
        for id in ids {
            let state = self.append(*id)?;
            logits.extend(self.logits(&state)?);
        }
        Ok(logits)
    }

    fn config(&self) -> &LmConfig {
        &self.checkpoint.config
    }

    /// Appends one token. Returns its state after the final norm.
    fn append(&mut self, id: u32) -> Result<Vec<f64>, LmError> {
        let mut caches = std::mem::take(&mut self.caches);
        let state = self.next_state(id, &mut caches);
        self.caches = caches;
        self.len += 1;
        state
    }

    fn logits(&self, state: &[f64]) -> Result<Vec<f64>, LmError> {
        let config = self.config();
        let mut logits = self.project(&self.checkpoint.head()?.data, state);
        for logit in &mut logits {
            *logit = capped(*logit / f64::from(config.logit_divisor), config.logit_cap);
        }
        Ok(logits)
    }

    fn next_state(&self, id: u32, caches: &mut [Cache]) -> Result<Vec<f64>, LmError> {
        let config = self.config();
        let d = config.hidden_size;
        let row = &self.weights(EMBEDDING)?[id as usize * d..][..d];
        let scale = f64::from(config.embedding_scale);
        let mut x: Vec<f64> = row.iter().map(|x| f64::from(*x) * scale).collect();
        let [attention_in, attention_out, mlp_in, mlp_out] = config.block.norms.names();
        for (layer, cache) in caches.iter_mut().enumerate() {
            let normed = self.norm(&x, layer, attention_in)?;
            let branch = self.attention(&normed, layer, cache)?;
            self.add_branch(&mut x, &branch, layer, attention_out)?;
            let normed = self.norm(&x, layer, mlp_in)?;
            let branch = self.mlp(&normed, layer)?;
            self.add_branch(&mut x, &branch, layer, mlp_out)?;
        }
        Ok(self.rms_norm(&x, self.weights(FINAL_NORM)?))
    }

    fn attention(&self, x: &[f64], layer: usize, cache: &mut Cache) -> Result<Vec<f64>, LmError> {
        let mut queries = self.linear(x, layer, "self_attn.q_proj")?;
        let mut keys = self.linear(x, layer, "self_attn.k_proj")?;
        for (heads, norm) in [(&mut queries, "q_norm"), (&mut keys, "k_norm")] {
            let width = match self.config().block.qk_norm {
                QkNorm::None => continue,
                QkNorm::Head => self.config().head_dim,
                QkNorm::Full => heads.len(),
            };
            let weight = self.weights(&in_layer(layer, &format!("self_attn.{norm}.weight")))?;
            let normed = heads.chunks_exact(width).map(|x| self.rms_norm(x, weight));
            *heads = normed.flatten().collect();
        }
        if let Some(rope) = self.config().rope_of(layer) {
            self.rotate(rope, &mut queries);
            self.rotate(rope, &mut keys);
        }
        cache.keys.extend(keys);
        cache
            .values
            .extend(self.linear(x, layer, "self_attn.v_proj")?);
        let mixed = self.mix(&queries, layer, cache);
        self.linear(&mixed, layer, "self_attn.o_proj")
    }

    /// Mixes the cached values for the newest position; neighbouring query heads share a key head.
    fn mix(&self, queries: &[f64], layer: usize, cache: &Cache) -> Vec<f64> {
        let config = self.config();
        let (width, kv_width) = (config.head_dim, config.kv_width());
        let group = config.num_heads / config.num_kv_heads;
        let scale = f64::from(config.block.attention_scale);
        let seen = cache.keys.len() / kv_width;
        let first = config
            .layer(layer)
            .window
            .map_or(0, |w| seen.saturating_sub(w));
        let [keys, values] = [&cache.keys, &cache.values].map(|all| &all[first * kv_width..]);
        let mut mixed = Vec::with_capacity(queries.len());
        for (head, query) in queries.chunks_exact(width).enumerate() {
            let at = head / group * width;
            let scores = keys.chunks_exact(kv_width).map(|keys| {
                let products = query.iter().zip(&keys[at..at + width]).map(|(q, k)| q * k);
                capped(products.sum::<f64>() * scale, config.block.attention_cap)
            });
            let scores: Vec<f64> = scores.collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shares: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let total: f64 = shares.iter().sum();
            let mut sum = vec![0.0; width];
            for (share, values) in shares.iter().zip(values.chunks_exact(kv_width)) {
                for (sum, value) in sum.iter_mut().zip(&values[at..at + width]) {
                    *sum += share / total * value;
                }
            }
            mixed.extend(sum);
        }
        mixed
    }

    fn mlp(&self, x: &[f64], layer: usize) -> Result<Vec<f64>, LmError> {
        let gate = self.linear(x, layer, "mlp.gate_proj")?;
        let up = self.linear(x, layer, "mlp.up_proj")?;
        let kind = self.config().block.activation;
        let inner = gate.iter().zip(&up).map(|(g, u)| activate(kind, *g) * u);
        self.linear(&inner.collect::<Vec<f64>>(), layer, "mlp.down_proj")
    }

    /// Adds the output of attention or MLP to the residual stream, through a norm if `norm` names
    /// one.
    fn add_branch(
        &self,
        x: &mut [f64],
        branch: &[f64],
        layer: usize,
        norm: Option<&str>,
    ) -> Result<(), LmError> {
        let branch = self.norm(branch, layer, norm)?;
        let scale = f64::from(self.config().block.residual_scale);
        x.iter_mut().zip(branch).for_each(|(x, b)| *x += scale * b);
        Ok(())
    }

    /// `x` after the named norm of a block, or unchanged without a name.
    fn norm(&self, x: &[f64], layer: usize, name: Option<&str>) -> Result<Vec<f64>, LmError> {
        match name {
            None => Ok(x.to_vec()),
            Some(name) => Ok(self.rms_norm(x, self.weights(&in_layer(layer, name))?)),
        }
    }

    fn rms_norm(&self, x: &[f64], weight: &[f32]) -> Vec<f64> {
        let offset = if self.config().norm_offset { 1.0 } else { 0.0 };
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let root = (mean + self.config().rms_norm_eps).sqrt();
        let weighted = x.iter().zip(weight);
        weighted
            .map(|(x, w)| x / root * (offset + f64::from(*w)))
            .collect()
    }

    fn weights(&self, name: &str) -> Result<&[f32], LmError> {
        Ok(&self.checkpoint.tensor(name)?.data)
    }

    /// A projection of a block, with its bias if there is one.
    fn linear(&self, x: &[f64], layer: usize, name: &str) -> Result<Vec<f64>, LmError> {
        let matrix = self.weights(&in_layer(layer, &format!("{name}.weight")))?;
        let mut y = self.project(matrix, x);
        let bias = in_layer(layer, &format!("{name}.bias"));
        if let Some(bias) = self.checkpoint.tensors.get(&bias) {
            let pairs = y.iter_mut().zip(&bias.data);
            pairs.for_each(|(y, b)| *y += f64::from(*b));
        }
        Ok(y)
    }

    /// `matrix: [out, in]` times `x`.
    fn project(&self, matrix: &[f32], x: &[f64]) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|x| (self.rounding)(*x)).collect();
        let dot = |row: &[f32]| row.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum();
        matrix.chunks_exact(x.len()).map(dot).collect()
    }

    /// Rotates every head of the next position: the pairs of dimensions `i` and `i + dims / 2`.
    fn rotate(&self, rope: &Rope, heads: &mut [f64]) {
        let (half, factor) = (rope.dims / 2, rope.attention_factor());
        let frequencies = rope.frequencies(self.max_len);
        for head in heads.chunks_exact_mut(self.config().head_dim) {
            let (first, second) = head[..rope.dims].split_at_mut(half);
            for ((a, b), frequency) in first.iter_mut().zip(second).zip(&frequencies) {
                let (sin, cos) = (self.len as f64 * frequency).sin_cos();
                let (x, y) = (*a * cos - *b * sin, *b * cos + *a * sin);
                (*a, *b) = (x * factor, y * factor);
            }
        }
    }
}

/// `x`, or `cap * tanh(x / cap)`.
fn capped(x: f64, cap: Option<f32>) -> f64 {
    cap.map_or(x, |cap| f64::from(cap) * (x / f64::from(cap)).tanh())
}

fn activate(kind: Activation, x: f64) -> f64 {
    match kind {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => x * normal_share(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Relu => x.max(0.0),
    }
}

/// The share of a standard normal distribution below `x`: 1/2 plus its density times
/// `x + x^3 / 3 + x^5 / (3 * 5) + ...`.
fn normal_share(x: f64) -> f64 {
    if x.abs() > 8.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    0.5 + density * sum
}

impl LanguageModel for ReferenceEngine {
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

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let exact = self.forward_f64(ids)?;
        logits.clear();
        logits.extend(exact.into_iter().map(|x| x as f32));
        Ok(())
    }
}
