//! Targets with everything that belongs to them.

use anyhow::Result;
use lm::Checkpoint;
use spec_decode::Pair;
use vocab_align::{DraftId, TargetId};

use crate::config::{DecodeConfig, Idle, ModelConfig};
use crate::models::{Engine, ModelFolder, align};
use crate::results::Padding;
use crate::step::{Stepper, measure};

/// Context at which the step times of padded targets are measured, in tokens.
const STEP_CONTEXT: usize = 128;

/// A target of a run.
pub(super) struct Target {
    pub(super) folder: ModelFolder<TargetId>,
    pub(super) pair: Pair,
    pub(super) engine: Engine,
    /// The padded model, on which held-out prompts are timed. Its tokens are the same, so the
    /// stream is learnt from on the cheaper one, unless its times are asked for too.
    pub(super) padded: Option<Padded>,
}

/// A padded target.
pub(super) struct Padded {
    idle: Idle,
    checkpoint: Checkpoint,
    pub(super) engine: Engine,
}

impl Target {
    pub(super) fn load(
        config: &ModelConfig,
        drafter: &ModelFolder<DraftId>,
        decode: &DecodeConfig,
    ) -> Result<Self> {
        let folder = ModelFolder::load(&config.path)?;
        let pair = align(drafter, &folder);
        let engine = folder.engine(decode)?;
        let padded = if config.idle.is_none() {
            None
        } else {
            let padded = folder.padded(config.idle);
            Some(Padded {
                idle: config.idle,
                engine: padded.engine(decode)?,
                checkpoint: padded.checkpoint,
            })
        };
        Ok(Self {
            folder,
            pair,
            engine,
            padded,
        })
    }
}

impl Padded {
    /// What this padding, and `draft_idle` of the drafter's own, make of the step times.
    pub(super) fn measure(
        &self,
        drafter: &ModelFolder<DraftId>,
        draft_idle: Idle,
        decode: &DecodeConfig,
    ) -> Result<Padding> {
        let stepper = |checkpoint| Stepper::new(checkpoint, decode, STEP_CONTEXT);
        let drafter = drafter.padded(draft_idle).checkpoint;
        let mut drafter = stepper(&drafter)?;
        let steps = measure(&mut drafter, &mut stepper(&self.checkpoint)?)?;
        Ok(Padding {
            layers: self.idle.layers,
            width: self.idle.width,
            draft_layers: draft_idle.layers,
            draft_width: draft_idle.width,
            steps,
        })
    }
}
