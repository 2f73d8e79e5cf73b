//! The engine behind the decode seam.

use lm::{Checkpoint, DecodeEngine, LmConfig, LmError, WeightType, check_call};

use crate::cache::Cache;
use crate::forward::{PASS_TOKENS, Pass, Scratch};
use crate::kernels::Kernels;
use crate::kernels::parallel::Executor;
use crate::pool::Pool;
use crate::random::RandomWeights;
use crate::weights::{TensorSource, Weights};
use crate::{Compact, EngineOptions, KernelChoice};
use lm::host::RotaryTables;

/// Bytes an engine holds, all allocated when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Packed weights, embedding included.
    pub weights: usize,
    /// KV cache at its full length.
    pub cache: usize,
    /// Activations, attention scores and rotary tables.
    pub scratch: usize,
}

impl MemoryUse {
    /// Everything together.
    pub fn total(&self) -> usize {
        self.weights + self.cache + self.scratch
    }
}

/// The weights of a model as an engine reads them, without an engine: what a drafter that serves
/// several targets keeps for each of them.
pub struct PackedWeights {
    config: LmConfig,
    kind: WeightType,
    weights: Weights,
}

impl PackedWeights {
    /// Packs a checkpoint.
    ///
    /// # Errors
    /// Those of [`Checkpoint::check`].
    pub fn new(
        checkpoint: &Checkpoint,
        kind: WeightType,
        compact: Compact,
    ) -> Result<Self, LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        let kernels = Kernels::select(KernelChoice::Auto)?;
        let compact = Weights::choose(compact, kernels, &checkpoint.config, kind);
        Ok(Self {
            config: checkpoint.config.clone(),
            kind,
            weights: Weights::of(&checkpoint.config, kind, compact, checkpoint)?,
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }
}

/// A decoder on the CPU that reads its packed weights once for all tokens of a call.
///
/// # Invariants
/// - **Batch invariance**: the logits of a position are bit-identical whatever number of tokens it
///   was computed with, wherever the KV cache was truncated before, and whatever the number of
///   threads. Every output element is one chain of multiply-adds in a fixed order; tiles and
///   threads only decide which chains run side by side. Greedy speculative output therefore equals
///   plain decoding token for token. Instruction sets and weight types do differ from each other.
/// - A forward allocates nothing after the first one with its number of logits.
///
/// ```
/// use cpu_engine::{CpuEngine, EngineOptions};
/// use lm::{DecodeEngine, LmConfig, random_checkpoint};
/// # let json = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
/// #   "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}"#;
/// let config = LmConfig::from_json(json, "config.json".as_ref())?;
/// let mut engine = CpuEngine::new(&random_checkpoint(&config, 1), EngineOptions::default())?;
///
/// let (mut together, mut alone) = (Vec::new(), Vec::new());
/// engine.forward(&[3, 1, 4], &mut together)?;
/// engine.truncate(2);
/// engine.forward(&[4], &mut alone)?;
/// assert_eq!(together[2 * 40..], alone);
/// # Ok::<(), lm::LmError>(())
/// ```
pub struct CpuEngine {
    config: LmConfig,
    kind: WeightType,
    weights: Weights,
    rope: RotaryTables,
    executor: Executor,
    cache: Cache,
    scratch: Scratch,
    len: usize,
    max_len: usize,
    /// Tokens of the last pass, 0 where it computed no logits.
    scored: usize,
}

impl CpuEngine {
    /// Packs a checkpoint.
    ///
    /// # Errors
    /// Those of [`Checkpoint::check`]; [`LmError::Kernels`] if the processor lacks the instruction
    /// set asked for; [`LmError::Threads`] if the helper threads cannot be started.
    pub fn new(checkpoint: &Checkpoint, options: EngineOptions) -> Result<Self, LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        Self::build(&checkpoint.config, checkpoint, options)
    }

    /// An engine with random weights, drawn straight into their packed form: for timing a shape.
    ///
    /// # Errors
    /// As [`CpuEngine::new`].
    pub fn with_random_weights(
        config: &LmConfig,
        options: EngineOptions,
        seed: u64,
    ) -> Result<Self, LmError> {
        Self::build(config, &RandomWeights::new(config, seed), options)
    }

    fn build(
        config: &LmConfig,
        source: &impl TensorSource,
        options: EngineOptions,
    ) -> Result<Self, LmError> {
        let kernels = Kernels::select(options.kernels)?;
        let threads = options.threads.max(1);
        let pool = Pool::shared(threads).map_err(|source| LmError::Threads { threads, source })?;
        let config = config.clone();
        let max_len = options.max_len.min(config.max_context());
        let rounded = options.weights != WeightType::F32;
        let compact = Weights::choose(options.compact, kernels, &config, options.weights);
        Ok(Self {
            weights: Weights::of(&config, options.weights, compact, source)?,
            kind: options.weights,
            rope: RotaryTables::new(&config, max_len),
            executor: Executor { kernels, pool },
            cache: Cache::new(&config, max_len),
            scratch: Scratch::new(&config, max_len, threads, rounded),
            len: 0,
            max_len,
            scored: 0,
            config,
        })
    }

    /// Replaces the weights by those of a checkpoint of the same shape, in place, after a training
    /// step. The KV cache is emptied: its keys and values belong to the old weights.
    ///
    /// # Errors
    /// Those of [`Checkpoint::check`]; [`LmError::OtherModel`] if the configuration differs. The
    /// engine is then unchanged.
    pub fn load_weights(&mut self, checkpoint: &Checkpoint) -> Result<(), LmError> {
        if checkpoint.config != self.config {
            return Err(LmError::OtherModel);
        }
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        self.forget();
        self.weights.load(&self.config, checkpoint)
    }

    /// Decodes with other weights of the same shape and type from now on, compact or not; `packed`
    /// receives the ones used so far. Moves pointers only. The KV cache is emptied.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] if configuration or type differ; nothing is changed then.
    pub fn swap_weights(&mut self, packed: &mut PackedWeights) -> Result<(), LmError> {
        if packed.config != self.config || packed.kind != self.kind {
            return Err(LmError::OtherModel);
        }
        std::mem::swap(&mut self.weights, &mut packed.weights);
        self.forget();
        Ok(())
    }

    /// Drops everything that was computed with the weights so far.
    fn forget(&mut self) {
        self.len = 0;
        self.scored = 0;
    }

    /// Appends `ids` without computing logits: the cheap way to take in a prompt whose last token
    /// is scored separately.
    ///
    /// # Errors
    /// As [`DecodeEngine::forward`].
    pub fn append(&mut self, ids: &[u32]) -> Result<(), LmError> {
        check_call(ids, self.len, self.max_len, self.config.vocab_size)?;
        for ids in ids.chunks(pass_tokens(ids.len())) {
            self.pass(ids, &mut []);
        }
        Ok(())
    }

    /// Appends `ids` and scores the last of them, as if it had been appended alone: `logits` becomes
    /// `[vocab_size]`, or empty with `ids`.
    ///
    /// # Errors
    /// As [`DecodeEngine::forward`].
    pub fn prompt(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), LmError> {
        check_call(ids, self.len, self.max_len, self.config.vocab_size)?;
        logits.resize(
            self.config
                .vocab_size
                .min(ids.len() * self.config.vocab_size),
            0.0,
        );
        let mut passes = ids.chunks(pass_tokens(ids.len())).peekable();
        while let Some(ids) = passes.next() {
            let last = passes.peek().is_none();
            self.pass(ids, if last { logits } else { &mut [] });
        }
        Ok(())
    }

    /// Shape of the model.
    pub fn config(&self) -> &LmConfig {
        &self.config
    }

    /// The kernels in use, never [`KernelChoice::Auto`].
    pub fn kernels(&self) -> KernelChoice {
        self.executor.kernels.choice()
    }

    /// Whether weights are kept compact: see [`Compact`].
    pub fn compact(&self) -> bool {
        self.weights.is_compact()
    }

    /// Threads of a forward.
    pub fn threads(&self) -> usize {
        self.executor.pool.threads()
    }

    /// Memory held. A forward allocates nothing but the caller's logits.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse {
            weights: self.weights.bytes(),
            cache: self.cache.bytes(),
            scratch: self.scratch.bytes() + self.rope.bytes(),
        }
    }

    /// Bytes of weights that a forward reads: what bounds its speed when memory does.
    pub fn weight_bytes_per_forward(&self) -> usize {
        self.weights.bytes_per_token()
    }

    /// The final hidden state, after the last norm, of the last token of the last
    /// [`forward`](DecodeEngine::forward): what its logits were computed from, `[hidden_size]`.
    /// Empty after [`append`](Self::append), before the first forward and with new weights.
    pub fn last_state(&self) -> &[f32] {
        match self.scored.checked_sub(1) {
            Some(last) => self.scratch.normed(last, self.config.hidden_size),
            None => &[],
        }
    }

    /// One pass for `ids`, of which as many are scored as `logits` has room for.
    fn pass(&mut self, ids: &[u32], logits: &mut [f32]) {
        self.scored = logits.len() / self.config.vocab_size;
        Pass {
            config: &self.config,
            weights: &self.weights,
            rope: &self.rope,
            executor: &self.executor,
            cache: &mut self.cache,
            scratch: &mut self.scratch,
            max_len: self.max_len,
            start: self.len,
            count: ids.len(),
        }
        .run(ids, logits);
        self.len += ids.len();
    }
}

/// Tokens of each pass but the last, so that all are about as long.
fn pass_tokens(count: usize) -> usize {
    count.div_ceil(count.div_ceil(PASS_TOKENS).max(1)).max(1)
}

impl DecodeEngine for CpuEngine {
    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn len(&self) -> usize {
        self.len
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), LmError> {
        check_call(ids, self.len, self.max_len, self.config.vocab_size)?;
        let vocab = self.config.vocab_size;
        logits.resize(ids.len() * vocab, 0.0);
        let tokens = pass_tokens(ids.len());
        for (ids, logits) in ids.chunks(tokens).zip(logits.chunks_mut(tokens * vocab)) {
            self.pass(ids, logits);
        }
        Ok(())
    }
}
