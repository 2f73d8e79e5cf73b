//! The trained weights of a drafter: all of them, or those of its last blocks.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use distill_loss::{Batch, Graded};
use experiment::LearnConfig;
use lm::{AdamW, AdamWConfig, Checkpoint, HostTensor, LmError, Tail};
use models::Engine;
use trainer::{TailTrainer, Trainer};

use super::error::Result;

/// Weights changed by an update.
#[derive(Clone, Debug, PartialEq)]
pub enum LearntWeights {
    /// All weights, with an adapter merged.
    Whole(Checkpoint),
    /// The weights of the last blocks; the others are the drafter's initial ones.
    Tail(Tail),
}

impl LearntWeights {
    /// The tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, HostTensor> {
        match self {
            Self::Whole(checkpoint) => &checkpoint.tensors,
            Self::Tail(tail) => &tail.tensors,
        }
    }

    pub(super) fn tensors_mut(&mut self) -> &mut BTreeMap<String, HostTensor> {
        match self {
            Self::Whole(checkpoint) => &mut checkpoint.tensors,
            Self::Tail(tail) => &mut tail.tensors,
        }
    }

    /// Writes them over the weights of the whole model.
    pub(super) fn write_over(self, base: &mut Checkpoint) -> Result<()> {
        match self {
            Self::Whole(whole) => *base = whole,
            Self::Tail(tail) => tail.write_over(base)?,
        }
        Ok(())
    }

    /// Loads them into an engine.
    ///
    /// # Errors
    /// Errors of [`Engine::load_weights`] and [`Engine::load_tail`].
    pub fn load_into(&self, engine: &mut Engine) -> Result<()> {
        match self {
            Self::Whole(checkpoint) => Ok(engine.load_weights(checkpoint)?),
            Self::Tail(tail) => Ok(engine.load_tail(tail)?),
        }
    }
}

/// Trainers that compute a drafter's gradients. What both have in common is a [`Trainer`].
pub(super) enum Gradients {
    Whole(Trainer),
    Tail(TailTrainer),
}

impl Gradients {
    /// Trains the weights or adapters of all blocks, or of the last `config.blocks`; `seed`
    /// determines the initial adapter.
    pub(super) fn new(
        checkpoint: &Checkpoint,
        optimizer: AdamWConfig,
        config: &LearnConfig,
        seed: u64,
    ) -> Result<Self, LmError> {
        let lora = config.adapters();
        if config.blocks == 0 {
            let trainer = match lora {
                None => Trainer::new(checkpoint, optimizer)?,
                Some(lora) => Trainer::with_adapter(checkpoint, optimizer, lora, seed)?,
            };
            return Ok(Self::Whole(trainer.with_products(config.products)));
        }
        let trainer = match lora {
            None => TailTrainer::new(checkpoint, config.blocks, optimizer)?,
            Some(lora) => TailTrainer::with_adapter(checkpoint, optimizer, lora, seed)?,
        };
        Ok(Self::Tail(trainer.with_products(config.products)))
    }

    /// The present weights.
    pub(super) fn weights(&self) -> LearntWeights {
        match self {
            Self::Whole(trainer) => LearntWeights::Whole(trainer.checkpoint()),
            Self::Tail(trainer) => LearntWeights::Tail(trainer.tail()),
        }
    }

    /// Like [`weights`](Self::weights), reusing the memory of earlier ones of the same kind.
    pub(super) fn weights_over(
        &self,
        spare: Option<LearntWeights>,
    ) -> Result<LearntWeights, LmError> {
        match (self, spare) {
            (Self::Whole(trainer), Some(LearntWeights::Whole(mut spare))) => {
                trainer.write_checkpoint(&mut spare)?;
                Ok(LearntWeights::Whole(spare))
            }
            (Self::Tail(trainer), Some(LearntWeights::Tail(mut spare))) => {
                trainer.write_tail(&mut spare)?;
                Ok(LearntWeights::Tail(spare))
            }
            _ => Ok(self.weights()),
        }
    }

    /// Continues from saved weights and their optimiser's state.
    pub(super) fn load(
        &mut self,
        weights: &LearntWeights,
        optimizer: AdamW,
    ) -> Result<(), LmError> {
        match (self, weights) {
            (Self::Whole(trainer), LearntWeights::Whole(weights)) => {
                trainer.load(weights, optimizer)
            }
            (Self::Tail(trainer), LearntWeights::Tail(tail)) => trainer.load(tail, optimizer),
            _ => Err(LmError::OtherModel),
        }
    }

    /// Forward and backward of a batch.
    pub(super) fn accumulate(&mut self, batch: &Batch<'_>) -> Result<Graded> {
        match self {
            Self::Whole(trainer) => Ok(trainer.accumulate(&batch.sequences(), batch)?),
            Self::Tail(trainer) => {
                let width = trainer.config().hidden_size;
                Ok(trainer.accumulate(&batch.states(width)?, batch)?)
            }
        }
    }

    /// Forward of a batch with the initial weights; `None` unless they are still in memory, which
    /// those of the last blocks are.
    pub(super) fn evaluate_first(&mut self, batch: &Batch<'_>) -> Result<Option<Graded>> {
        match self {
            Self::Whole(_) => Ok(None),
            Self::Tail(trainer) => {
                let width = trainer.config().hidden_size;
                Ok(Some(trainer.evaluate_first(&batch.states(width)?, batch)?))
            }
        }
    }
}

impl Deref for Gradients {
    type Target = Trainer;

    fn deref(&self) -> &Trainer {
        match self {
            Self::Whole(trainer) => trainer,
            Self::Tail(trainer) => trainer,
        }
    }
}

impl DerefMut for Gradients {
    fn deref_mut(&mut self) -> &mut Trainer {
        match self {
            Self::Whole(trainer) => trainer,
            Self::Tail(trainer) => trainer,
        }
    }
}
