//! Who computes a training step: the host trainer, or Burn on another device.

use anyhow::Result;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use lm::{AdamW, Checkpoint, NextToken, Trainer, Transformer};

/// A model with its optimiser, on whatever computes fastest.
pub enum Backend {
    /// This processor.
    Host(Box<Trainer>),
    /// A device of Burn.
    Burn(Box<OnDevice>),
}

/// A Burn module in training.
pub struct OnDevice {
    /// Absent only while a step runs, and after one failed.
    model: Option<Transformer>,
    optimizer: AdamW,
    device: Device,
}

/// Numbers of one step.
pub struct Step {
    /// Mean next-token cross entropy, nats.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
}

impl Backend {
    /// Starts from weights and an optimiser; on the host where no device is given.
    pub fn new(checkpoint: &Checkpoint, optimizer: AdamW, device: Option<Device>) -> Result<Self> {
        Ok(match device {
            None => Self::Host(Box::new(Trainer::resume(checkpoint, optimizer)?)),
            Some(device) => {
                let device = device.autodiff();
                let model = Transformer::from_checkpoint(checkpoint, &device)?;
                Self::Burn(Box::new(OnDevice {
                    model: Some(model),
                    optimizer,
                    device,
                }))
            }
        })
    }

    /// One step of next-token prediction on sequences of one length.
    pub fn step(&mut self, sequences: &[Vec<u32>], lr: f64) -> Result<Step> {
        match self {
            Self::Host(trainer) => {
                let inputs: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
                let graded = trainer.accumulate(&inputs, &NextToken::new(&inputs))?;
                let grad_norm = trainer.step(lr)?;
                let loss = graded.terms[0];
                Ok(Step { loss, grad_norm })
            }
            Self::Burn(on) => {
                let OnDevice {
                    model,
                    optimizer,
                    device,
                } = on.as_mut();
                let Some(current) = model.take() else {
                    anyhow::bail!("the weights were lost in a failed step");
                };
                let loss = cross_entropy(&current, sequences, device).mean();
                let grads = loss.backward();
                let (updated, grad_norm) = optimizer.step(current, &grads, lr)?;
                *model = Some(updated);
                let loss = f64::from(loss.into_scalar::<f32>());
                Ok(Step { loss, grad_norm })
            }
        }
    }

    /// Mean next-token cross entropy and the tokens it is over, `batch` sequences at a time.
    pub fn evaluate(&mut self, sequences: &[Vec<u32>], batch: usize) -> Result<(f64, usize)> {
        let (mut sum, mut tokens) = (0.0, 0);
        match self {
            Self::Host(trainer) => {
                for batch in sequences.chunks(batch) {
                    let inputs: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
                    let count: usize = batch.iter().map(|s| s.len() - 1).sum();
                    let graded = trainer.evaluate(&inputs, &NextToken::new(&inputs))?;
                    sum += graded.terms[0] * count as f64;
                    tokens += count;
                }
            }
            Self::Burn(on) => {
                let plain = on.device.clone().inner();
                let model = Transformer::from_checkpoint(&self.checkpoint()?, &plain)?;
                for batch in sequences.chunks(batch) {
                    let losses = cross_entropy(&model, batch, &plain);
                    tokens += losses.dims()[0];
                    sum += f64::from(losses.sum().into_scalar::<f32>());
                }
            }
        }
        Ok((sum / tokens as f64, tokens))
    }

    /// The weights.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        match self {
            Self::Host(trainer) => Ok(trainer.checkpoint()),
            Self::Burn(on) => match &on.model {
                Some(model) => Ok(model.to_checkpoint()?),
                None => anyhow::bail!("the weights were lost in a failed step"),
            },
        }
    }

    /// The optimiser's state.
    pub fn optimizer(&self) -> &AdamW {
        match self {
            Self::Host(trainer) => trainer.optimizer(),
            Self::Burn(on) => &on.optimizer,
        }
    }
}

/// Negative log-likelihood of every token but the first of each sequence, `[batch * positions]`.
fn cross_entropy(model: &Transformer, sequences: &[Vec<u32>], device: &Device) -> Tensor<1> {
    let (batch, positions) = (
        sequences.len(),
        sequences.first().map_or(0, |s| s.len() - 1),
    );
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
    log_softmax(model.logits(hidden), 1)
        .gather(1, labels)
        .squeeze_dim::<1>(1)
        .neg()
}
