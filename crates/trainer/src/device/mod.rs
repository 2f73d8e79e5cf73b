//! Training on other devices through the Burn framework, by automatic differentiation.
//!
//! [`Transformer`] is the decoder as a Burn module, and [`OnDevice`] is the module in training.
//! [`BurnEngine`] decodes with it; the tests compare the module with other engines through it.

mod engine;
mod model;
mod optim;
mod rope;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use lm::{AdamW, Checkpoint, LmError};

pub use engine::BurnEngine;
pub use model::{Block, KvCache, Transformer};
pub use optim::step;

use crate::Step;

/// A Burn module in training on next-token prediction.
pub struct OnDevice {
    /// `None` only while a step runs, and after a failed one.
    model: Option<Transformer>,
    optimizer: AdamW,
    device: Device,
}

/// A Burn module for evaluation, without gradients.
pub struct Measured {
    model: Transformer,
    device: Device,
}

impl OnDevice {
    /// Loads weights onto `device`.
    ///
    /// # Errors
    /// Missing or misshapen tensors.
    pub fn new(checkpoint: &Checkpoint, optimizer: AdamW, device: Device) -> Result<Self, LmError> {
        let device = device.autodiff();
        Ok(Self {
            model: Some(Transformer::from_checkpoint(checkpoint, &device)?),
            optimizer,
            device,
        })
    }

    /// One step on sequences of one length.
    ///
    /// # Errors
    /// Sequences of several lengths; errors of the device; a gradient that is not finite. In the
    /// last two cases the weights are lost.
    pub fn step(&mut self, sequences: &[Vec<u32>], lr: f64) -> Result<Step, LmError> {
        let model = self.model.as_ref().ok_or_else(lost)?;
        let loss = cross_entropy(model, sequences, &self.device)?.mean();
        let grads = loss.backward();
        let model = self.model.take().ok_or_else(lost)?;
        let (updated, grad_norm) = step(&mut self.optimizer, model, &grads, lr)?;
        self.model = Some(updated);
        let loss = f64::from(loss.into_scalar::<f32>());
        Ok(Step { loss, grad_norm })
    }

    /// A copy of the weights without gradients.
    ///
    /// # Errors
    /// Errors of the device; weights that were lost in a failed step.
    pub fn without_gradients(&self) -> Result<Measured, LmError> {
        let device = self.device.clone().inner();
        let model = Transformer::from_checkpoint(&self.checkpoint()?, &device)?;
        Ok(Measured { model, device })
    }

    /// The weights.
    ///
    /// # Errors
    /// Errors of the device; weights that were lost in a failed step.
    pub fn checkpoint(&self) -> Result<Checkpoint, LmError> {
        self.model.as_ref().ok_or_else(lost)?.to_checkpoint()
    }

    /// The optimiser's state.
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }
}

impl Measured {
    /// Sum of the next-token cross entropy of sequences of one length, in nats, and the number of
    /// tokens in it.
    ///
    /// # Errors
    /// Sequences of several lengths.
    pub fn loss(&self, sequences: &[Vec<u32>]) -> Result<(f64, usize), LmError> {
        let losses = cross_entropy(&self.model, sequences, &self.device)?;
        let tokens = losses.dims()[0];
        Ok((f64::from(losses.sum().into_scalar::<f32>()), tokens))
    }
}

fn lost() -> LmError {
    LmError::Device("the weights were lost in a failed step".into())
}

/// Negative log-likelihood of every token but the first of each sequence, `[batch * positions]`.
fn cross_entropy(
    model: &Transformer,
    sequences: &[Vec<u32>],
    device: &Device,
) -> Result<Tensor<1>, LmError> {
    let batch = sequences.len();
    let len = sequences.first().map_or(0, Vec::len);
    if len < 2 || sequences.iter().any(|s| s.len() != len) {
        let message = "sequences of one length, at least two tokens, are expected";
        return Err(LmError::Device(message.into()));
    }
    let positions = len - 1;
    let flat = |shift: usize| -> Vec<i64> {
        sequences
            .iter()
            .flat_map(|s| s[shift..shift + positions].iter().map(|id| i64::from(*id)))
            .collect()
    };
    let input = Tensor::<2, Int>::from_data(TensorData::new(flat(0), [batch, positions]), device);
    let labels =
        Tensor::<2, Int>::from_data(TensorData::new(flat(1), [batch * positions, 1]), device);
    let hidden = model
        .hidden(input)
        .reshape([batch * positions, model.config().hidden_size]);
    Ok(log_softmax(model.logits(hidden), 1)
        .gather(1, labels)
        .squeeze_dim::<1>(1)
        .neg())
}
