//! Targets with everything that belongs to them.

use anyhow::{Result, bail};
use lm::EngineSettings;
use spec_decode::Pair;
use vocab_align::{DraftId, TargetId};

use experiment::{CostPadding, DecodeConfig, ModelConfig};
use models::step::{Stepper, measure};
use models::{Engine, ModelFolder, align};
use results::{Padding, StepTimes};

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
    padding: CostPadding,
    folder: ModelFolder<TargetId>,
    pub(super) engine: Engine,
}

impl Target {
    /// Loads a target that decodes as the first of `arms` says, with room for the answers of all.
    pub(super) fn load(
        config: &ModelConfig,
        drafter: &ModelFolder<DraftId>,
        arms: &[&DecodeConfig],
    ) -> Result<Self> {
        let Some(first) = arms.first() else {
            bail!("there is no arm to decode for");
        };
        let mut folder = ModelFolder::load(&config.path)?;
        let pair = align(drafter, &folder);
        // All arms read the same prompts.
        if let Some(room) = arms.iter().filter_map(|arm| arm.prompt_room()).min() {
            folder.limit_prompts(room);
        }
        let contexts = arms.iter().map(|arm| match arm.context {
            0 => folder.context_for(arm.max_new_tokens),
            context => context,
        });
        let settings = EngineSettings {
            context: contexts.max(),
            ..first.engine()
        };
        let engine = folder.engine(settings)?;
        let padded = if config.padding.is_none() {
            None
        } else {
            let padded = folder.padded(config.padding.layers, config.padding.width);
            Some(Padded {
                padding: config.padding,
                engine: padded.engine(settings)?,
                folder: padded,
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

impl Target {
    /// The engine that answers: the padded one where padding is to cost and there is any.
    pub(super) fn engine(&mut self, padded: bool) -> &mut Engine {
        match &mut self.padded {
            Some(own) if padded => &mut own.engine,
            _ => &mut self.engine,
        }
    }
}

impl Padded {
    /// What this padding, and `draft_padding` of the drafter's own, make of the step times.
    pub(super) fn measure(
        &self,
        drafter: &ModelFolder<DraftId>,
        draft_padding: CostPadding,
        decode: &DecodeConfig,
    ) -> Result<Padding> {
        let drafter = drafter.padded(draft_padding.layers, draft_padding.width);
        let mut drafter = Stepper::new(&drafter, decode.engine(), STEP_CONTEXT)?;
        let mut target = Stepper::new(&self.folder, decode.engine(), STEP_CONTEXT)?;
        let steps = measure(&mut drafter, &mut target)?;
        Ok(Padding {
            layers: self.padding.layers,
            width: self.padding.width,
            draft_layers: draft_padding.layers,
            draft_width: draft_padding.width,
            steps: StepTimes {
                draft_s: steps.draft_s,
                target_s: steps.target_s,
                verify_s: steps.verify_s,
            },
        })
    }
}
