//! The GPU engine, which implements the trait of decoding engines.

mod logits;
mod steps;

use std::cell::Cell;
use std::sync::{Arc, Weak};

use cubecl::bytes::Bytes;
use cubecl::prelude::*;
use lm::{
    DeviceLogits, KvType, LanguageModel, LmConfig, LmError, ModelError, TensorSource, WeightType,
    check_call,
};

use crate::cache::{Cache, PARAMS, PASS, SCORED, Scratch};
use crate::device::{Gpu, GpuError};
use crate::forward::{Pass, ROWS, rows_for};
use crate::kernels::place::BLOCK;
use crate::recording::Recordings;
use crate::weights::Weights;

pub use steps::{PassTime, StepTime};

/// Options of a [`GpuEngine`].
#[derive(Clone)]
pub struct GpuOptions {
    /// Device that computes.
    pub gpu: Gpu,
    /// Storage of the weights.
    pub weights: WeightType,
    /// Storage of the KV cache.
    pub kv: KvType,
    /// Largest number of tokens in the KV cache; the model's `max_context` if that is less. Memory
    /// is taken as tokens come. Rotations that depend on the length of the context use this length.
    pub max_len: usize,
    /// Number of threads that pack weights.
    pub threads: usize,
    /// True if passes of up to 36 tokens are recorded once and replayed, which saves calls of the
    /// driver. The results are the same. The environment variable `OMNIDRAFT_GPU_REPLAY` (0 or 1)
    /// sets the default; without it, hardware devices replay and software devices do not.
    pub replay: bool,
}

impl GpuOptions {
    /// Options with weights in this storage, keys and values in f32, the longest context of the
    /// model, one thread, and the default of [`GpuOptions::replay`].
    pub fn new(gpu: Gpu, weights: WeightType) -> Self {
        let replay = match std::env::var("OMNIDRAFT_GPU_REPLAY").as_deref() {
            Ok("0") => false,
            Ok("1") => true,
            // On software devices the threads of the driver cost more than calls do.
            _ => !gpu.is_software(),
        };
        Self {
            weights,
            kv: KvType::F32,
            max_len: usize::MAX,
            threads: 1,
            replay,
            gpu,
        }
    }
}

/// Weights of a model on a device, without an engine. A clone shares the weights. Engines built
/// with it share them too, until they load others.
#[derive(Clone)]
pub struct GpuWeights(Arc<Weights>);

impl GpuWeights {
    /// Packs the weights of a source and uploads them to the device.
    ///
    /// # Errors
    /// Those of the source, and [`GpuError::Buffer`] for a model with a matrix larger than the
    /// device can bind.
    pub fn new(source: &dyn TensorSource, options: &GpuOptions) -> Result<Self, LmError> {
        source.check()?;
        let (gpu, kind) = (&options.gpu, options.weights);
        let weights = Weights::load(gpu, source, kind, options.threads, None)?;
        Ok(Self(Arc::new(weights)))
    }

    /// Size on the device in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// A weak reference to the weights.
    pub fn downgrade(&self) -> WeakGpuWeights {
        WeakGpuWeights(Arc::downgrade(&self.0))
    }
}

/// A weak reference to [`GpuWeights`].
#[derive(Clone)]
pub struct WeakGpuWeights(Weak<Weights>);

impl WeakGpuWeights {
    /// The weights, if any owner still holds them.
    pub fn upgrade(&self) -> Option<GpuWeights> {
        self.0.upgrade().map(GpuWeights)
    }
}

/// A decoder on a graphics device.
///
/// # Invariants
/// - **Batch invariance**: on one device, the logits of a position are bit-identical whatever
///   number of tokens it was computed with and wherever the KV cache was truncated before. Greedy
///   speculative output therefore equals plain decoding token for token. Devices and weight types
///   differ from each other.
/// - Activations are f32 throughout, also for narrow weights, unlike in the CPU engine. Integer
///   weights are the same numbers as there.
pub struct GpuEngine {
    /// The first field, so that it is dropped before the buffers that it names.
    recordings: Recordings,
    kv: KvType,
    threads: usize,
    weights: Arc<Weights>,
    cache: Cache,
    scratch: Scratch,
    len: usize,
    max_len: usize,
    /// Number of rows of logits of the last pass on the device.
    scored: usize,
    /// Number of bytes copied to the host.
    fetched: u64,
    /// Final state of the last scored token, or empty.
    state: Vec<f32>,
    replay: bool,
}

impl GpuEngine {
    /// Packs the weights of a model and uploads them to the device.
    ///
    /// # Errors
    /// As [`GpuWeights::new`] and [`GpuEngine::with_weights`].
    pub fn new(source: &dyn TensorSource, options: GpuOptions) -> Result<Self, LmError> {
        Self::with_weights(GpuWeights::new(source, &options)?, options)
    }

    /// An engine that shares these weights with their other owners.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] if the options ask for another storage; [`GpuError::Type`] if the
    /// device does not compute in the type of the cache; [`GpuError::Buffer`] for a vocabulary
    /// whose logits exceed the largest buffer.
    pub fn with_weights(packed: GpuWeights, options: GpuOptions) -> Result<Self, LmError> {
        let GpuWeights(weights) = packed;
        if weights.kind != options.weights {
            return Err(LmError::OtherModel);
        }
        let (gpu, config) = (&weights.gpu, &weights.config);
        let narrow = half::f16::elem_type_native();
        let has_f16 = gpu.run(|client| client.properties().supports_type(narrow));
        if options.kv == KvType::F16 && !has_f16 {
            return Err(GpuError::Type("f16").into());
        }
        let max_len = options.max_len.min(config.max_context());
        Ok(Self {
            cache: Cache::new(gpu, config, options.kv, max_len)?,
            scratch: Scratch::new(gpu, config)?,
            kv: options.kv,
            threads: options.threads,
            len: 0,
            max_len,
            scored: 0,
            fetched: 0,
            state: Vec::new(),
            replay: options.replay,
            recordings: Recordings::default(),
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
        let alone = Arc::get_mut(&mut self.weights).is_some();
        let now = &*self.weights;
        let old = alone.then_some(now);
        let loaded = Weights::load(&now.gpu, source, now.kind, self.threads, old)?;
        self.weights = Arc::new(loaded);
        Ok(())
    }

    /// Exchanges the weights for others of the same shape and type on the same device; `packed`
    /// receives the ones used so far. Only pointers move. The KV cache is emptied.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] if configuration, type or device differ. Nothing is changed then.
    pub fn swap_weights(&mut self, packed: &mut GpuWeights) -> Result<(), LmError> {
        let (own, other) = (&self.weights, &packed.0);
        // The cache's buffers are on the engine's device.
        let same_device = other.gpu.is(&own.gpu);
        if other.config != own.config || other.kind != own.kind || !same_device {
            return Err(LmError::OtherModel);
        }
        std::mem::swap(&mut self.weights, &mut packed.0);
        self.forget();
        Ok(())
    }

    /// The weights, for sharing.
    pub fn packed(&self) -> GpuWeights {
        GpuWeights(Arc::clone(&self.weights))
    }

    /// Compiles the kernels for every number of rows, so that no later call waits for it: on a GPU
    /// the first pass with a new number of rows takes as long as dozens of passes. Empties the
    /// cache.
    ///
    /// # Errors
    /// A device that fails.
    pub fn prepare(&mut self) -> Result<(), LmError> {
        let mut best = Vec::new();
        for rows in ROWS {
            self.len = 0;
            self.score(&vec![0; rows.min(self.max_len)])?;
            self.best(&mut best)?;
        }
        (self.len, self.scored) = (0, 0);
        Ok(())
    }

    /// Turns recording and replaying of passes on or off.
    pub fn set_replay(&mut self, replay: bool) {
        self.replay = replay;
    }

    /// Shape of the model.
    pub fn config(&self) -> &LmConfig {
        &self.weights.config
    }

    /// Device that computes.
    pub fn gpu(&self) -> &Gpu {
        &self.weights.gpu
    }

    /// Sizes on the device in bytes: weights, keys and values at their largest so far, activations.
    /// Rotary tables and the buffers of attention are not counted.
    pub fn memory(&self) -> [usize; 3] {
        [
            self.weights.bytes,
            self.cache.bytes(&self.weights.config),
            self.scratch.bytes(),
        ]
    }

    /// Number of bytes of weights that a forward reads. It bounds the speed if memory does.
    pub fn weight_bytes_per_forward(&self) -> usize {
        self.weights.per_forward
    }

    /// Drops all results of the previous weights.
    fn forget(&mut self) {
        (self.len, self.scored) = (0, 0);
        self.state.clear();
        self.recordings.clear();
    }

    /// Launches one pass, and the computation of its logits if it is `scored`.
    fn pass(&mut self, ids: &[u32], scored: bool) -> Result<(), LmError> {
        let len = self.len + ids.len();
        self.reserve(len)?;
        let mut params = vec![0_u32; PARAMS];
        params[0] = self.len as u32;
        params[1] = ids.len() as u32;
        params[2..2 + ids.len()].copy_from_slice(ids);
        let blocks = len.div_ceil(BLOCK);
        // One recording serves every position in some number of blocks, and every number of tokens
        // of some number of rows.
        let recorded = self.replay && ids.len() <= SCORED;
        let (blocks, count) = match recorded {
            true => {
                let blocks = blocks.next_power_of_two().min(self.cache.blocks());
                (blocks, rows_for(ids.len()))
            }
            false => (blocks, ids.len()),
        };
        let mut recordings = std::mem::take(&mut self.recordings);
        let done = self.weights.gpu.run(|client| {
            client.write(&self.scratch.params, Bytes::from_elems(params));
            let pass = self.whole_pass(client, blocks, count);
            match recorded {
                true => recordings.run((count, blocks, scored), client, || pass.run(scored)),
                false => {
                    pass.run(scored);
                    Ok(())
                }
            }
        });
        self.recordings = recordings;
        done?;
        self.len = len;
        Ok(())
    }

    /// All launches of a pass over so many blocks of the cache, with so many rows.
    fn whole_pass<'a>(&'a self, client: &'a Client, blocks: usize, count: usize) -> Pass<'a> {
        Pass {
            client,
            config: &self.weights.config,
            weights: &self.weights,
            scratch: &self.scratch,
            cache: &self.cache,
            kv: self.kv,
            nothing: self.weights.gpu.nothing(),
            blocks,
            count,
            cubes: None,
            only: None,
            launches: Cell::new(0),
        }
    }

    /// Makes room for a context of `len` tokens.
    fn reserve(&mut self, len: usize) -> Result<(), GpuError> {
        let capacity = self.cache.capacity;
        self.cache
            .reserve(&self.weights.gpu, &self.weights.config, len, self.max_len)?;
        if self.cache.capacity != capacity {
            // Recordings name the buffers that are replaced here.
            self.recordings.clear();
        }
        Ok(())
    }
}

impl LanguageModel for GpuEngine {
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
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let vocab = self.weights.config.vocab_size;
        check_call(ids, self.len, self.max_len, vocab)?;
        logits.resize(ids.len() * vocab, 0.0);
        let before = self.len;
        for (ids, rows) in ids.chunks(SCORED).zip(logits.chunks_mut(SCORED * vocab)) {
            let done = self.score(ids);
            let done = done.and_then(|()| Ok(self.fetch(0..ids.len(), rows)?));
            if done.is_err() {
                self.len = before;
                return done;
            }
        }
        Ok(())
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.len, self.max_len, self.weights.config.vocab_size)?;
        self.state.clear();
        self.scored = 0;
        let mut rest = ids;
        while !rest.is_empty() {
            // The number of rows that there is room for may shrink as the context grows.
            let len = self.len + rest.len().min(PASS);
            self.reserve(len)?;
            let (now, later) = rest.split_at(rest.len().min(self.cache.rows));
            self.pass(now, false)?;
            rest = later;
        }
        Ok(())
    }

    fn state(&self) -> &[f32] {
        &self.state
    }

    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        match tokens <= SCORED {
            true => Some(self),
            false => None,
        }
    }
}
