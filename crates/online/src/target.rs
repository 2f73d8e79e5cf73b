//! Targets of a run, with their engines.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lm::{Device, EngineSettings};
use spec_decode::{LawError, Pair, Role, SpecError};
use torch_engine::Torch;
use trace::{Template, TraceEngine, TraceError, Traces, file_sha256};
use vocab_align::{DraftId, TargetId, TokenId};

use super::error::{OnlineError, Result, causes, passed_on};
use experiment::{DecodeConfig, ModelConfig, ModelsConfig, TorchConfig, TraceConfig};
use models::step::{STEP_CONTEXT, Stepper, measure};
use models::{
    DRAFT_ROOM, Engine, Exchange, ModelFolder, ModelText, ModelsError, Talk, TargetFolder,
    TorchSettings, align, template_variables,
};
use results::{Padding, RecordedTarget, StepTimes, TorchTarget};
use streams::Split;

/// A target of a run.
pub(super) struct Target {
    pub(super) text: ModelText<TargetId>,
    pub(super) pair: Pair,
    pub(super) engine: Engine,
    /// The padded model, on which held-out prompts are timed. The stream uses the model without
    /// padding, which is faster and has the same tokens, unless its times are needed too.
    pub(super) padded: Option<Padded>,
    /// The recording, if it replaces the model.
    pub(super) recorded: Option<Recorded>,
    /// Description of the worker for the manifest, if one decodes the target.
    pub(super) torch: Option<TorchTarget>,
}

/// A target with idle columns in every MLP: the same tokens at the step times of a larger model.
pub(super) struct Padded {
    /// Number of idle inner columns of every MLP.
    width: usize,
    device: Device,
    folder: ModelFolder<TargetId>,
    pub(super) engine: Engine,
}

/// Facts about a recorded target.
pub(super) struct Recorded {
    /// Files of the recording, and the tokenizer.
    pub(super) files: Vec<PathBuf>,
    /// Name, for messages.
    name: String,
    /// Description for the manifest.
    pub(super) described: RecordedTarget,
}

fn settings_of(torch: &TorchConfig, threads: usize) -> TorchSettings {
    TorchSettings {
        dtype: torch.dtype,
        device: torch.device_map.clone(),
        threads: Some(threads),
        ..TorchSettings::default()
    }
}

/// A worker, for the manifest.
fn described(torch: &Torch) -> TorchTarget {
    let facts = torch.facts();
    TorchTarget {
        architecture: facts.architecture.clone(),
        dtype: facts.dtype.clone(),
        device: facts.device.clone(),
        parameters: facts.parameters,
        torch: facts.torch.clone(),
        transformers: facts.transformers.clone(),
    }
}

/// The tasks and splits that a job uses with a target.
pub(super) type Streamed = BTreeSet<(String, &'static str)>;

/// One split of a task.
pub(super) fn streamed(task: &str, split: Split) -> (String, &'static str) {
    (task.to_owned(), split.name())
}

impl Target {
    /// Loads a target with the decoding settings of the first of `arms`, and room for the answers
    /// of all.
    pub(super) fn load(
        models: &ModelsConfig,
        config: &ModelConfig,
        drafter: &ModelFolder<DraftId>,
        arms: &[&DecodeConfig],
        streamed: &Streamed,
    ) -> Result<Self> {
        let Some(first) = arms.first() else {
            return Err(OnlineError::Internal("there is no arm to decode for"));
        };
        let device = models.device_of(config);
        if let Some(trace) = &config.trace {
            return Self::replay(config, trace, drafter, arms, streamed);
        }
        let mut folder = match &config.torch {
            Some(torch) => TargetFolder::torch(&config.path, &settings_of(torch, first.threads))?,
            None => TargetFolder::own(&config.path)?,
        };
        let needed = config.system.is_some() || !config.chat_template_kwargs.is_empty();
        let system = config.system.as_deref();
        let variables = template_variables(&config.chat_template_kwargs);
        let asked = folder.asked_with(&variables, system, needed);
        asked.map_err(ModelsError::from)?;
        let pair = align(drafter, &folder);
        // All arms read the same prompts.
        if let Some(room) = arms.iter().filter_map(|arm| arm.prompt_room()).min() {
            folder.template.limit_prompts(room);
        }
        let contexts = arms.iter().map(|arm| match arm.context {
            0 => folder.context_for(arm.max_new_tokens),
            context => context,
        });
        let settings = EngineSettings {
            context: contexts.max(),
            ..first.engine().on(device)
        };
        let engine = folder.engine(settings)?;
        let padded = match folder.folder().filter(|_| config.pad_width > 0) {
            None => None,
            Some(own) => {
                let padded = own.padded(config.pad_width);
                Some(Padded {
                    width: config.pad_width,
                    device,
                    engine: padded.engine(settings)?,
                    folder: padded,
                })
            }
        };
        Ok(Self {
            text: folder.clone(),
            pair,
            engine,
            padded,
            recorded: None,
            torch: folder.worker().map(described),
        })
    }

    /// A recorded target, with the files of the used streams.
    fn replay(
        config: &ModelConfig,
        trace: &TraceConfig,
        drafter: &ModelFolder<DraftId>,
        arms: &[&DecodeConfig],
        streamed: &Streamed,
    ) -> Result<Self> {
        let files = streamed.iter().map(|(task, split)| trace.path(task, split));
        let mut files: Vec<PathBuf> = files.collect::<BTreeSet<_>>().into_iter().collect();
        let traces = Traces::open(&files)?;
        let text = ModelText::of_tokenizer(&config.path, usize::MAX)?;
        let json = PathBuf::from(text.vocabulary.file());
        let answer = arms.iter().map(|arm| arm.max_new_tokens).max();
        traces.check(&json, &file_sha256(&json)?, answer.unwrap_or_default())?;
        let Some((_, info)) = traces.infos().next() else {
            return Err(OnlineError::Lacking(
                "models.targets: the job streams nothing of a recorded target",
            ));
        };
        let name = traces.name();
        let found = match text.template.is_chat() {
            true => Template::Chat,
            false => Template::Plain,
        };
        if info.template != found {
            return Err(OnlineError::Trace(TraceError::OtherTemplate {
                files: name,
                recorded: info.template.clone(),
                tokenizer: text.path.clone(),
                found,
            }));
        }
        let recorded = info.max_prompt_tokens;
        let rooms = arms.iter().filter_map(|arm| arm.prompt_room());
        if let Some(room) = rooms.min().filter(|room| *room < recorded) {
            return Err(OnlineError::Trace(TraceError::PromptRoom {
                files: name,
                recorded,
                room,
            }));
        }
        let stop = traces.stop().iter().map(|id| TargetId::new(*id)).collect();
        let text = text.with_ends(stop, recorded);
        let described = RecordedTarget {
            source: info.source.describe(),
        };
        let room = recorded + answer.unwrap_or_default() + DRAFT_ROOM;
        let max_len = room.min(info.context);
        let engine = TraceEngine::new(traces, max_len);
        files.push(json);
        Ok(Self {
            pair: align(drafter, &text),
            text,
            engine: Engine::of(Box::new(engine)),
            padded: None,
            torch: None,
            recorded: Some(Recorded {
                files,
                name,
                described,
            }),
        })
    }

    /// Rewords an error for a recorded target: NaN logits are positions off the recorded path.
    pub(super) fn explain(&self, error: OnlineError) -> OnlineError {
        let Some(recorded) = &self.recorded else {
            return error;
        };
        let unrecorded = causes(&error).any(|cause| {
            let law = passed_on(cause).downcast_ref::<SpecError>();
            matches!(
                law,
                Some(SpecError::Law {
                    role: Role::Target,
                    source: LawError::Logit { value, .. },
                    ..
                }) if value.is_nan()
            )
        });
        match unrecorded {
            true => OnlineError::Trace(TraceError::Unrecorded {
                files: recorded.name.clone(),
                source: error.into(),
            }),
            false => error,
        }
    }

    /// The exchanges before a prompt of a conversation: the target's greedy answers to the
    /// `earlier` questions, each as long as `decode` allows. No arm is charged for them.
    pub(super) fn said_before(
        &mut self,
        talk: &mut Talk,
        earlier: &[String],
        decode: &DecodeConfig,
    ) -> Result<Vec<Exchange>> {
        let long = (decode.max_new_tokens, decode.ignore_eos);
        let said = talk.before(earlier, &self.text, &mut self.engine, long);
        let said = said.map(<[Exchange]>::to_vec);
        said.map_err(|error| self.explain(error.into()))
    }

    /// The engine that answers: the padded one if `padded` is true and the target has one.
    pub(super) fn engine(&mut self, padded: bool) -> &mut Engine {
        match &mut self.padded {
            Some(own) if padded => &mut own.engine,
            _ => &mut self.engine,
        }
    }
}

impl Padded {
    /// Measures the step times with this padding and the drafter's.
    pub(super) fn measure(
        &self,
        drafter: &ModelFolder<DraftId>,
        models: &ModelsConfig,
        decode: &DecodeConfig,
    ) -> Result<Padding> {
        let draft_width = models.drafter.pad_width;
        let drafts = decode.drafter_engine(models.device_of(&models.drafter));
        let settings = decode.engine().on(self.device);
        let drafter = drafter.padded(draft_width);
        let mut drafter = Stepper::new(&drafter, drafts, STEP_CONTEXT)?;
        let mut target = Stepper::new(&self.folder, settings, STEP_CONTEXT)?;
        let steps = measure(&mut drafter, &mut target)?;
        Ok(Padding {
            width: self.width,
            draft_width,
            steps: StepTimes {
                draft_s: steps.draft_s,
                target_s: steps.target_s,
                verify_s: steps.verify_s,
            },
        })
    }
}
