//! Answers to prompts of an experiment outside of a run, to measure costs or to train a head
//! beforehand.

use spec_decode::{
    DraftPolicy, Generation, NoSink, PlainConfig, PlainGeneration, Prompt, Session, SessionConfig,
    StreamName, VerifyMode, decode_plain,
};
use vocab_align::DraftId;

use super::error::{OnlineError, Result};
use super::prompt::EncodedPrompt;
use super::target::{Target, streamed};
use experiment::JobConfig;
use models::{Engine, ModelFolder, Talk};
use streams::{DataSource, Split, StreamSpec};

/// Selection of prompts, and settings of their answers.
#[derive(Debug, Clone, Copy)]
pub struct ProbeOptions {
    /// Number of prompts from the task's training half.
    pub prompts: usize,
    /// Number of skipped prompts before them; by default those that the job streams.
    pub skip: Option<usize>,
    /// True to answer with padded models, as for held-out prompts.
    pub padded: bool,
}

/// Drafter, target and prompts of a job outside of a run, to measure costs or to train a head
/// beforehand.
pub struct Probe {
    drafter: Engine,
    width: usize,
    target: Target,
    padded: bool,
    session: SessionConfig,
    prompts: Vec<EncodedPrompt>,
    seed: u64,
}

impl Probe {
    /// Loads the models and prompts of the job's first segment; decoding follows the first drafting
    /// arm.
    ///
    /// # Errors
    /// Unusable models or data, a job without segments or drafting arms.
    pub fn load(job: &JobConfig, data: &DataSource, options: ProbeOptions) -> Result<Self> {
        let segment = job.segments.first();
        let segment = segment.ok_or(OnlineError::Lacking("the job streams nothing"))?;
        let arm = job.arms.iter().find(|arm| !arm.is_plain());
        let arm = arm.ok_or(OnlineError::Lacking("no arm of the job drafts"))?;
        let decode = &arm.decode;
        let name = &segment.target;
        let target = job.models.targets.get(name);
        let target = target.ok_or_else(|| OnlineError::NoModel(name.clone()))?;
        let drafter = ModelFolder::<DraftId>::load(&job.models.drafter.path)?;
        let asked = [streamed(&segment.task, Split::Train)]
            .into_iter()
            .collect();
        let mut target = Target::load(&job.models, target, &drafter, &[decode], &asked)?;
        let skipped = segment.train.limit().unwrap_or(0);
        let spec = StreamSpec {
            task: segment.task.clone(),
            split: Split::Train,
            limit: Some(options.prompts),
            skip: options.skip.unwrap_or(skipped),
            shuffle: true,
        };
        let mut talk = Talk::default();
        let mut prompts = Vec::new();
        for prompt in spec.load(data, job.seed)? {
            let before = target.said_before(&mut talk, &prompt.earlier, decode)?;
            let encoded = EncodedPrompt::new(prompt, &before, &drafter, &target.text)?;
            prompts.push(encoded);
        }
        let width = match options.padded {
            true => job.models.drafter.pad_width,
            false => 0,
        };
        Ok(Self {
            drafter: drafter
                .padded(width)
                .engine(decode.drafter_engine(job.models.device_of(&job.models.drafter)))?,
            width: drafter.config().hidden_size,
            session: SessionConfig {
                sampling: decode.sampling()?,
                stop: target.text.stop_tokens_unless(decode.ignore_eos),
                learn_ngrams: false,
                ..SessionConfig::new(VerifyMode::Tli, decode.max_new_tokens)
            },
            padded: options.padded,
            target,
            prompts,
            seed: job.seed,
        })
    }

    /// Number of prompts.
    pub fn len(&self) -> usize {
        self.prompts.len()
    }

    /// True if there are no prompts.
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

    /// Answers the prompt at this index by plain decoding of the target.
    ///
    /// # Errors
    /// Errors of the model.
    ///
    /// # Panics
    /// If the index is not below [`len`](Self::len).
    pub fn plain(&mut self, prompt: usize) -> Result<PlainGeneration> {
        let config = PlainConfig {
            sampling: self.session.sampling,
            max_new_tokens: self.session.max_new_tokens,
            stop: self.session.stop.clone(),
        };
        let name = self.name(prompt);
        let engine = self.target.engine(self.padded);
        let ids = &self.prompts[prompt].target;
        Ok(decode_plain(engine, ids, &config, name, &mut NoSink)?)
    }

    /// Answers the prompt at this index with drafts by a policy, verified in mode `tli`.
    ///
    /// # Errors
    /// Errors of the models; impossible probabilities.
    ///
    /// # Panics
    /// If the index is not below [`len`](Self::len).
    pub fn draft(&mut self, prompt: usize, policy: &mut dyn DraftPolicy) -> Result<Generation> {
        let name = self.name(prompt);
        let encoded = &self.prompts[prompt];
        let (settings, pair) = (self.session.clone(), self.target.pair.clone());
        let engine = self.target.engine(self.padded);
        let mut session = Session::new(&mut self.drafter, engine, pair, settings)?;
        let ids = Prompt {
            draft: &encoded.draft,
            target: &encoded.target,
        };
        Ok(session.generate(ids, name, None, policy, &mut NoSink)?)
    }
}
