//! The decode engine as a model of the drafter's or the target's ids.

use std::ops::Range;
use std::sync::Once;

use anyhow::{Result, bail};
use cpu_engine::CpuEngine;
#[cfg(feature = "gpu")]
use gpu_engine::GpuEngine;
#[cfg(feature = "gpu")]
use lm::LmError;
use lm::{Checkpoint, DecodeEngine, DeviceLogits, Tail, WeightType};
use spec_decode::{LanguageModel, ModelError, OnDevice};
use vocab_align::TokenId;

use crate::Packed;

/// The decode engine in either role.
pub struct Engine {
    inner: Inner,
    ids: Vec<u32>,
}

/// Message about engines that only replay.
const NO_WEIGHTS: &str = "this engine has no weights that could be replaced";
/// Message about engines on other devices than the processor.
const NO_STATES: &str = "this engine does not keep what enters a block";

/// Implementations of an engine.
pub(crate) enum Inner {
    /// A model on the processor.
    Cpu(Box<CpuEngine>),
    /// A model on a graphics device.
    #[cfg(feature = "gpu")]
    Gpu(Box<GpuEngine>),
    /// Another decode engine.
    Other(Box<dyn DecodeEngine>),
}

impl Engine {
    /// Wraps an engine; the first one of a process logs its kind.
    pub(crate) fn new(inner: Inner, weights: WeightType) -> Self {
        announce(&inner, weights);
        Self {
            inner,
            ids: Vec::new(),
        }
    }

    /// Any engine, for a target.
    pub fn of(engine: Box<dyn DecodeEngine>) -> Self {
        Self {
            inner: Inner::Other(engine),
            ids: Vec::new(),
        }
    }

    /// The engine as a [`DecodeEngine`].
    pub fn decoder(&mut self) -> &mut dyn DecodeEngine {
        match &mut self.inner {
            Inner::Cpu(engine) => engine.as_mut(),
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine.as_mut(),
            Inner::Other(engine) => engine.as_mut(),
        }
    }

    /// Unwraps the engine.
    pub fn into_decoder(self) -> Box<dyn DecodeEngine> {
        match self.inner {
            Inner::Cpu(engine) => engine,
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine,
            Inner::Other(engine) => engine,
        }
    }

    fn shown(&self) -> &dyn DecodeEngine {
        match &self.inner {
            Inner::Cpu(engine) => engine.as_ref(),
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine.as_ref(),
            Inner::Other(engine) => engine.as_ref(),
        }
    }

    /// Replaces the weights after an update of the drafter.
    ///
    /// # Errors
    /// A checkpoint of another shape; an engine without weights, such as that of a recorded target.
    pub fn load_weights(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        match &mut self.inner {
            Inner::Cpu(engine) => engine.load_weights(checkpoint)?,
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine.load_weights(checkpoint)?,
            Inner::Other(_) => bail!(NO_WEIGHTS),
        }
        Ok(())
    }

    /// Replaces the last blocks after an update of them.
    ///
    /// # Errors
    /// Blocks of another model; an engine that is not on the processor.
    pub fn load_tail(&mut self, tail: &Tail) -> Result<()> {
        match &mut self.inner {
            Inner::Cpu(engine) => Ok(engine.load_tail(tail)?),
            _ => bail!(NO_STATES),
        }
    }

    /// Keeps the inputs of the last `blocks` blocks from now on: see [`CpuEngine::keep_states`].
    ///
    /// # Errors
    /// More blocks than there are, or 0; an engine that is not on the processor.
    pub fn keep_states(&mut self, blocks: usize) -> Result<()> {
        match &mut self.inner {
            Inner::Cpu(engine) => Ok(engine.keep_states(blocks)?),
            _ => bail!(NO_STATES),
        }
    }

    /// The inputs of those blocks for the tokens of a text, `[ids.len(), hidden_size]`: see
    /// [`CpuEngine::states_of`].
    ///
    /// # Errors
    /// Errors of a forward; an engine that is not on the processor.
    pub fn states_of(&mut self, ids: &[u32]) -> Result<&[f32]> {
        match &mut self.inner {
            Inner::Cpu(engine) => Ok(engine.states_of(ids)?),
            _ => bail!(NO_STATES),
        }
    }

    /// The weights, which can be shared.
    ///
    /// # Errors
    /// As [`load_weights`](Self::load_weights).
    pub fn packed(&mut self) -> Result<Packed> {
        match &mut self.inner {
            Inner::Cpu(engine) => Ok(Packed::Cpu(engine.packed())),
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => Ok(Packed::Gpu(engine.packed())),
            Inner::Other(_) => bail!(NO_WEIGHTS),
        }
    }

    /// Decodes with other weights from now on; `packed` receives the ones used so far.
    ///
    /// # Errors
    /// Weights of another shape, storage or device; as [`load_weights`](Self::load_weights).
    pub fn swap_weights(&mut self, packed: &mut Packed) -> Result<()> {
        match (&mut self.inner, packed) {
            (Inner::Cpu(engine), Packed::Cpu(packed)) => engine.swap_weights(packed)?,
            #[cfg(feature = "gpu")]
            (Inner::Gpu(engine), Packed::Gpu(packed)) => engine.swap_weights(packed)?,
            #[cfg(feature = "gpu")]
            (Inner::Cpu(_) | Inner::Gpu(_), _) => return Err(LmError::OtherModel.into()),
            (Inner::Other(_), _) => bail!(NO_WEIGHTS),
        }
        Ok(())
    }

    /// Forwards of several sequences. `logits` receives their rows, one sequence after the other,
    /// bit-identical to separate forwards. On the processor they are a single forward
    /// ([`CpuEngine::forward_together`]), so that shared weights are read once; on other devices
    /// they run one after the other. Returns the number of passes over the weights.
    ///
    /// # Errors
    /// Errors of the engines.
    pub fn forward_together<I: TokenId>(
        sequences: &mut [(&mut Self, &[I])],
        logits: &mut Vec<f32>,
    ) -> Result<usize, ModelError> {
        for (engine, ids) in sequences.iter_mut() {
            engine.ids.clear();
            engine.ids.extend(ids.iter().map(|id| id.get()));
        }
        let parts: Option<Vec<(&mut CpuEngine, &[u32])>> = sequences
            .iter_mut()
            .map(|(engine, _)| {
                let Self { inner, ids } = &mut **engine;
                match inner {
                    Inner::Cpu(inner) => Some((inner.as_mut(), ids.as_slice())),
                    _ => None,
                }
            })
            .collect();
        if let Some(mut parts) = parts {
            return CpuEngine::forward_together(&mut parts, logits).map_err(ModelError::new);
        }
        logits.clear();
        let mut rows = Vec::new();
        for (engine, ids) in sequences.iter_mut() {
            LanguageModel::<I>::forward(&mut **engine, ids, &mut rows)?;
            logits.append(&mut rows);
        }
        Ok(sequences.len())
    }
}

impl Engine {
    /// The raw ids, in a reused buffer.
    fn plain<I: TokenId>(&mut self, ids: &[I]) -> Vec<u32> {
        let mut plain = std::mem::take(&mut self.ids);
        plain.clear();
        plain.extend(ids.iter().map(|id| id.get()));
        plain
    }
}

impl<I: TokenId> LanguageModel<I> for Engine {
    fn vocab_size(&self) -> usize {
        self.shown().vocab_size()
    }

    fn len(&self) -> usize {
        self.shown().len()
    }

    fn max_len(&self) -> usize {
        self.shown().max_len()
    }

    fn truncate(&mut self, len: usize) {
        self.decoder().truncate(len);
    }

    fn forward(&mut self, ids: &[I], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let ids = self.plain(ids);
        let done = self.decoder().forward(&ids, logits);
        self.ids = ids;
        done.map_err(ModelError::new)
    }

    fn state(&self) -> &[f32] {
        self.shown().last_state()
    }

    fn prefill(&mut self, ids: &[I]) -> Result<(), ModelError> {
        let ids = self.plain(ids);
        let done = self.decoder().append(&ids);
        self.ids = ids;
        done.map_err(ModelError::new)
    }

    fn on_device(&mut self, tokens: usize) -> Option<&mut dyn OnDevice<I>> {
        match self.decoder().device_logits(tokens) {
            Some(_) => Some(self),
            None => None,
        }
    }
}

impl Engine {
    fn logits(&mut self, tokens: usize) -> Result<&mut dyn DeviceLogits, ModelError> {
        let none = || ModelError::new("this engine has its logits in memory");
        self.decoder().device_logits(tokens).ok_or_else(none)
    }
}

impl<I: TokenId> OnDevice<I> for Engine {
    fn score(&mut self, ids: &[I]) -> Result<(), ModelError> {
        let ids = self.plain(ids);
        let done = self.logits(ids.len()).map(|logits| logits.score(&ids));
        self.ids = ids;
        done?.map_err(ModelError::new)
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        self.logits(0)?.best(columns).map_err(ModelError::new)
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.logits(0)?.rows(rows, logits).map_err(ModelError::new)
    }
}

/// Logs the device and kernels with the first engine of the process.
fn announce(engine: &Inner, weights: WeightType) {
    static SAID: Once = Once::new();
    SAID.call_once(|| match engine {
        Inner::Cpu(engine) => tracing::info!(
            kernels = %engine.kernels(),
            %weights,
            compact = engine.compact(),
            threads = engine.threads(),
            walk = %engine.walk(),
            "decoding on the CPU"
        ),
        #[cfg(feature = "gpu")]
        Inner::Gpu(engine) => tracing::info!(
            adapter = engine.gpu().name(),
            software = engine.gpu().is_software(),
            %weights,
            "decoding on a graphics device"
        ),
        Inner::Other(_) => {}
    });
}
