//! The decode engine as a model of the drafter's or the target's ids.

use std::sync::Once;

use cpu_engine::CpuEngine;
#[cfg(feature = "gpu")]
use gpu_engine::GpuEngine;
#[cfg(feature = "gpu")]
use lm::LmError;
use lm::{Checkpoint, LanguageModel, ModelError, Tail, WeightType, forward_to_inner};
use vocab_align::{TokenId, raw_ids};

use crate::Packed;
use crate::error::{ModelsError, Result};

/// A decode engine, of a drafter or a target.
pub struct Engine(Inner);

/// Implementations of an engine.
pub(crate) enum Inner {
    /// A model on the processor.
    Cpu(Box<CpuEngine>),
    /// A model on a graphics device.
    #[cfg(feature = "gpu")]
    Gpu(Box<GpuEngine>),
    /// Another decode engine.
    Other(Box<dyn LanguageModel + Send>),
}

impl Engine {
    /// Wraps an engine; the first one of a process logs its kind.
    pub(crate) fn new(inner: Inner, weights: WeightType) -> Self {
        announce(&inner, weights);
        Self(inner)
    }

    /// Any engine, for a target.
    pub fn of(engine: Box<dyn LanguageModel + Send>) -> Self {
        Self(Inner::Other(engine))
    }

    fn decoder(&mut self) -> &mut dyn LanguageModel {
        match &mut self.0 {
            Inner::Cpu(engine) => engine.as_mut(),
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine.as_mut(),
            Inner::Other(engine) => engine.as_mut(),
        }
    }

    fn shown(&self) -> &dyn LanguageModel {
        match &self.0 {
            Inner::Cpu(engine) => engine.as_ref(),
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine.as_ref(),
            Inner::Other(engine) => engine.as_ref(),
        }
    }

    /// The engine if it is on the processor.
    fn cpu(&mut self) -> Result<&mut CpuEngine> {
        match &mut self.0 {
            Inner::Cpu(engine) => Ok(engine.as_mut()),
            _ => Err(ModelsError::NoStates),
        }
    }

    /// Replaces the weights after an update of the drafter.
    ///
    /// # Errors
    /// A checkpoint of another shape; an engine without weights, such as that of a recorded target.
    pub fn load_weights(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        match &mut self.0 {
            Inner::Cpu(engine) => engine.load_weights(checkpoint)?,
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => engine.load_weights(checkpoint)?,
            Inner::Other(_) => return Err(ModelsError::NoWeights),
        }
        Ok(())
    }

    /// Replaces the last blocks after an update of them.
    ///
    /// # Errors
    /// Blocks of another model; an engine that is not on the processor.
    pub fn load_tail(&mut self, tail: &Tail) -> Result<()> {
        Ok(self.cpu()?.load_tail(tail)?)
    }

    /// Keeps the input of the first of the last `blocks` blocks: see [`CpuEngine::keep_states`].
    ///
    /// # Errors
    /// More blocks than there are, or 0; an engine that is not on the processor.
    pub fn keep_states(&mut self, blocks: usize) -> Result<()> {
        Ok(self.cpu()?.keep_states(blocks)?)
    }

    /// The kept inputs of that block for the tokens of a text, `[ids.len(), hidden_size]`: see
    /// [`CpuEngine::states_of`].
    ///
    /// # Errors
    /// Errors of a forward; an engine that is not on the processor.
    pub fn states_of(&mut self, ids: &[u32]) -> Result<&[f32]> {
        Ok(self.cpu()?.states_of(ids)?)
    }

    /// The weights, which can be shared.
    ///
    /// # Errors
    /// As [`load_weights`](Self::load_weights).
    pub fn packed(&mut self) -> Result<Packed> {
        match &mut self.0 {
            Inner::Cpu(engine) => Ok(Packed::Cpu(engine.packed())),
            #[cfg(feature = "gpu")]
            Inner::Gpu(engine) => Ok(Packed::Gpu(engine.packed())),
            Inner::Other(_) => Err(ModelsError::NoWeights),
        }
    }

    /// Decodes with other weights from now on; `packed` receives the ones used so far.
    ///
    /// # Errors
    /// Weights of another shape, storage or device; as [`load_weights`](Self::load_weights).
    pub fn swap_weights(&mut self, packed: &mut Packed) -> Result<()> {
        match (&mut self.0, packed) {
            (Inner::Cpu(engine), Packed::Cpu(packed)) => engine.swap_weights(packed)?,
            #[cfg(feature = "gpu")]
            (Inner::Gpu(engine), Packed::Gpu(packed)) => engine.swap_weights(packed)?,
            #[cfg(feature = "gpu")]
            (Inner::Cpu(_) | Inner::Gpu(_), _) => return Err(LmError::OtherModel.into()),
            (Inner::Other(_), _) => return Err(ModelsError::NoWeights),
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
        let ids: Vec<Vec<u32>> = sequences.iter().map(|(_, ids)| raw_ids(ids)).collect();
        let parts = sequences.iter_mut().zip(&ids);
        let parts: Option<Vec<(&mut CpuEngine, &[u32])>> = parts
            .map(|((engine, _), ids)| Some((engine.cpu().ok()?, ids.as_slice())))
            .collect();
        if let Some(mut parts) = parts {
            return Ok(CpuEngine::forward_together(&mut parts, logits)?);
        }
        logits.clear();
        let mut rows = Vec::new();
        for ((engine, _), ids) in sequences.iter_mut().zip(&ids) {
            engine.forward(ids, &mut rows)?;
            logits.append(&mut rows);
        }
        Ok(sequences.len())
    }
}

impl LanguageModel for Engine {
    forward_to_inner!(shown, decoder);
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
