//! An arm that drafts: its drafter, what it knows, and its learner.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adaptive_draft::{Answer, Controlled, Controller, ControllerConfig, CopyRecord, Costs, Way};
use distill_loss::{Example, Recorder};
use lm::EngineSettings;
use ngram_cache::NgramCache;
use serde::{Deserialize, Serialize};
use spec_decode::{
    Acceptance, DirectMap, Generation, LanguageModel, Lexicon, Pair, RoundOutcome, Session,
    SessionConfig, VerifyMode,
};
use vocab_align::DraftId;

use super::adaptive::{Adaptive, HeadUpdate};
use super::drafter_training::Update;
use super::error::{OnlineError, Result};
use super::learner::{Learner, Learnt};
use super::lookups::with_copies;
use super::ngrams::cache_of;
use super::parts::Parts;
use super::question::Question;
use super::record::Account;
use super::relabel::{JudgedDraft, Rules};
use super::respond::{Onlookers, generate, look_up};
use super::specials::Specials;
use super::start_costs::start_costs;
use super::state::{ArmState, LearntPart, SavedState, StateFolder, Wanted};
use super::weights::LearntWeights;
use experiment::{ArmConfig, CacheUse, DraftSource, JobConfig, Lookup, Scope};
use models::{Engine, ModelFolder, Packed};

/// An answer with its example for the learner.
pub struct Answered {
    /// Its tokens and rounds.
    pub generation: Generation,
    /// The part of a streamed answer that is still to be [learnt](DraftingArm::learn) from.
    pub example: Option<Example>,
    /// Updates from parts of the answer, made while it was decoded.
    pub updates: Vec<Update>,
}

/// The padded drafter, for prompts whose costs include padding.
struct PaddedDrafter {
    /// Number of idle inner columns of every MLP.
    width: usize,
    folder: Arc<ModelFolder<DraftId>>,
    /// Engine with the weights in use; `None` after a change of weights.
    engine: Option<Engine>,
    /// The weights in use, if the learner cannot provide them because an update is under way.
    in_use: Option<LearntWeights>,
}

impl PaddedDrafter {
    /// The padded drafter with the weights of `learner`.
    fn engine(
        &mut self,
        learner: Option<&mut Learner>,
        settings: EngineSettings,
    ) -> Result<&mut Engine> {
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => {
                let learnt = match (&self.in_use, learner) {
                    (Some(weights), _) => Some(weights.clone()),
                    (None, Some(learner)) => Some(learner.weights()?),
                    (None, None) => None,
                };
                match learnt {
                    Some(LearntWeights::Whole(whole)) => {
                        let padded = whole.pad_width(self.width);
                        self.folder.engine_with(&padded, settings)?
                    }
                    // Padding is added to whole checkpoints: the last blocks do not learn alone.
                    Some(LearntWeights::Tail(_)) => {
                        return Err(OnlineError::Internal("a padded drafter learns as a whole"));
                    }
                    None => self.folder.engine(settings)?,
                }
            }
        };
        Ok(self.engine.insert(engine))
    }
}

/// Source of drafts.
enum Drafter {
    /// A model.
    Model(Box<Engine>),
    /// Prompt lookup, which copies earlier text. Holds the pair of each target's vocabulary with
    /// itself, by fingerprint.
    Lookup(BTreeMap<u64, Pair>),
}

/// An arm with a drafter, what it knows ([`ArmState`]), and what trains drafter and head.
pub struct DraftingArm {
    config: ArmConfig,
    /// Engine settings of the drafter.
    settings: EngineSettings,
    drafter: Drafter,
    /// Maximum number of tokens that the drafter reads.
    positions: usize,
    padded: Option<PaddedDrafter>,
    /// Its knowledge. The chains in use are those of `adaptive`. Costs are measured only if
    /// decisions follow them, and there is a controller only if one decides.
    known: ArmState,
    /// The drafter's initial weights, if a controller may choose them. During an answer with them
    /// the engine has them, and the learnt ones are here.
    floor: Option<Packed>,
    /// The way of the last streamed answer under a controller.
    last_way: Option<Way>,
    /// Name of the target in use.
    target: String,
    learner: Option<Learner>,
    /// Packed weights of adapters that are not in use, by name.
    resident: BTreeMap<String, Packed>,
    adaptive: Adaptive,
    /// The vocabularies of the last streamed answer and the target's vocabulary size, if drafts are
    /// read again.
    last_pair: Option<(Pair, usize)>,
    specials: Specials,
}

/// Counters of an arm over a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ArmCounts {
    /// Number of updates of the drafter. `prompts`: number of prompts that they learnt from.
    updates: u32,
    prompts: u32,
    /// Number of prompts as the acceptance head counts them.
    streamed: u32,
    specials: Specials,
}

impl DraftingArm {
    /// The initial state of `arm`, which `guests` use for held-out prompts as well. `padded` is the
    /// drafter for prompts whose costs include padding, if the job pads it. The job's seed
    /// determines replay and the training of the head.
    ///
    /// # Errors
    /// A drafter that the engine or the learner does not support.
    pub fn new(
        arm: &ArmConfig,
        guests: &[&ArmConfig],
        drafter: &ModelFolder<DraftId>,
        padded: Option<&Arc<ModelFolder<DraftId>>>,
        job: &JobConfig,
    ) -> Result<Self> {
        let width = drafter.config().hidden_size;
        let learner = match arm.learns() {
            true => Some(Learner::new(&drafter.checkpoint()?, arm.learn, job.seed)?),
            false => None,
        };
        let adaptive = Adaptive::new(arm, guests, width, job.seed)?;
        let settings = arm
            .decode
            .drafter_engine(job.models.device_of(&job.models.drafter));
        let mut own = match arm.decode.draft {
            DraftSource::PromptLookup => Drafter::Lookup(BTreeMap::new()),
            DraftSource::Model => {
                let mut engine = drafter.engine(settings)?;
                let blocks = learner.as_ref().map(|learner| learner.needs().blocks);
                if let Some(blocks) = blocks.filter(|n| *n > 0) {
                    let kept = engine.keep_states(blocks);
                    kept.map_err(OnlineError::at("learn.blocks"))?;
                }
                Drafter::Model(Box::new(engine))
            }
        };
        let (mut known, mut floor) = (ArmState::default(), None);
        if let Drafter::Model(engine) = &mut own
            && arm.decode.controller
        {
            // Initial weights of a padded drafter are elsewhere and cannot be switched back to.
            if arm.learns() && padded.is_none() {
                floor = Some(engine.packed()?);
            }
            known.controller = Some(Controller::new(ControllerConfig {
                copies: arm.decode.lookup != Lookup::Off,
                learns: arm.learns(),
                frozen: floor.is_some(),
                ..ControllerConfig::default()
            }));
        }
        Ok(Self {
            settings,
            positions: drafter.config().max_position_embeddings,
            drafter: own,
            padded: padded.map(|folder| PaddedDrafter {
                width: job.models.drafter.pad_width,
                folder: Arc::clone(folder),
                engine: None,
                in_use: None,
            }),
            known,
            floor,
            last_way: None,
            target: String::new(),
            resident: BTreeMap::new(),
            learner,
            adaptive,
            last_pair: None,
            config: arm.clone(),
            specials: Specials::default(),
        })
    }

    /// The special tokens that the target emitted on the stream, with the number of times they were
    /// learnt.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }

    /// The n-gram caches, by fingerprint of the target's vocabulary.
    pub fn caches(&self) -> &BTreeMap<u64, NgramCache> {
        &self.known.caches
    }

    /// The n-gram cache for targets of this vocabulary, if there is one.
    pub fn cache(&self, pair: &Pair) -> Option<&NgramCache> {
        self.known.caches.get(&pair.target.fingerprint())
    }

    /// Forgets the costs that an earlier job measured: they are of another load or machine.
    pub(super) fn forget_costs(&mut self) {
        self.known.costs.clear();
    }

    /// Measures the costs of rounds with a target, if decisions follow them and there are none yet.
    pub(super) fn measure_start(&mut self, target: &mut Engine, padded: bool) -> Result<()> {
        if !self.config.decode.costs.measured || self.known.costs.contains_key(&self.target) {
            return Ok(());
        }
        let drafter = match (&mut self.drafter, &mut self.padded) {
            (Drafter::Lookup(_), _) => None,
            (Drafter::Model(_), Some(own)) if padded => {
                Some(own.engine(self.learner.as_mut(), self.settings)?)
            }
            (Drafter::Model(drafter), _) => Some(drafter.as_mut()),
        };
        let costs = start_costs(target, drafter)?;
        self.known.costs.insert(self.target.clone(), costs);
        Ok(())
    }

    /// Records the costs of a response's rounds, copied ones included, if decisions follow them.
    fn measure(&mut self, rounds: &[RoundOutcome]) {
        if self.config.decode.costs.measured {
            let costs = self.known.costs.entry(self.target.clone()).or_default();
            rounds.iter().for_each(|round| costs.observe(round));
        }
    }

    /// Answers a prompt as `arm`, which is the arm of this state or a guest. On the stream the
    /// answer's example is kept. The [`Session`] drafts, translates, verifies and commits in rounds
    /// (Algorithm 1).
    ///
    /// # Errors
    /// Errors of the models; impossible probabilities.
    pub fn answer(
        &mut self,
        arm: &ArmConfig,
        target: &mut Engine,
        question: &Question<'_>,
    ) -> Result<Answered> {
        let streamed = question.streamed;
        let relabels = streamed && self.adaptive.relabels();
        let controller = self.known.controller.as_mut();
        let controller = controller.filter(|_| arm.decode.controller);
        let controlled = controller.map(|controller| match streamed {
            true => controller.open(),
            false => controller.open_held_out(),
        });
        let way = controlled.as_ref().map(Answer::way);
        let records = controlled.as_ref().is_none_or(Answer::records);
        let settings = SessionConfig {
            mode: match way {
                // Without proposals all modes are equal; this one needs no preparation.
                Some(Way::Plain) => VerifyMode::Tli,
                _ => arm.decode.verify.unwrap_or(question.session.mode),
            },
            acceptance: match way {
                // Judging a block draws a number for every token, also without proposals.
                Some(Way::Plain) => Acceptance::Token,
                _ => arm.decode.acceptance,
            },
            drafter_reads: way.is_none_or(Way::drafts),
            learn_ngrams: streamed && arm.cache.source == CacheUse::Online,
            alternatives: match way {
                Some(Way::Plain) => 0,
                _ => arm.decode.alternatives,
            },
            ..question.session.clone()
        };
        let mut judged = Vec::new();
        let (lookup, vocabulary) = (arm.decode.lookup, question.pair.target.fingerprint());
        let source = self.known.source(&arm.decode, vocabulary);
        let given = Costs::from(&self.config.decode.costs);
        let costs = match self.known.costs.get(&self.target) {
            Some(measured) => measured.costs(&given),
            None => given,
        };
        let cache = cache_of(&mut self.known.caches, &self.config, arm, question.pair);
        let record = self.known.copies.entry(self.target.clone()).or_default();
        let before = (record.clone(), costs.clone());
        let policy = self
            .adaptive
            .policy(&arm.decode, &costs, streamed, &mut judged)?;
        let policy = with_copies(record, &arm.decode, costs, way, streamed, policy);
        let mut policy = Controlled::new(policy, controlled);
        let own = !(question.padded && self.padded.is_some());
        let drafter = match &mut self.drafter {
            Drafter::Model(drafter) => match &mut self.padded {
                Some(padded) if question.padded => {
                    padded.engine(self.learner.as_mut(), self.settings)?
                }
                _ => drafter.as_mut(),
            },
            Drafter::Lookup(pairs) => {
                let shared = pairs
                    .entry(vocabulary)
                    .or_insert_with(|| Pair::shared(question.pair.target.clone()));
                let (done, source) =
                    look_up(target, shared, settings, question, &mut policy, source)?;
                drop(policy);
                self.measure(&done.rounds);
                if streamed {
                    self.known.keep(lookup, vocabulary, source);
                }
                return Ok(Answered {
                    generation: done,
                    example: None,
                    updates: Vec::new(),
                });
            }
        };
        let mut session = Session::new(drafter, target, question.pair.clone(), settings)?;
        let mut floor = self.floor.as_mut().filter(|_| way == Some(Way::Frozen));
        if let Some(floor) = &mut floor {
            session.change_drafter(|drafter| drafter.swap_weights(floor))?;
        }
        if let Some(source) = source {
            session.look_up_in(source);
        }
        let rows = session.target().vocab_size();
        let learner = self.learner.as_mut().filter(|_| streamed && records);
        let mut onlookers = Onlookers {
            learning: learner.map(|learner| {
                let losses = learner.needs().losses;
                (learner, Recorder::new(&question.pair.alignment, losses))
            }),
            drafts: relabels.then(Vec::new),
            parts: Parts {
                size: match way {
                    None | Some(Way::Learner) if own => self.config.learn.within,
                    _ => 0,
                },
                positions: self.positions,
                ..Parts::default()
            },
        };
        let done = generate(&mut session, question, cache, &mut policy, &mut onlookers);
        if let Some(floor) = floor {
            // After an error, too: else the learnt weights would count as the first ones.
            session.change_drafter(|drafter| drafter.swap_weights(floor))?;
        }
        let done = done?;
        let Onlookers {
            learning,
            drafts,
            parts,
        } = onlookers;
        let example = learning.map(|(learner, recorder)| {
            let prompt = question.prompt.draft.len();
            let example = learner
                .needs()
                .part(&session, prompt, recorder, question.pair);
            let example = example.after(parts.taught);
            example.within(self.positions, &question.pair.draft)
        });
        if let Some(example) = &example {
            self.specials
                .add(&arm.name, question.pair, &example.specials);
        }
        let controlled = policy.end();
        drop(policy);
        let source = session.take_history();
        drop(session);
        self.measure(&done.rounds);
        let mut learns = true;
        if let Some(mut answer) = controlled {
            let source = self.known.source(&arm.decode, vocabulary);
            if let Some(mut source) = source.filter(|_| streamed) {
                let (mut record, costs) = before;
                answer.would_copy(|| {
                    source.start(question.prompt.target);
                    record.replay(&mut source, &costs, &done.tokens)
                });
            }
            let controller = self.known.controller.as_mut().filter(|_| streamed);
            learns = controller.is_some_and(|controller| {
                self.last_way = Some(answer.way());
                let rejected = done.rounds.iter().map(|r| r.proposed() - r.accepted).sum();
                controller.close(answer, rejected)
            });
        }
        if streamed {
            self.known.keep(lookup, vocabulary, source);
            // One head for all targets: drafts for another vocabulary cannot be read again.
            let last = self.last_pair.as_ref().filter(|_| relabels);
            if self.config.head.per == Scope::Run
                && last.is_some_and(|(last, _)| last.target.fingerprint() != vocabulary)
            {
                self.adaptive.forget_drafts();
            }
            self.adaptive.take_in(judged, drafts.unwrap_or_default());
            self.last_pair = relabels.then(|| (question.pair.clone(), rows));
        }
        let Parts {
            updates, seconds, ..
        } = parts;
        if !updates.is_empty() {
            self.weights_changed();
        }
        if let Some(controller) = &mut self.known.controller {
            // Parts that led to no update took time, too.
            if updates.is_empty() && seconds > 0.0 {
                controller.spent(&self.target, seconds);
            }
            let each = seconds / updates.len().max(1) as f64;
            for update in &updates {
                controller.learnt(&self.target, each, update.agreed);
            }
        }
        Ok(Answered {
            generation: done,
            example: example.filter(|_| learns),
            updates,
        })
    }

    /// The way of the last streamed answer, and the seconds saved by all answers. `None` without a
    /// controller, or before the first such answer.
    pub(super) fn account(&self) -> Option<Account> {
        let controller = self.known.controller.as_ref()?;
        Some(Account {
            way: self.last_way?,
            saved: controller.ledger().saved(),
        })
    }

    /// Trains the acceptance head if a training step is due after a streamed prompt. `updated` is
    /// true if that prompt's update has just trained the drafter. At the `end` of a stream the
    /// remaining examples are used.
    ///
    /// # Errors
    /// A failed training step.
    pub fn train_head(&mut self, updated: bool, end: bool) -> Result<Option<HeadUpdate>> {
        let distilled = self.learner.as_ref().map(|_| updated);
        let sampling = self.config.decode.sampling()?;
        let mode = self.config.decode.verify;
        let merges = mode.is_some_and(VerifyMode::uses_cache);
        let (drafter, caches, last) = (&mut self.drafter, &self.known.caches, &self.last_pair);
        let mut again = |drafts: &[&JudgedDraft]| {
            let (Drafter::Model(drafter), Some((pair, rows))) = (&mut *drafter, last) else {
                return Ok(Vec::new());
            };
            let columns = drafter.vocab_size();
            let direct = DirectMap::from_pairs(pair.alignment.pairs(), columns, *rows);
            let cache = caches.get(&pair.target.fingerprint()).filter(|_| merges);
            let lexicon = Lexicon::new(&direct, cache);
            let rules = Rules {
                lexicon,
                sampling,
                vocabulary: &pair.draft,
            };
            rules.examples(drafter, drafts.iter().copied())
        };
        let step = self.adaptive.train(distilled, end, &mut again)?;
        if let (Some(controller), Some(step)) = (&mut self.known.controller, &step) {
            controller.spent(&self.target, step.seconds);
        }
        Ok(step)
    }

    /// Gives the example of the last answer to the learner. After an update the drafter decodes
    /// with the new weights.
    ///
    /// # Errors
    /// A failed update.
    pub fn learn(&mut self, mut example: Example) -> Result<Option<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(None);
        };
        let began = Instant::now();
        if let Drafter::Model(drafter) = &mut self.drafter
            && learner.needs().blocks > 0
        {
            // The drafter has read all but the last token of the example already.
            example.states = drafter.states_of(example.read())?.to_vec();
        }
        let learnt = learner.push(example)?;
        let update = learnt.map(|learnt| self.adopt(learnt)).transpose()?;
        self.charge(update.as_ref(), began);
        Ok(update)
    }

    /// Charges the controller with the seconds of learning since `began`; for an asynchronous
    /// update, with all of its seconds.
    fn charge(&mut self, update: Option<&Update>, began: Instant) {
        let held_up = began.elapsed().as_secs_f64();
        match (&mut self.known.controller, update) {
            (Some(controller), Some(update)) => {
                let beside = self.config.learn.asynchronous;
                let seconds = if beside { update.seconds } else { held_up };
                controller.learnt(&self.target, seconds, update.agreed);
            }
            (Some(controller), None) => controller.spent(&self.target, held_up),
            (None, _) => {}
        }
    }

    /// Learns from the buffered examples, before the target or the stream changes.
    ///
    /// # Errors
    /// A failed update.
    pub fn flush(&mut self) -> Result<Vec<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(Vec::new());
        };
        let began = Instant::now();
        let learnt = learner.flush()?.into_iter();
        let updates = learnt.map(|learnt| self.adopt(learnt));
        let updates = updates.collect::<Result<Vec<Update>>>()?;
        // Two updates only if they are asynchronous, and then each is charged its own seconds.
        for update in &updates {
            self.charge(Some(update), began);
        }
        Ok(updates)
    }

    /// Switches to the adapter and the acceptance head of a target and a task. The weights of other
    /// adapters stay packed, so that switching back only exchanges pointers.
    ///
    /// # Errors
    /// Examples that were not [flushed](Self::flush); an update is under way.
    pub fn turn_to(&mut self, target: &str, task: &str) -> Result<()> {
        self.adaptive.turn_to(target, task);
        target.clone_into(&mut self.target);
        if let Some(controller) = &mut self.known.controller {
            controller.turn_to(target, task);
        }
        let (Some(learner), Drafter::Model(drafter)) = (&mut self.learner, &mut self.drafter)
        else {
            return Ok(());
        };
        let name = self.config.learn.lora.key(target, task);
        let before = learner.training()?.name().to_owned();
        if !learner.turn_to(&name)? {
            return Ok(());
        }
        let mut packed = match self.resident.remove(&name) {
            Some(packed) => packed,
            None => match learner.weights()? {
                LearntWeights::Whole(whole) => Packed::new(&whole, self.settings)?,
                // The last blocks are packed anew each time; the other blocks are the same for all.
                tail => {
                    tail.load_into(drafter)?;
                    self.weights_changed();
                    return Ok(());
                }
            },
        };
        drafter.swap_weights(&mut packed)?;
        self.weights_changed();
        if !before.is_empty() {
            self.resident.insert(before, packed);
        }
        Ok(())
    }

    fn wanted<'a>(&self, drafter: &'a Path, pairs: &'a [&'a Pair]) -> Wanted<'a> {
        let learn = &self.config.learn;
        Wanted {
            drafter,
            part: self.learner.as_ref().map(|_| LearntPart {
                rank: learn.lora.rank,
                blocks: learn.blocks,
            }),
            pairs,
            caches: self.config.cache.into(),
            text_bytes: self.config.decode.lookup_mb << 20,
            texts: |user| user.is_none(),
        }
    }

    /// Writes what the arm knows, with weights or adapters and acceptance heads, as the state in
    /// `root`. `pairs` are the drafter's pairs with the targets of the job.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(&mut self, root: &Path, drafter: &Path, pairs: &[&Pair]) -> Result<()> {
        let (mut folder, _) = StateFolder::open(root, &self.wanted(drafter, pairs))?;
        // A record without observations says nothing.
        self.known
            .copies
            .retain(|_, record| *record != CopyRecord::default());
        self.known.chains = self.adaptive.chains();
        let (adaptive, learner) = (&self.adaptive, &mut self.learner);
        folder.write(&self.known, pairs, u64::MAX, |to| {
            adaptive.save_heads(to)?;
            learner
                .as_mut()
                .map_or(Ok(()), |learner| to.weights(learner))
        })?;
        Ok(())
    }

    /// Continues from the state in `root`; to be called before the first prompt.
    ///
    /// # Errors
    /// No state; files that are missing, malformed or of another drafter.
    pub fn load(&mut self, root: &Path, drafter: &Path, pairs: &[&Pair]) -> Result<()> {
        let saved = SavedState::of_arm(root)?;
        saved.check_caches(pairs)?;
        let mut known = saved.load(&self.wanted(drafter, pairs))?;
        self.adaptive.load(&saved, &known)?;
        if !self.config.decode.costs.measured {
            known.costs.clear();
        }
        // The present settings decide if there is a controller, and how it decides.
        let own = self.known.controller.take();
        known.controller = own.map(|own| match known.controller.take() {
            Some(mut earlier) => {
                earlier.reconfigure(own.config());
                earlier
            }
            None => own,
        });
        self.known = known;
        self.weights_changed();
        if let Some(learner) = &mut self.learner {
            learner.load(&saved.learnt())?;
            if let Drafter::Model(engine) = &mut self.drafter {
                learner.weights()?.load_into(engine)?;
            }
        }
        Ok(())
    }

    /// The counters of a stream, for a checkpoint.
    pub(super) fn counts(&mut self) -> Result<ArmCounts> {
        let mut counts = ArmCounts {
            streamed: self.adaptive.prompts,
            specials: self.specials.clone(),
            ..ArmCounts::default()
        };
        if let Some(learner) = &mut self.learner {
            let training = learner.training()?;
            (counts.updates, counts.prompts) = (training.updates, training.prompts);
        }
        Ok(counts)
    }

    /// Restores the counters from a checkpoint.
    pub(super) fn count_from(&mut self, counts: ArmCounts) -> Result<()> {
        if let Some(learner) = &mut self.learner {
            let training = learner.training()?;
            (training.updates, training.prompts) = (counts.updates, counts.prompts);
        }
        self.adaptive.prompts = counts.streamed;
        self.specials = counts.specials;
        Ok(())
    }

    fn weights_changed(&mut self) {
        if let Some(padded) = &mut self.padded {
            (padded.engine, padded.in_use) = (None, None);
        }
    }

    fn adopt(&mut self, (update, weights): Learnt) -> Result<Update> {
        self.weights_changed();
        if let Drafter::Model(drafter) = &mut self.drafter {
            weights.load_into(drafter)?;
        }
        match (&mut self.learner, &mut self.padded) {
            // Until the next update is done, these weights are held nowhere else.
            (Some(learner), Some(padded)) if learner.is_away() => padded.in_use = Some(weights),
            (Some(learner), _) => learner.give_back(weights),
            (None, _) => {}
        }
        Ok(update)
    }
}
