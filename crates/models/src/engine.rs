//! The decode engine as the loop calls it.

use std::sync::Once;

use anyhow::{Result, bail};
use cpu_engine::{CpuEngine, PackedWeights};
use lm::{Checkpoint, DecodeEngine, WeightType};
use spec_decode::{LanguageModel, ModelError};
use thiserror::Error;
use vocab_align::TokenId;

/// The decode engine in either role.
pub struct Engine {
    inner: Inner,
    ids: Vec<u32>,
}

/// Sequences of engines that do not share weights.
#[derive(Debug, Error)]
#[error("this engine takes one sequence at a time")]
struct NotTogether;

/// What computes.
enum Inner {
    /// A model on the processor, whose weights can be replaced.
    Cpu(Box<CpuEngine>),
    /// Anything else that decodes.
    Other(Box<dyn DecodeEngine>),
}

impl Engine {
    /// Wraps an engine; the first one of a process says what it runs on.
    pub(crate) fn new(inner: CpuEngine, weights: WeightType) -> Self {
        announce(&inner, weights);
        Self {
            inner: Inner::Cpu(Box::new(inner)),
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

    /// The engine behind the decode seam.
    pub fn decoder(&mut self) -> &mut dyn DecodeEngine {
        match &mut self.inner {
            Inner::Cpu(engine) => engine.as_mut(),
            Inner::Other(engine) => engine.as_mut(),
        }
    }

    fn shown(&self) -> &dyn DecodeEngine {
        match &self.inner {
            Inner::Cpu(engine) => engine.as_ref(),
            Inner::Other(engine) => engine.as_ref(),
        }
    }

    fn cpu(&mut self) -> Result<&mut CpuEngine> {
        match &mut self.inner {
            Inner::Cpu(engine) => Ok(engine.as_mut()),
            Inner::Other(_) => bail!("this engine has no weights that could be replaced"),
        }
    }

    /// Replaces the weights after an update of the drafter.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    pub fn load_weights(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        Ok(self.cpu()?.load_weights(checkpoint)?)
    }

    /// The weights, to be shared.
    ///
    /// # Errors
    /// An engine without weights of its own, as that of a recorded target.
    pub fn packed(&mut self) -> Result<PackedWeights> {
        Ok(self.cpu()?.packed())
    }

    /// The forwards of several sequences as one ([`CpuEngine::forward_together`]): `logits` becomes
    /// their rows, one sequence after the other.
    ///
    /// # Errors
    /// Those of the engines; no cache is changed then. Engines that are no models on the processor.
    pub fn forward_together<I: TokenId>(
        sequences: &mut [(&mut Self, &[I])],
        logits: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        for (engine, ids) in sequences.iter_mut() {
            engine.ids.clear();
            engine.ids.extend(ids.iter().map(|id| id.get()));
        }
        let mut parts: Vec<(&mut CpuEngine, &[u32])> = sequences
            .iter_mut()
            .map(|(engine, _)| {
                let Self { inner, ids } = &mut **engine;
                match inner {
                    Inner::Cpu(inner) => Ok((inner.as_mut(), ids.as_slice())),
                    Inner::Other(_) => Err(ModelError::new(NotTogether)),
                }
            })
            .collect::<Result<_, _>>()?;
        CpuEngine::forward_together(&mut parts, logits).map_err(ModelError::new)
    }

    /// Decodes with other weights from now on; `packed` receives the ones used so far.
    ///
    /// # Errors
    /// Weights of another shape or storage.
    pub fn swap_weights(&mut self, packed: &mut PackedWeights) -> Result<()> {
        Ok(self.cpu()?.swap_weights(packed)?)
    }
}

impl Engine {
    /// The ids without their role, in a buffer that is used again.
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
}

/// Says which kernels run on what, with the first engine of the process.
fn announce(engine: &CpuEngine, weights: WeightType) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::info!(
            kernels = %engine.kernels(),
            %weights,
            compact = engine.compact(),
            threads = engine.threads(),
            "decoding on the CPU"
        );
    });
}
