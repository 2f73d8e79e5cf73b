//! Backends of a training step: the host trainer, or Burn on another device.

use std::borrow::Cow;

use lm::host::Products;
use lm::{AdamW, Checkpoint, LmError};

#[cfg(feature = "wgpu")]
use crate::device::{self, OnDevice};
use crate::{NextToken, Trainer};

/// Device on which a model is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Device {
    /// The processor of this machine.
    #[default]
    Cpu,
    /// The first GPU, through Vulkan (Metal on a Mac).
    #[cfg(feature = "wgpu")]
    Wgpu,
}

/// A model with its optimiser, trained on next-token prediction on one of the devices.
pub enum Backend {
    /// Training on the processor.
    Host(Box<Trainer>),
    /// Training on a graphics device.
    #[cfg(feature = "wgpu")]
    Burn(Box<OnDevice>),
}

/// Results of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Mean next-token cross entropy, in nats per token.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
}

/// Next-token cross entropy of some tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Sum over the tokens, in nats.
    pub sum: f64,
    /// Number of tokens.
    pub tokens: usize,
}

impl CrossEntropy {
    /// Mean over the tokens, in nats per token; NaN without tokens.
    pub fn mean(self) -> f64 {
        self.sum / self.tokens as f64
    }
}

impl Backend {
    /// Starts from weights and an optimiser. `products` is the number format of matrix products on
    /// the processor; other devices use f32.
    ///
    /// # Errors
    /// Missing or misshapen tensors; moments of another model; no such device.
    pub fn new(
        checkpoint: &Checkpoint,
        optimizer: AdamW,
        device: Device,
        products: Products,
    ) -> Result<Self, LmError> {
        Ok(match device {
            Device::Cpu => {
                let trainer = Trainer::resume(checkpoint, optimizer)?;
                Self::Host(Box::new(trainer.with_products(products)))
            }
            #[cfg(feature = "wgpu")]
            Device::Wgpu => {
                let model = OnDevice::new(checkpoint, &optimizer, device::open()?)?;
                Self::Burn(Box::new(model))
            }
        })
    }

    /// One step of next-token prediction on sequences of one length.
    ///
    /// # Errors
    /// Those of [`Trainer::accumulate`] and [`Trainer::step`]; errors of the device.
    pub fn step(&mut self, sequences: &[Vec<u32>], lr: f64) -> Result<Step, LmError> {
        match self {
            Self::Host(trainer) => {
                let inputs: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
                let graded = trainer.accumulate(&inputs, &NextToken::new(&inputs))?;
                let grad_norm = trainer.step(lr)?;
                let loss = graded.terms[0];
                Ok(Step { loss, grad_norm })
            }
            #[cfg(feature = "wgpu")]
            Self::Burn(on) => on.step(sequences, lr),
        }
    }

    /// Next-token cross entropy of sequences, of which `batch` (at least one) are evaluated at a
    /// time.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn evaluate(
        &mut self,
        sequences: &[Vec<u32>],
        batch: usize,
    ) -> Result<CrossEntropy, LmError> {
        let mut all = CrossEntropy {
            sum: 0.0,
            tokens: 0,
        };
        for batch in sequences.chunks(batch.max(1)) {
            let of_batch = match self {
                Self::Host(trainer) => {
                    let inputs: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
                    let tokens: usize = batch.iter().map(|s| s.len().saturating_sub(1)).sum();
                    let graded = trainer.evaluate(&inputs, &NextToken::new(&inputs))?;
                    let sum = graded.terms[0] * tokens as f64;
                    CrossEntropy { sum, tokens }
                }
                #[cfg(feature = "wgpu")]
                Self::Burn(on) => on.evaluate(batch)?,
            };
            all.sum += of_batch.sum;
            all.tokens += of_batch.tokens;
        }
        Ok(all)
    }

    /// The host trainer. A model that was trained on another device moves to the processor, with
    /// products of f32.
    ///
    /// # Errors
    /// Errors of the device; those of [`Trainer::resume`].
    pub fn on_host(&mut self) -> Result<&mut Trainer, LmError> {
        #[cfg(feature = "wgpu")]
        if let Self::Burn(on) = self {
            let trainer = Trainer::resume(&on.checkpoint()?, on.optimizer()?)?;
            *self = Self::Host(Box::new(trainer));
        }
        match self {
            Self::Host(trainer) => Ok(trainer),
            #[cfg(feature = "wgpu")]
            Self::Burn(_) => Err(LmError::Device("the model is still elsewhere".into())),
        }
    }

    /// The weights.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn checkpoint(&self) -> Result<Checkpoint, LmError> {
        match self {
            Self::Host(trainer) => Ok(trainer.checkpoint()),
            #[cfg(feature = "wgpu")]
            Self::Burn(on) => on.checkpoint(),
        }
    }

    /// The optimiser's state, which [`new`](Self::new) takes for any device.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn optimizer(&self) -> Result<Cow<'_, AdamW>, LmError> {
        Ok(match self {
            Self::Host(trainer) => Cow::Borrowed(trainer.optimizer()),
            #[cfg(feature = "wgpu")]
            Self::Burn(on) => Cow::Owned(on.optimizer()?),
        })
    }
}
