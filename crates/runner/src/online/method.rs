//! One arm at work: its drafter, its caches, its learner.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use lm::{Compact, PackedWeights};
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::{
    DraftPolicy, Generation, LanguageModel, NoSink, Pair, Prompt, PromptLookup, Session,
    SessionConfig, StreamName,
};
use vocab_align::{DraftId, TargetId};

use super::adaptive::{Adaptive, HeadUpdate};
use super::learner::{Learner, Learnt};
use super::lesson::{Lesson, Recorder};
use super::state;
use super::student::Update;
use crate::arm::Arm;
use crate::config::{DecodeConfig, Idle, RunConfig};
use crate::learn::LoraSettings;
use crate::models::{Engine, ModelFolder};
use crate::results::Phase;

/// Folder of weights or adapters inside the folder of an arm.
const LEARNT: &str = "drafter";

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
    /// The segment's gamma, if it has one.
    pub gamma: Option<f64>,
}

/// What the drafter is padded with where padding costs.
struct Padding {
    idle: Idle,
    folder: ModelFolder<DraftId>,
    /// With the weights in use; `None` since they changed.
    engine: Option<Engine>,
}

impl Padding {
    /// The padded drafter with what `learner` has learnt.
    fn engine(
        &mut self,
        learner: Option<&mut Learner>,
        decode: &DecodeConfig,
    ) -> Result<&mut Engine> {
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => {
                let weights = match learner {
                    Some(learner) => learner.weights()?,
                    None => self.folder.checkpoint.clone(),
                };
                let padded = self.idle.pad(weights);
                self.folder.with_checkpoint(padded).engine(decode)?
            }
        };
        Ok(self.engine.insert(engine))
    }
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
    padding: Option<Padding>,
    /// By fingerprint of the target's vocabulary: targets of one family share what was learnt,
    /// another family starts anew.
    caches: BTreeMap<u64, NgramCache>,
    learner: Option<Learner>,
    /// Packed weights of the adapters that are not in use, by name.
    resident: BTreeMap<String, PackedWeights>,
    /// What has an adapter of its own.
    lora: LoraSettings,
    /// Limits of a cache.
    bounds: CacheConfig,
    adaptive: Adaptive,
    config: RunConfig,
}

impl Method {
    /// The state `arm` starts from, from which `borrowers` answer held-out prompts. `seed` decides
    /// what its learner replays and what its head is trained on.
    ///
    /// # Errors
    /// A drafter the engine or the learner cannot take.
    pub fn new(
        arm: &Arm,
        borrowers: &[&Arm],
        drafter: &ModelFolder<DraftId>,
        config: &RunConfig,
        seed: u64,
    ) -> Result<Self> {
        let width = drafter.checkpoint.config.hidden_size;
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
            padding: Some(config.models.drafter.idle)
                .filter(|idle| !idle.is_none())
                .map(|idle| Padding {
                    idle,
                    folder: drafter.with_checkpoint(drafter.checkpoint.clone()),
                    engine: None,
                }),
            caches: BTreeMap::new(),
            lora: arm.learn.map_or_else(LoraSettings::default, |spec| {
                config.learn.for_arm(spec).lora
            }),
            resident: BTreeMap::new(),
            bounds: arm.bounds.unwrap_or(config.cache).into(),
            learner,
            adaptive: Adaptive::new(arm, borrowers, width, config, seed)?,
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
            score_unjudged: streamed && self.adaptive.scores_unjudged(),
            ..task.session.clone()
        };
        let cache = if arm.cache {
            let fresh = || NgramCache::new(self.bounds);
            Some(
                self.caches
                    .entry(task.pair.target.fingerprint())
                    .or_insert_with(fresh),
            )
        } else {
            None
        };
        let decode = self.config.decode.for_arm(&arm.draft, task.gamma);
        let mut examples = Vec::new();
        let mut policy = self.adaptive.policy(&decode, streamed, &mut examples)?;
        let drafter = match &mut self.drafter {
            Drafter::Model(drafter) => match &mut self.padding {
                Some(padding) if self.config.pads(task.phase) => {
                    padding.engine(self.learner.as_mut(), &self.config.decode)?
                }
                _ => drafter.as_mut(),
            },
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
            drop(policy);
            if streamed {
                self.adaptive.take_in(examples);
            }
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
        drop(policy);
        self.adaptive.take_in(examples);
        Ok((done, Some(lesson)))
    }

    /// Trains the acceptance head if it is its turn behind a streamed prompt; `updated` says
    /// whether the drafter has just been. At the `end` of a stream it learns what is left.
    ///
    /// # Errors
    /// A failed step.
    pub fn train_head(&mut self, updated: bool, end: bool) -> Result<Option<HeadUpdate>> {
        let distilled = self.learner.as_ref().map(|_| updated);
        self.adaptive.train(distilled, end)
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
    pub fn flush(&mut self) -> Result<Vec<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(Vec::new());
        };
        let learnt = learner.flush()?;
        let adopted = learnt.into_iter().map(|learnt| self.adopt(Some(learnt)));
        Ok(adopted
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Drafts and learns with the adapter that belongs to a target and a task from now on. The
    /// weights of the others stay packed, so that coming back moves pointers only.
    ///
    /// # Errors
    /// Lessons that were not [flushed](Self::flush).
    pub fn turn_to(&mut self, target: &str, task: &str) -> Result<()> {
        let (Some(learner), Drafter::Model(drafter)) = (&mut self.learner, &mut self.drafter)
        else {
            return Ok(());
        };
        let name = self.lora.key(target, task);
        let before = learner.adapter_name()?;
        if !learner.turn_to(&name)? {
            return Ok(());
        }
        let mut packed = match self.resident.remove(&name) {
            Some(packed) => packed,
            None => PackedWeights::new(
                &learner.weights()?,
                self.config.decode.weights.into(),
                Compact::Auto,
            )?,
        };
        drafter.swap_weights(&mut packed)?;
        self.weights_changed();
        if !before.is_empty() {
            self.resident.insert(before, packed);
        }
        Ok(())
    }

    /// Writes what was learnt: weights or adapters, n-gram caches, the acceptance head.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(&mut self, folder: &Path, drafter: &ModelFolder<DraftId>) -> Result<()> {
        state::save_caches(folder, drafter.vocabulary.fingerprint(), &self.caches)?;
        self.adaptive.save(folder)?;
        match &mut self.learner {
            Some(learner) => {
                learner.save(&folder.join(LEARNT), &drafter.path.display().to_string())
            }
            None => Ok(()),
        }
    }

    /// Goes on with what [`save`](Self::save) wrote; to be called before the first prompt.
    ///
    /// # Errors
    /// Files that are missing, malformed or of another drafter.
    pub fn load(&mut self, folder: &Path, drafter: &ModelFolder<DraftId>) -> Result<()> {
        self.caches = state::load_caches(folder, drafter.vocabulary.fingerprint())?;
        for cache in self.caches.values_mut() {
            cache.reconfigure(self.bounds);
        }
        self.adaptive.load(folder)?;
        self.weights_changed();
        if let Some(learner) = &mut self.learner {
            learner.load(&folder.join(LEARNT))?;
            if let Drafter::Model(engine) = &mut self.drafter {
                engine.load_weights(&learner.weights()?)?;
            }
        }
        Ok(())
    }

    fn weights_changed(&mut self) {
        if let Some(padding) = &mut self.padding {
            padding.engine = None;
        }
    }

    fn adopt(&mut self, learnt: Option<Learnt>) -> Result<Option<Update>> {
        let Some((update, weights)) = learnt else {
            return Ok(None);
        };
        self.weights_changed();
        if let Drafter::Model(drafter) = &mut self.drafter {
            drafter.load_weights(&weights)?;
        }
        if let Some(learner) = &mut self.learner {
            learner.give_back(weights);
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
