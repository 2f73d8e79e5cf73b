//! The CPU engine, which implements the trait of decoding engines.

use std::sync::{Arc, Weak};

use lm::host::RotaryTables;
use lm::{
    Alternative, LanguageModel, LmConfig, LmError, ModelError, RandomWeights, Tail, TensorSource,
    WeightType, check_call, first_of_last,
};

use crate::cache::{Cache, CacheShape};
use crate::forward::{PASS_TOKENS, Pass, Run, Scratch, Stretch};
use crate::kernels::Kernels;
use crate::kernels::fused::AttentionScratch;
use crate::kernels::parallel::Executor;
use crate::pool::Pool;
use crate::states::States;
use crate::weights::Weights;
use crate::{EngineOptions, KernelChoice, Walk, walks};

/// Memory of an engine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Packed weights, embedding included. Engines that share weights each count all of them.
    pub weights: usize,
    /// KV cache, at its largest size so far.
    pub cache: usize,
    /// Activations, attention scores, rotary tables, and [kept states](CpuEngine::keep_states).
    pub scratch: usize,
}

impl MemoryUse {
    /// The sum.
    pub fn total(&self) -> usize {
        self.weights + self.cache + self.scratch
    }

    /// Memory of an engine with these options at a full context, with weights that are not compact.
    /// No engine is built.
    pub fn expected(config: &LmConfig, options: &EngineOptions) -> Self {
        let len = options.max_len.min(config.max_context());
        let threads = options.threads.max(1);
        let rounded = reads_rounded(options.weights);
        let ropes = [Some(&config.rope), config.local_rope.as_ref()];
        let dims: usize = ropes.into_iter().flatten().map(|rope| rope.dims).sum();
        let rope = len * dims * size_of::<f32>();
        let attention = AttentionScratch::bytes_at(len, config.head_dim)
            - AttentionScratch::bytes_at(0, config.head_dim);
        Self {
            weights: Weights::bytes_for(config, options.weights, false),
            cache: CacheShape::new(config, len, options.kv).bytes(len),
            scratch: Scratch::new(config, threads, rounded).bytes() + threads * attention + rope,
        }
    }

    /// Size of the weights in bytes if all matrices are [compact](crate::Compact): a lower bound
    /// for f32 and bf16.
    pub fn compact_weights(config: &LmConfig, weights: WeightType) -> usize {
        Weights::bytes_for(config, weights, true)
    }
}

/// Packed weights of a model, without an engine. A drafter that serves several targets keeps one
/// such set for each of them. A clone shares the weights. Engines built with it share them too,
/// until they load others.
#[derive(Clone)]
pub struct PackedWeights(Arc<Weights>);

impl PackedWeights {
    /// Packs the weights of a source as an engine with these options would, on as many threads.
    /// Only a few rows per thread are in f32 at a time.
    ///
    /// # Errors
    /// Those of the source; [`LmError::Kernels`] and [`LmError::Threads`] as for an engine.
    pub fn new(source: &dyn TensorSource, options: &EngineOptions) -> Result<Self, LmError> {
        source.check()?;
        let kernels = Kernels::select(options.kernels)?;
        let pool = pool(options)?;
        let (config, kind) = (source.config(), options.weights);
        let compact = Weights::choose(options.compact, kernels, config, kind);
        let weights = Weights::of(kind, compact, source, &pool)?;
        Ok(Self(Arc::new(weights)))
    }

    /// These weights with other last blocks, packed on the threads of `options`. The blocks below
    /// are shared, not copied.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] for a tail of another model; a tail that lacks tensors.
    pub fn with_tail(&self, tail: &Tail, options: &EngineOptions) -> Result<Self, LmError> {
        let weights = self.0.with_tail(tail, &*pool(options)?)?;
        Ok(Self(Arc::new(weights)))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// A handle that does not keep the weights alive.
    pub fn downgrade(&self) -> WeakWeights {
        WeakWeights(Arc::downgrade(&self.0))
    }
}

/// A weak reference to [`PackedWeights`].
#[derive(Clone)]
pub struct WeakWeights(Weak<Weights>);

impl WeakWeights {
    /// The weights, if any owner still holds them.
    pub fn upgrade(&self) -> Option<PackedWeights> {
        self.0.upgrade().map(PackedWeights)
    }
}

fn pool(options: &EngineOptions) -> Result<Arc<Pool>, LmError> {
    let threads = options.threads.max(1);
    Pool::shared(threads).map_err(|source| LmError::Threads { threads, source })
}

/// Number of positions for which rotary angles are computed at first.
const FIRST_POSITIONS: usize = 512;

/// A decoder on the CPU. It reads its packed weights once for all tokens of a call.
///
/// # Invariants
/// - **Batch invariance**: the logits of a position are bit-identical whatever number of tokens it
///   was computed with, wherever the KV cache was truncated before, and whatever the number of
///   threads. Every output element is one chain of multiply-adds in a fixed order; tiles and
///   threads only decide which chains run side by side. Greedy speculative output therefore equals
///   plain decoding token for token. Instruction sets and weight types do differ from each other.
/// - After the first forward with its number of logits, a forward allocates only what a longer
///   context needs: a segment of the KV cache every 256 tokens, and larger rotary tables and
///   buffers of scores each time that the context doubles.
///
/// ```
/// use cpu_engine::{CpuEngine, EngineOptions};
/// use lm::{LanguageModel, LmConfig, random_checkpoint};
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
    weights: Arc<Weights>,
    rope: RotaryTables,
    /// Number of positions of `rope`.
    positions: usize,
    executor: Executor,
    cache: Cache,
    scratch: Scratch,
    len: usize,
    max_len: usize,
    /// The final hidden state of the last pass, `[hidden_size]`; empty if it computed no logits.
    state: Vec<f32>,
    /// Kept input states of a block, if any are kept.
    states: Option<States>,
    /// Alternatives that the last pass scored; empty once the cache has changed. Their keys and
    /// values are in the cache from its length on.
    scored: Vec<Run>,
}

impl CpuEngine {
    /// Packs the weights of a model, from a checkpoint in memory or directly from its files.
    ///
    /// # Errors
    /// Those of the source; [`LmError::Kernels`] if the processor lacks the requested instruction
    /// set; [`LmError::Threads`] if the helper threads cannot be started.
    pub fn new(source: &dyn TensorSource, options: EngineOptions) -> Result<Self, LmError> {
        Self::with_weights(PackedWeights::new(source, &options)?, options)
    }

    /// An engine with random weights, which are packed as they are drawn. It serves to time a
    /// shape.
    ///
    /// # Errors
    /// As [`CpuEngine::new`].
    pub fn with_random_weights(
        config: &LmConfig,
        options: EngineOptions,
        seed: u64,
    ) -> Result<Self, LmError> {
        Self::new(&RandomWeights::new(config, seed), options)
    }

    /// An engine that shares these weights with their other owners.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] if the options ask for another storage; else as [`CpuEngine::new`].
    pub fn with_weights(packed: PackedWeights, options: EngineOptions) -> Result<Self, LmError> {
        let PackedWeights(weights) = packed;
        let (config, kind) = (&weights.config, weights.kind);
        if kind != options.weights {
            return Err(LmError::OtherModel);
        }
        let kernels = Kernels::select(options.kernels)?;
        let pool = pool(&options)?;
        let max_len = options.max_len.min(config.max_context());
        let rounded = reads_rounded(kind);
        let positions = max_len.min(FIRST_POSITIONS);
        Ok(Self {
            rope: RotaryTables::of_positions(config, max_len, positions),
            positions,
            cache: Cache::new(config, max_len, options.kv),
            scratch: Scratch::new(config, pool.threads(), rounded),
            executor: Executor {
                kernels,
                weights: kernels,
                pool,
            },
            len: 0,
            max_len,
            state: Vec::new(),
            states: None,
            scored: Vec::new(),
            weights,
        })
    }

    /// Replaces the weights by those of a model of the same shape, for example after a training
    /// step. This happens in place unless they are shared. The KV cache is emptied, because its
    /// keys and values belong to the old weights.
    ///
    /// # Errors
    /// Those of the source; [`LmError::OtherModel`] if the configuration differs. The engine is
    /// then unchanged, unless a file could not be read to its end.
    pub fn load_weights(&mut self, source: &dyn TensorSource) -> Result<(), LmError> {
        if *source.config() != self.weights.config {
            return Err(LmError::OtherModel);
        }
        source.check()?;
        self.forget();
        let alone = Arc::get_mut(&mut self.weights).is_some_and(|weights| weights.is_alone());
        if !alone {
            // Other engines use these weights, or may still ask for them.
            let shared = &*self.weights;
            let own = Weights::new(&shared.config, shared.kind, shared.is_compact());
            self.weights = Arc::new(own);
        }
        match Arc::get_mut(&mut self.weights) {
            Some(weights) => weights.load(source, &self.executor.pool),
            None => Ok(()),
        }
    }

    /// Replaces the last blocks and the last norm, for example after a training step on them. The
    /// other blocks stay as they are. The KV cache is emptied.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] for a tail of another model; a tail that lacks tensors. The engine
    /// is then unchanged.
    pub fn load_tail(&mut self, tail: &Tail) -> Result<(), LmError> {
        let weights = self.weights.with_tail(tail, &self.executor.pool)?;
        self.weights = Arc::new(weights);
        self.forget();
        Ok(())
    }

    /// Keeps from now on the residual stream that enters the last `blocks` blocks, `[hidden_size]`
    /// numbers in f32 for every token in the cache. Those blocks can be trained on it without
    /// running the blocks below again. The KV cache is emptied.
    ///
    /// # Errors
    /// [`LmError::Blocks`] for no blocks, or more than there are.
    pub fn keep_states(&mut self, blocks: usize) -> Result<(), LmError> {
        let config = &self.weights.config;
        let first = first_of_last(config, blocks)?;
        self.states = Some(States::entering(first, config.hidden_size));
        self.forget();
        Ok(())
    }

    /// The kept states of a text, `[ids.len(), hidden_size]`; empty if none are kept. States of
    /// tokens in the cache are there already; the others are computed, and the cache then holds
    /// `ids`.
    ///
    /// # Errors
    /// As [`LanguageModel::forward`].
    pub fn states_of(&mut self, ids: &[u32]) -> Result<&[f32], LmError> {
        let Some(states) = &self.states else {
            return Ok(&[]);
        };
        let known = states.common(ids).min(self.len);
        // Before the cache is cut.
        check_call(&ids[known..], known, self.max_len, self.vocab_size())?;
        self.truncate(known);
        self.prefill(&ids[known..])?;
        let states = self.states.as_ref();
        Ok(states.map_or(&[], |states| states.rows(ids.len())))
    }

    /// Exchanges the weights for others of the same shape and type, compact or not; `packed`
    /// receives the ones used so far. Only pointers move. The KV cache is emptied.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] if configuration or type differ. Nothing is changed then.
    pub fn swap_weights(&mut self, packed: &mut PackedWeights) -> Result<(), LmError> {
        let (own, other) = (&self.weights, &packed.0);
        if other.config != own.config || other.kind != own.kind {
            return Err(LmError::OtherModel);
        }
        std::mem::swap(&mut self.weights, &mut packed.0);
        self.forget();
        Ok(())
    }

    /// The weights, for sharing.
    pub fn packed(&self) -> PackedWeights {
        PackedWeights(Arc::clone(&self.weights))
    }

    /// Drops all results of the previous weights.
    fn forget(&mut self) {
        self.truncate(0);
        self.state.clear();
    }

    /// Makes room for a context of `len` tokens, at most [`max_len`](LanguageModel::max_len).
    fn reserve(&mut self, len: usize) {
        self.cache.reserve(len);
        if len > self.positions {
            // Doubled, so that a context that grows token by token costs time proportional to its
            // length.
            self.positions = (2 * self.positions).max(len).min(self.max_len);
            let config = &self.weights.config;
            self.rope = RotaryTables::of_positions(config, self.max_len, self.positions);
        }
        self.scratch.reserve(self.positions);
    }

    /// The present [`Walk`]: the order in which weights are read.
    pub fn walk(&self) -> Walk {
        self.executor.weights.walk
    }

    /// Sets the [`Walk`]. Results do not depend on it.
    pub fn set_walk(&mut self, walk: Walk) {
        self.executor.weights = self.executor.kernels.walking(walk);
    }

    /// True if no other reach of prefetches makes the present walk clearly faster, by a measurement
    /// that takes about a third of the time of [`fastest_walk`](Self::fastest_walk); true for
    /// weights that stay in caches.
    pub fn walk_holds(&self) -> bool {
        walks::holds(&self.weights, &self.executor, self.walk())
    }

    /// The fastest walk over these weights with this instruction set and number of threads, by
    /// measurement: about 100 MB of weights are read some hundred times. `None` if the weights are
    /// so few that they stay in caches.
    pub fn fastest_walk(&self) -> Option<Walk> {
        walks::fastest(&self.weights, &self.executor)
    }

    /// Shape of the model.
    pub fn config(&self) -> &LmConfig {
        &self.weights.config
    }

    /// The kernels in use, never [`KernelChoice::Auto`].
    pub fn kernels(&self) -> KernelChoice {
        self.executor.kernels.choice
    }

    /// True if weights are kept compact: see [`Compact`](crate::Compact).
    pub fn compact(&self) -> bool {
        self.weights.is_compact()
    }

    /// Number of threads of a forward.
    pub fn threads(&self) -> usize {
        self.executor.pool.threads()
    }

    /// Memory at the longest context so far.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse {
            weights: self.weights.bytes(),
            cache: self.cache.bytes(),
            scratch: self.scratch.bytes()
                + self.rope.bytes()
                + self.states.as_ref().map_or(0, States::bytes),
        }
    }

    /// Number of bytes of weights that a forward reads. It bounds the speed if memory does.
    pub fn weight_bytes_per_forward(&self) -> usize {
        self.weights.bytes_per_token()
    }

    /// Runs passes over `ids`, all about as long, and computes as many rows of logits, for the last
    /// tokens, as `logits` has room for. Returns the number of passes.
    fn passes(&mut self, ids: &[u32], logits: &mut [f32]) -> usize {
        let vocab = self.vocab_size();
        let mut unscored = ids.len() - logits.len() / vocab;
        let mut rest = logits;
        let passes = ids.chunks(pass_tokens(ids.len()));
        let count = passes.len();
        for ids in passes {
            let skipped = unscored.min(ids.len());
            let (rows, behind) = rest.split_at_mut((ids.len() - skipped) * vocab);
            self.pass((ids, &[]), rows);
            (rest, unscored) = (behind, unscored - skipped);
        }
        count
    }

    /// Runs one pass over `ids`, of which the last are those of `alternatives`, and computes as many
    /// rows of logits, for the last tokens, as `logits` has room for.
    fn pass(&mut self, (ids, alternatives): (&[u32], &[Run]), logits: &mut [f32]) {
        let beyond: usize = alternatives.iter().map(|run| run.count).sum();
        self.reserve(self.len + ids.len());
        Pass {
            config: &self.weights.config,
            weights: &self.weights,
            executor: &self.executor,
            scratch: &mut self.scratch,
            stretches: &mut [Stretch {
                rope: &self.rope,
                cache: &mut self.cache,
                states: self.states.as_mut(),
                start: self.len,
                count: ids.len(),
                alternatives,
            }],
            count: ids.len(),
        }
        .run(ids, logits);
        self.len += ids.len() - beyond;
        self.scored.clear();
        self.scored.extend(alternatives);
        self.state.clear();
        let config = &self.weights.config;
        let rows = logits.len() / config.vocab_size;
        if let Some(last) = rows.checked_sub(1 + beyond) {
            let state = self.scratch.normed(last, config.hidden_size);
            self.state.extend_from_slice(state);
        }
    }

    /// The forwards of several sequences as one: weights that the engines share are read once for
    /// the tokens of all. `logits` becomes their rows, one sequence after the other, `[tokens of
    /// all, vocab_size]`. The rows, and [`state`](Self::state), have the bits of
    /// [`forward`](LanguageModel::forward) of each engine alone.
    ///
    /// Engines whose weights are not shared run one after the other, as do sequences that do not
    /// fit into one pass. Returns the number of passes.
    ///
    /// # Errors
    /// As [`forward`](LanguageModel::forward) for any of them, and [`LmError::OtherModel`] if their
    /// vocabularies have different sizes. No cache is changed then.
    pub fn forward_together(
        sequences: &mut [(&mut Self, &[u32])],
        logits: &mut Vec<f32>,
    ) -> Result<usize, LmError> {
        let Some(vocab) = sequences.first().map(|(engine, _)| engine.vocab_size()) else {
            logits.clear();
            return Ok(0);
        };
        for (engine, ids) in sequences.iter() {
            check_call(ids, engine.len, engine.max_len, engine.vocab_size())?;
            if engine.vocab_size() != vocab {
                return Err(LmError::OtherModel);
            }
        }
        let tokens: usize = sequences.iter().map(|(_, ids)| ids.len()).sum();
        logits.resize(tokens * vocab, 0.0);
        let (mut rest, mut to, mut passes) = (sequences, &mut logits[..], 0);
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(together(rest));
            let count: usize = now.iter().map(|(_, ids)| ids.len()).sum();
            let (rows, behind) = to.split_at_mut(count * vocab);
            match now {
                [(engine, ids)] => passes += engine.passes(ids, rows),
                _ => {
                    Self::pass_together(now, count, rows);
                    passes += 1;
                }
            }
            (rest, to) = (later, behind);
        }
        Ok(passes)
    }

    /// Runs one pass for sequences that share weights and fit into it.
    fn pass_together(sequences: &mut [(&mut Self, &[u32])], count: usize, logits: &mut [f32]) {
        let ids: Vec<u32> = sequences
            .iter()
            .flat_map(|(_, ids)| *ids)
            .copied()
            .collect();
        let longest = sequences.iter().map(|(engine, ids)| engine.len + ids.len());
        let longest = longest.max().unwrap_or(0);
        for (engine, ids) in sequences.iter_mut() {
            engine.reserve(engine.len + ids.len());
            engine.len += ids.len();
            engine.scored.clear();
        }
        let Some(((lead, first), others)) = sequences.split_first_mut() else {
            return;
        };
        // The activations of all sequences are those of the first engine.
        lead.scratch.reserve(longest);
        let stretch = |rope, cache, states, len: usize, count| Stretch {
            rope,
            cache,
            states,
            start: len - count,
            count,
            alternatives: &[],
        };
        let states = lead.states.as_mut();
        let of_lead = stretch(&lead.rope, &mut lead.cache, states, lead.len, first.len());
        let mut stretches = vec![of_lead];
        stretches.extend(others.iter_mut().map(|(engine, ids)| {
            let states = engine.states.as_mut();
            stretch(
                &engine.rope,
                &mut engine.cache,
                states,
                engine.len,
                ids.len(),
            )
        }));
        Pass {
            config: &lead.weights.config,
            weights: &lead.weights,
            executor: &lead.executor,
            scratch: &mut lead.scratch,
            stretches: &mut stretches,
            count,
        }
        .run(&ids, logits);
        // All tokens are scored; a sequence's state is that of its last token.
        let mut end = 0;
        for i in 0..sequences.len() {
            end += sequences[i].1.len();
            if sequences[i].1.is_empty() {
                continue;
            }
            let mut state = std::mem::take(&mut sequences[i].0.state);
            state.clear();
            let lead = &sequences[0].0;
            let width = lead.weights.config.hidden_size;
            let last = lead.scratch.normed(end - 1, width);
            state.extend_from_slice(last);
            sequences[i].0.state = state;
        }
    }
}

/// Number of these sequences, at least one, that share one pass.
fn together(sequences: &[(&mut CpuEngine, &[u32])]) -> usize {
    let Some((first, _)) = sequences.first() else {
        return 0;
    };
    let mut tokens = 0;
    let fits = |(engine, ids): &&(&mut CpuEngine, &[u32])| {
        tokens += ids.len();
        let same = Arc::ptr_eq(&engine.weights, &first.weights);
        tokens <= PASS_TOKENS && same && engine.kernels() == first.kernels()
    };
    sequences.iter().take_while(fits).count().max(1)
}

/// True if products with these weights read activations narrower than f32.
fn reads_rounded(weights: WeightType) -> bool {
    !matches!(weights, WeightType::F32 | WeightType::F16)
}

/// Number of tokens of each pass but the last, so that all passes are about as long.
fn pass_tokens(count: usize) -> usize {
    count.div_ceil(count.div_ceil(PASS_TOKENS).max(1)).max(1)
}

impl LanguageModel for CpuEngine {
    fn vocab_size(&self) -> usize {
        self.weights.config.vocab_size
    }

    fn len(&self) -> usize {
        self.len
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.scored.clear();
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        check_call(ids, self.len, self.max_len, self.vocab_size())?;
        logits.resize(ids.len() * self.vocab_size(), 0.0);
        self.passes(ids, logits);
        Ok(())
    }

    /// As many as fit into a pass. Kept states are those of tokens in their order, so with them
    /// there are none.
    fn alternatives(&self, tokens: usize) -> usize {
        let room = self.max_len.min(self.len + PASS_TOKENS);
        match self.states {
            Some(_) => 0,
            None => room.saturating_sub(self.len + tokens),
        }
    }

    fn forward_with(
        &mut self,
        ids: &[u32],
        alternatives: &[Alternative<'_>],
        logits: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        if alternatives.is_empty() {
            return self.forward(ids, logits);
        }
        let all: Vec<u32> = ids
            .iter()
            .copied()
            .chain(alternatives.iter().flat_map(|own| own.ids).copied())
            .collect();
        check_call(&all, self.len, self.max_len, self.vocab_size())?;
        let wrong = |own: &Alternative<'_>| own.after > ids.len() || own.ids.is_empty();
        let beyond = all.len() - ids.len();
        if ids.is_empty() || alternatives.iter().any(wrong) || beyond > self.alternatives(ids.len())
        {
            let count = alternatives.len();
            let refused = format!(
                "{count} alternatives of {beyond} tokens to {} tokens cannot be scored",
                ids.len()
            );
            return Err(ModelError::new(refused));
        }
        logits.resize(all.len() * self.vocab_size(), 0.0);
        let runs = alternatives.iter().map(|own| Run {
            position: self.len + own.after,
            count: own.ids.len(),
        });
        let runs: Vec<Run> = runs.collect();
        self.pass((&all, &runs), logits);
        Ok(())
    }

    fn take_alternative(&mut self, alternative: usize, tokens: usize) -> Result<(), ModelError> {
        let run = self.scored.get(alternative).copied();
        let Some(run) = run.filter(|run| tokens <= run.count) else {
            let refused = format!("{tokens} tokens of alternative {alternative} were not scored");
            return Err(ModelError::new(refused));
        };
        let before: usize = self.scored[..alternative].iter().map(|run| run.count).sum();
        self.cache.carry(run, self.len + before);
        self.scored.clear();
        self.len = run.position + tokens;
        Ok(())
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.len, self.max_len, self.vocab_size())?;
        self.passes(ids, &mut []);
        Ok(())
    }

    fn prompt(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        check_call(ids, self.len, self.max_len, self.vocab_size())?;
        logits.resize(ids.len().min(1) * self.vocab_size(), 0.0);
        self.passes(ids, logits);
        Ok(())
    }

    /// Empty after a prefill, before the first forward, and once the weights are others.
    fn state(&self) -> &[f32] {
        &self.state
    }
}
