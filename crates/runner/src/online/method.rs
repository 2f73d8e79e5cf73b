//! One arm at work: its drafter, its caches, its learner.

use std::collections::BTreeMap;

use anyhow::Result;
use lm::Checkpoint;
use ngram_cache::NgramCache;
use spec_decode::{
    DraftPolicy, Generation, LanguageModel, NoSink, Pair, Prompt, PromptLookup, Session,
    SessionConfig, StreamName,
};
use vocab_align::{DraftId, TargetId};

use super::learner::{Learner, Update};
use super::lesson::{Lesson, Recorder};
use crate::arm::Arm;
use crate::config::RunConfig;
use crate::models::{Engine, ModelFolder};
use crate::results::Phase;

/// What the prompt is asked under.
pub struct Task<'a> {
    /// Vocabularies.
    pub pair: &'a Pair,
    /// Session settings, but for the mode.
    pub session: &'a SessionConfig,
    /// The prompt in both vocabularies.
    pub prompt: Prompt<'a>,
    /// Names the random streams.
    pub name: StreamName,
    /// Streamed or held out.
    pub phase: Phase,
}

/// Where drafts come from.
enum Drafter {
    /// The draft model.
    Model(Box<Engine>),
    /// The context. Pairs of a target's vocabulary with itself, by its fingerprint.
    Lookup(BTreeMap<u64, Pair>),
}

/// The state of an arm.
pub struct Method {
    drafter: Drafter,
    /// By fingerprint of the target's vocabulary: targets of one family share what was learnt,
    /// another family starts anew.
    caches: BTreeMap<u64, NgramCache>,
    learner: Option<Learner>,
    config: RunConfig,
}

impl Method {
    /// The state `arm` starts from. `seed` decides what its learner replays.
    ///
    /// # Errors
    /// A drafter the engine or the learner cannot take.
    pub fn new(
        arm: &Arm,
        drafter: &ModelFolder<DraftId>,
        config: &RunConfig,
        seed: u64,
    ) -> Result<Self> {
        let learner = arm
            .learn
            .map(|spec| Learner::new(&drafter.checkpoint, config.learn.for_arm(spec), seed))
            .transpose()?;
        Ok(Self {
            drafter: if arm.lookup {
                Drafter::Lookup(BTreeMap::new())
            } else {
                Drafter::Model(Box::new(drafter.engine(&config.decode)?))
            },
            caches: BTreeMap::new(),
            learner,
            config: config.clone(),
        })
    }

    /// The n-gram cache used with targets of this vocabulary, if there is one.
    pub fn cache(&self, pair: &Pair) -> Option<&NgramCache> {
        self.caches.get(&pair.target.fingerprint())
    }

    /// Answers a prompt as `arm` does, the arm of this state or one that borrows it, and, on the
    /// stream, remembers the lesson.
    ///
    /// # Errors
    /// Failing models, impossible probabilities.
    pub fn answer(
        &mut self,
        arm: &Arm,
        target: &mut Engine,
        task: &Task<'_>,
    ) -> Result<(Generation, Option<Lesson>)> {
        let streamed = task.phase == Phase::Train;
        let settings = SessionConfig {
            mode: arm.verify.unwrap_or(task.session.mode),
            learn_ngrams: streamed && arm.cache,
            ..task.session.clone()
        };
        let cache = if arm.cache {
            let fresh = || NgramCache::new(self.config.cache.into());
            Some(
                self.caches
                    .entry(task.pair.target.fingerprint())
                    .or_insert_with(fresh),
            )
        } else {
            None
        };
        let mut policy = self.config.decode.draft_policy()?;
        let drafter = match &mut self.drafter {
            Drafter::Model(drafter) => drafter.as_mut(),
            Drafter::Lookup(pairs) => {
                let vocabulary = &task.pair.target;
                let shared = pairs
                    .entry(vocabulary.fingerprint())
                    .or_insert_with(|| Pair::shared(vocabulary.clone()));
                let done = look_up(target, shared, settings, task, policy.as_mut())?;
                return Ok((done, None));
            }
        };
        let mut session = Session::new(drafter, target, task.pair.clone(), settings)?;
        let Some(learner) = self.learner.as_ref().filter(|_| streamed) else {
            let done =
                session.generate(task.prompt, task.name, cache, policy.as_mut(), &mut NoSink)?;
            return Ok((done, None));
        };
        let terms = learner.terms();
        let mut recorder = Recorder::new(&task.pair.alignment, terms);
        let done = session.generate(
            task.prompt,
            task.name,
            cache,
            policy.as_mut(),
            &mut recorder,
        )?;
        let lesson = Lesson::new(
            session.draft_context(),
            task.prompt.draft.len(),
            &done.tokens,
            recorder.into_taught(),
            task.pair,
            terms,
        );
        Ok((done, Some(lesson)))
    }

    /// Learns from a lesson; when an update is due, the drafter decodes with its weights from now
    /// on.
    ///
    /// # Errors
    /// A failed update.
    pub fn learn(&mut self, lesson: Lesson) -> Result<Option<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(None);
        };
        let update = learner.push(lesson)?;
        self.adopt(update)
    }

    /// Learns from what is buffered, before the target or the stream changes.
    ///
    /// # Errors
    /// A failed update.
    pub fn flush(&mut self) -> Result<Option<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(None);
        };
        let update = learner.flush()?;
        self.adopt(update)
    }

    fn adopt(&mut self, update: Option<(Update, Checkpoint)>) -> Result<Option<Update>> {
        let Some((update, weights)) = update else {
            return Ok(None);
        };
        if let Drafter::Model(drafter) = &mut self.drafter {
            drafter.load_weights(&weights)?;
        }
        Ok(Some(update))
    }
}

/// Answers a prompt with drafts from its own context.
fn look_up(
    target: &mut Engine,
    pair: &Pair,
    settings: SessionConfig,
    task: &Task<'_>,
    policy: &mut dyn DraftPolicy,
) -> Result<Generation> {
    let drafter = PromptLookup::new(LanguageModel::<TargetId>::vocab_size(target));
    let ids: Vec<DraftId> = task.prompt.target.iter().map(|id| DraftId(id.0)).collect();
    let prompt = Prompt {
        draft: &ids,
        target: task.prompt.target,
    };
    let mut session = Session::new(drafter, target, pair.clone(), settings)?;
    Ok(session.generate(prompt, task.name, None, policy, &mut NoSink)?)
}
