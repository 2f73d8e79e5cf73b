//! Prompts of an experiment answered outside a run: to measure costs, to train a head beforehand.

use anyhow::{Result, anyhow};
use spec_decode::{
    DraftPolicy, Generation, NoSink, PlainConfig, PlainGeneration, Prompt, Session, SessionConfig,
    StreamName, VerifyMode, decode_plain,
};
use vocab_align::DraftId;

use super::prompt::Ready;
use super::target::Target;
use crate::config::{Idle, RunConfig};
use crate::models::{Engine, ModelFolder};
use crate::streams::{DataSource, Split, StreamSpec};

/// Which prompts to rehearse.
#[derive(Debug, Clone)]
pub struct Rehearsed {
    /// Task; the first segment's by default.
    pub task: Option<String>,
    /// Target by name; the first segment's by default.
    pub target: Option<String>,
    /// How many prompts of the task's training half.
    pub prompts: usize,
    /// Prompts passed over before them; by default those that the segment streams.
    pub skip: Option<usize>,
    /// Whether to answer with padded models, as held-out prompts are.
    pub padded: bool,
}

/// Drafter, target and prompts of an experiment.
pub struct Rehearsal {
    drafter: Engine,
    width: usize,
    target: Target,
    padded: bool,
    session: SessionConfig,
    prompts: Vec<Ready>,
    seed: u64,
}

impl Rehearsal {
    /// Loads what the experiment names.
    ///
    /// # Errors
    /// Unusable models or data, a name that is not in the experiment.
    pub fn load(config: &RunConfig, data: &DataSource, what: &Rehearsed) -> Result<Self> {
        let task = what.task.as_ref();
        let segment = match task {
            None => config.segments.first(),
            Some(task) => config.segments.iter().find(|s| s.task == *task),
        };
        let segment = segment.ok_or_else(|| match task {
            Some(task) => anyhow!("segments: there is no task `{task}`"),
            None => anyhow!("segments: there is none"),
        })?;
        let name = match &what.target {
            Some(name) => name,
            None => config.target_of(segment)?,
        };
        let target = config.models.targets.get(name);
        let target = target.ok_or_else(|| anyhow!("models.targets: there is no `{name}`"))?;
        let drafter = ModelFolder::<DraftId>::load(&config.models.drafter.path)?;
        let target = Target::load(target, &drafter, &config.decode)?;
        let seed = config.seeds.first().copied().unwrap_or_default();
        let spec = StreamSpec {
            task: segment.task.clone(),
            split: Split::Train,
            limit: Some(what.prompts),
            skip: what.skip.or(segment.train).unwrap_or(0),
            shuffle: true,
        };
        let prompts = spec.load(data, seed)?;
        let prompts = prompts
            .into_iter()
            .map(|prompt| Ready::new(prompt, &drafter, &target.folder))
            .collect::<Result<Vec<_>>>()?;
        if prompts.is_empty() {
            return Err(anyhow!(
                "task `{}` has no training prompts behind those that are streamed; pass over fewer",
                segment.task
            ));
        }
        let idle = match what.padded {
            true => config.models.drafter.idle,
            false => Idle::default(),
        };
        Ok(Self {
            drafter: drafter.padded(idle).engine(&config.decode)?,
            width: drafter.checkpoint.config.hidden_size,
            session: SessionConfig {
                sampling: config.decode.sampling()?,
                stop: target.folder.stop_tokens(),
                learn_ngrams: false,
                ..SessionConfig::new(VerifyMode::Tli, config.decode.max_new_tokens)
            },
            padded: what.padded,
            target,
            prompts,
            seed,
        })
    }

    /// Prompts at hand.
    pub fn len(&self) -> usize {
        self.prompts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    /// Width of the drafter's hidden state.
    pub fn width(&self) -> usize {
        self.width
    }

    fn name(&self, prompt: usize) -> StreamName {
        StreamName::new(self.seed, prompt as u64)
    }

    /// The target alone.
    ///
    /// # Errors
    /// A failing model.
    pub fn plain(&mut self, prompt: usize) -> Result<PlainGeneration> {
        let config = PlainConfig {
            sampling: self.session.sampling,
            max_new_tokens: self.session.max_new_tokens,
            stop: self.session.stop.clone(),
        };
        let name = self.name(prompt);
        let engine = match &mut self.target.padded {
            Some(padded) if self.padded => &mut padded.engine,
            _ => &mut self.target.engine,
        };
        let ids = &self.prompts[prompt].target;
        Ok(decode_plain(engine, ids, &config, name, &mut NoSink)?)
    }

    /// Drafts by a policy, verified in mode `tli`; `unjudged` as in [`SessionConfig`].
    ///
    /// # Errors
    /// Failing models, impossible probabilities.
    pub fn draft(
        &mut self,
        prompt: usize,
        unjudged: bool,
        policy: &mut dyn DraftPolicy,
    ) -> Result<Generation> {
        let name = self.name(prompt);
        let ready = &self.prompts[prompt];
        let engine = match &mut self.target.padded {
            Some(padded) if self.padded => &mut padded.engine,
            _ => &mut self.target.engine,
        };
        let settings = SessionConfig {
            score_unjudged: unjudged,
            ..self.session.clone()
        };
        let pair = self.target.pair.clone();
        let mut session = Session::new(&mut self.drafter, engine, pair, settings)?;
        let ids = Prompt {
            draft: &ready.draft,
            target: &ready.target,
        };
        Ok(session.generate(ids, name, None, policy, &mut NoSink)?)
    }
}
