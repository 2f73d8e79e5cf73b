//! The decode engine as the loop calls it.

use std::sync::Once;

use anyhow::Result;
use cpu_engine::{CpuEngine, PackedWeights};
use lm::{Checkpoint, DecodeEngine, WeightType};
use spec_decode::{LanguageModel, ModelError};
use vocab_align::TokenId;

/// The decode engine in either role.
pub struct Engine {
    inner: CpuEngine,
    ids: Vec<u32>,
}

impl Engine {
    /// Wraps an engine; the first one of a process says what it runs on.
    pub(crate) fn new(inner: CpuEngine, weights: WeightType) -> Self {
        announce(&inner, weights);
        Self {
            inner,
            ids: Vec::new(),
        }
    }

    /// The engine itself.
    pub(crate) fn into_inner(self) -> CpuEngine {
        self.inner
    }

    /// Replaces the weights after an update of the drafter.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    pub fn load_weights(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        Ok(self.inner.load_weights(checkpoint)?)
    }

    /// The weights, to be shared.
    pub fn packed(&self) -> PackedWeights {
        self.inner.packed()
    }

    /// The forwards of several sequences as one ([`CpuEngine::forward_together`]): `logits` becomes
    /// their rows, one sequence after the other.
    ///
    /// # Errors
    /// Those of the engines; no cache is changed then.
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
                (inner, ids.as_slice())
            })
            .collect();
        CpuEngine::forward_together(&mut parts, logits).map_err(ModelError::new)
    }

    /// Decodes with other weights from now on; `packed` receives the ones used so far.
    ///
    /// # Errors
    /// Weights of another shape or storage.
    pub fn swap_weights(&mut self, packed: &mut PackedWeights) -> Result<()> {
        Ok(self.inner.swap_weights(packed)?)
    }
}

impl<I: TokenId> LanguageModel<I> for Engine {
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    fn truncate(&mut self, len: usize) {
        self.inner.truncate(len);
    }

    fn forward(&mut self, ids: &[I], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.ids.clear();
        self.ids.extend(ids.iter().map(|id| id.get()));
        self.inner
            .forward(&self.ids, logits)
            .map_err(ModelError::new)
    }

    fn state(&self) -> &[f32] {
        self.inner.last_state()
    }

    fn prefill(&mut self, ids: &[I]) -> Result<(), ModelError> {
        self.ids.clear();
        self.ids.extend(ids.iter().map(|id| id.get()));
        self.inner.append(&self.ids).map_err(ModelError::new)
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
