//! One arm at work: its drafter, its caches, its learner.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adaptive_draft::Way;
use anyhow::{Context, Result};
use lm::EngineSettings;
use ngram_cache::{NgramCache, static_table};
use serde::{Deserialize, Serialize};
use spec_decode::{
    DirectMap, Generation, LanguageModel, Lexicon, Pair, Prompt, RoundOutcome, Session,
    SessionConfig, StreamName, VerifyMode,
};
use vocab_align::{DraftId, TargetId};

use super::adaptive::{Adaptive, HeadUpdate};
use super::control::{Account, Control, Controlled, Watched};
use super::drafter_training::Update;
use super::example::{Example, Recorder};
use super::learner::{Learner, Learnt};
use super::lookups::Lookups;
use super::parts::Parts;
use super::relabel::{JudgedDraft, Rules};
use super::respond::{Onlookers, generate, look_up, recorder};
use super::specials::Specials;
use super::state;
use super::weights::LearntWeights;
use experiment::{ArmConfig, CacheUse, CostPadding, DraftSource, JobConfig, LoraSettings};
use models::{Engine, ModelFolder, Packed};
use streams::Split;

/// Folder of weights or adapters inside the folder of an arm.
pub(super) const LEARNT: &str = "drafter";

/// A prompt with everything it is asked under.
pub struct Question<'a> {
    /// Vocabularies.
    pub pair: &'a Pair,
    /// Session settings, but for the mode.
    pub session: &'a SessionConfig,
    /// The prompt in both vocabularies.
    pub prompt: Prompt<'a>,
    /// Names the random streams.
    pub name: StreamName,
    /// Streamed or held out.
    pub split: Split,
    /// Whether padded models answer.
    pub padded: bool,
}

impl Question<'_> {
    fn is_streamed(&self) -> bool {
        self.split == Split::Train
    }
}

/// An answer and what it teaches.
pub struct Answered {
    /// Its tokens and rounds.
    pub generation: Generation,
    /// The part that is still to be [learnt](ArmState::learn) from, on the stream.
    pub example: Option<Example>,
    /// Updates from parts of it, taken while it was made.
    pub updates: Vec<Update>,
    /// Seconds that these held it up.
    pub learn_seconds: f64,
}

impl Answered {
    fn without_learning(generation: Generation) -> Self {
        Self {
            generation,
            example: None,
            updates: Vec::new(),
            learn_seconds: 0.0,
        }
    }
}

/// What the drafter is padded with where padding costs.
struct PaddedDrafter {
    padding: CostPadding,
    folder: Arc<ModelFolder<DraftId>>,
    /// With the weights in use; `None` since they changed.
    engine: Option<Engine>,
    /// The weights in use, where the learner cannot give them because it is at work on the next.
    in_use: Option<LearntWeights>,
}

impl PaddedDrafter {
    /// The padded drafter with what `learner` has learnt.
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
                    // The last blocks do not learn alone where there is padding behind them.
                    Some(learnt) => {
                        let whole = learnt.into_whole();
                        let whole = whole.context("a padded drafter learns as a whole")?;
                        let padded = self.padding.pad(whole);
                        self.folder.engine_with(&padded, settings)?
                    }
                    None => self.folder.engine(settings)?,
                }
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

/// What an arm that drafts carries from prompt to prompt: drafter, n-grams, learner, head.
pub struct ArmState {
    config: ArmConfig,
    /// How the drafter is decoded.
    settings: EngineSettings,
    drafter: Drafter,
    /// Most tokens the drafter reads.
    positions: usize,
    padded: Option<PaddedDrafter>,
    /// By fingerprint of the target's vocabulary: targets of one family share what was learnt,
    /// another family starts anew.
    caches: BTreeMap<u64, NgramCache>,
    learner: Option<Learner>,
    /// Packed weights of the adapters that are not in use, by name.
    resident: BTreeMap<String, Packed>,
    adaptive: Adaptive,
    lookups: Lookups,
    control: Option<Control>,
    /// Whether the head's drafts are read again when it is trained.
    relabels: bool,
    /// The vocabularies of the last streamed answer and the rows of its target's head, if so.
    last_pair: Option<(Pair, usize)>,
    specials: Specials,
}

/// What an arm counts over a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ArmCounts {
    /// Updates of the drafter, and the prompts they learnt from.
    updates: u32,
    prompts: u32,
    /// Prompts as the acceptance head counts them.
    streamed: u32,
    specials: Specials,
}

impl ArmState {
    /// The state `arm` starts from, from which `guests` answer held-out prompts too, with the `padded`
    /// drafter where padding costs and the job pads it. The job's seed decides what the learner replays and what the head is trained on.
    ///
    /// # Errors
    /// A drafter the engine or the learner cannot take.
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
        let padding = job.models.drafter.padding;
        let adaptive = Adaptive::new(arm, guests, width, job.seed)?;
        let settings = arm
            .decode
            .drafter_engine()
            .on(job.models.device_of(&job.models.drafter));
        let mut own = match arm.decode.draft {
            DraftSource::PromptLookup => Drafter::Lookup(BTreeMap::new()),
            DraftSource::Model => {
                let mut engine = drafter.engine(settings)?;
                if let Some(blocks) = learner.as_ref().map(Learner::blocks).filter(|n| *n > 0) {
                    engine.keep_states(blocks).context("learn.blocks")?;
                }
                Drafter::Model(Box::new(engine))
            }
        };
        let engine = match &mut own {
            Drafter::Model(engine) => Some(engine.as_mut()),
            Drafter::Lookup(_) => None,
        };
        let control = Control::new(arm, engine, padded.is_some())?;
        Ok(Self {
            settings,
            positions: drafter.config().max_position_embeddings,
            drafter: own,
            control,
            padded: padded.map(|folder| PaddedDrafter {
                padding,
                folder: Arc::clone(folder),
                engine: None,
                in_use: None,
            }),
            caches: BTreeMap::new(),
            resident: BTreeMap::new(),
            learner,
            relabels: adaptive.relabels(),
            adaptive,
            last_pair: None,
            lookups: Lookups::default(),
            config: arm.clone(),
            specials: Specials::default(),
        })
    }

    fn lora(&self) -> LoraSettings {
        match self.learner {
            Some(_) => self.config.learn.lora,
            None => LoraSettings::default(),
        }
    }

    /// The special tokens that the target emitted on the stream, and what was learnt of them.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }

    /// The n-gram caches, by fingerprint of the target's vocabulary.
    pub fn caches(&self) -> &BTreeMap<u64, NgramCache> {
        &self.caches
    }

    /// The n-gram cache used with targets of this vocabulary, if there is one.
    pub fn cache(&self, pair: &Pair) -> Option<&NgramCache> {
        self.caches.get(&pair.target.fingerprint())
    }

    /// Answers a prompt as `arm` does, the arm of this state or a guest, and, on the stream, keeps
    /// what the answer teaches: draft, translate, verify and commit are the rounds of the
    /// [`Session`] (Algorithm 1).
    ///
    /// # Errors
    /// Failing models, impossible probabilities.
    pub fn answer(
        &mut self,
        arm: &ArmConfig,
        target: &mut Engine,
        question: &Question<'_>,
    ) -> Result<Answered> {
        let streamed = question.is_streamed();
        let control = self.control.as_mut().filter(|_| arm.decode.controller);
        let watched = control.map(|control| control.open(streamed));
        let way = watched.as_ref().map(Watched::way);
        let settings = SessionConfig {
            mode: match way {
                // Without proposals all modes are one, and this one prepares nothing.
                Some(Way::Plain) => VerifyMode::Tli,
                _ => arm.decode.verify.mode().unwrap_or(question.session.mode),
            },
            acceptance: arm.decode.acceptance.into(),
            drafter_reads: way.is_none_or(|way| matches!(way, Way::Learner | Way::Frozen)),
            learn_ngrams: streamed && arm.cache.source == CacheUse::Online,
            score_unjudged: streamed && self.adaptive.scores_unjudged(),
            ..question.session.clone()
        };
        let cache = cache_of(&mut self.caches, &self.config, arm, question.pair);
        let mut judged = Vec::new();
        let (lookup, vocabulary) = (arm.decode.lookup, question.pair.target.fingerprint());
        let source = self.lookups.source(&arm.decode, vocabulary);
        let costs = self.adaptive.costs();
        let policy = self.adaptive.policy(&arm.decode, streamed, &mut judged)?;
        let mut policy = self.lookups.policy(&arm.decode, costs, streamed, policy);
        if let Some(watched) = &watched {
            policy = Box::new(Controlled {
                inner: policy,
                watched,
                asked: false,
            });
        }
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
                    look_up(target, shared, settings, question, policy.as_mut(), source)?;
                drop(policy);
                self.adaptive.measure(&done.rounds);
                if streamed {
                    self.lookups.keep(lookup, vocabulary, source);
                }
                return Ok(Answered::without_learning(done));
            }
        };
        let swaps = self.control.as_mut().filter(|_| way == Some(Way::Frozen));
        if let Some(control) = swaps {
            control.swap(drafter)?;
        }
        let mut session = Session::new(&mut *drafter, target, question.pair.clone(), settings)?;
        if let Some(source) = source {
            session.look_up_in(source);
        }
        let rows = LanguageModel::<TargetId>::vocab_size(session.target());
        let records = watched.as_ref().is_none_or(Watched::records);
        let mut learner = self.learner.as_mut().filter(|_| streamed && records);
        let mut teacher = learner
            .as_ref()
            .map(|learner| recorder(&session, question.pair, cache.as_deref(), learner.terms()));
        let (unjudged, mut drafts) = (session.config().score_unjudged, Vec::new());
        let relabels = streamed && self.relabels;
        let mut show = |context: &[DraftId], round: &RoundOutcome| {
            drafts.extend(JudgedDraft::new(context, round, unjudged));
        };
        let mut parts = Parts::new(match own && way.is_none_or(|way| way == Way::Learner) {
            true => self.config.learn.within,
            false => 0,
        });
        let sampled = !question.session.sampling.is_greedy();
        let mut between = |session: &mut Session<&mut Engine, &mut Engine>,
                           recorder: Option<&Recorder>| {
            let whole = session.draft_context().len() <= self.positions;
            match (&mut learner, recorder) {
                (Some(learner), Some(recorder)) if whole && parts.due(session.response()) => {
                    parts.learn(session, recorder, learner, question, sampled)
                }
                _ => Ok(()),
            }
        };
        let onlookers = Onlookers {
            teacher: teacher.as_mut(),
            show: if relabels { Some(&mut show) } else { None },
            watched: watched.as_ref(),
            between: &mut between,
        };
        let done = generate(&mut session, question, cache, policy.as_mut(), onlookers)?;
        let example = learner.zip(teacher).map(|(learner, recorder)| {
            Example::new(
                (session.draft_context(), session.draft_lengths()),
                question.prompt.draft.len(),
                &done.tokens,
                recorder,
                question.pair,
                learner.terms(),
                learner.ends(),
            )
            .behind(parts.taught)
            .within(self.positions, &question.pair.draft)
        });
        let example = example.map(|example| Example { sampled, ..example });
        if let Some(example) = &example {
            self.specials
                .add(&arm.name, question.pair, &example.specials);
        }
        drop(policy);
        self.adaptive.measure(&done.rounds);
        let source = session.take_history();
        drop(session);
        let mut learns = true;
        if let (Some(control), Some(watched)) = (&mut self.control, watched) {
            if way == Some(Way::Frozen) {
                control.swap(drafter)?;
            }
            learns = streamed && control.close(watched, &done);
        }
        if streamed {
            self.lookups.keep(lookup, vocabulary, source);
            self.adaptive.take_in(judged, drafts);
            self.last_pair = relabels.then(|| (question.pair.clone(), rows));
        }
        let Parts {
            updates, seconds, ..
        } = parts;
        if !updates.is_empty() {
            self.weights_changed();
        }
        if let Some(control) = &mut self.control {
            let each = seconds / updates.len().max(1) as f64;
            for update in &updates {
                control.learnt(each, update.agreed);
            }
        }
        Ok(Answered {
            generation: done,
            example: example.filter(|_| learns),
            updates,
            learn_seconds: seconds,
        })
    }

    /// How the last streamed answer was made and what all have saved, where seconds decide.
    pub(super) fn account(&self) -> Option<Account> {
        self.control.as_ref().and_then(Control::account)
    }

    /// Trains the acceptance head if it is its turn behind a streamed prompt; `updated` says
    /// whether the drafter has just been. At the `end` of a stream it learns what is left.
    ///
    /// # Errors
    /// A failed step.
    pub fn train_head(&mut self, updated: bool, end: bool) -> Result<Option<HeadUpdate>> {
        let distilled = self.learner.as_ref().map(|_| updated);
        let sampling = self.config.decode.sampling()?;
        let merges = self
            .config
            .decode
            .verify
            .mode()
            .is_some_and(VerifyMode::uses_cache);
        let (drafter, caches, last) = (&mut self.drafter, &self.caches, &self.last_pair);
        let mut again = |drafts: &[&JudgedDraft]| {
            let (Drafter::Model(drafter), Some((pair, rows))) = (&mut *drafter, last) else {
                return Ok(Vec::new());
            };
            let columns = LanguageModel::<DraftId>::vocab_size(drafter.as_ref());
            let direct = DirectMap::new(&pair.alignment, columns, *rows);
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
        if let (Some(control), Some(step)) = (&mut self.control, &step) {
            control.spent(step.seconds);
        }
        Ok(step)
    }

    /// Learns from the example of the last answer; when an update is due, the drafter decodes with its
    /// weights from now on.
    ///
    /// # Errors
    /// A failed update.
    pub fn learn(&mut self, mut example: Example) -> Result<Option<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(None);
        };
        let began = Instant::now();
        if let Drafter::Model(drafter) = &mut self.drafter
            && learner.blocks() > 0
        {
            // The drafter has read all but the last of its tokens already.
            example.states = drafter.states_of(example.read())?.to_vec();
        }
        let update = learner.push(example)?;
        let update = self.adopt(update)?;
        self.charge(update.as_ref(), began);
        Ok(update)
    }

    /// Tells the controller what learning took since it `began`. An update that ran beside decoding is
    /// charged for all its time.
    fn charge(&mut self, update: Option<&Update>, began: Instant) {
        let held_up = began.elapsed().as_secs_f64();
        match (&mut self.control, update) {
            (Some(control), Some(update)) => {
                let beside = self.config.learn.asynchronous;
                control.learnt(if beside { update.seconds } else { held_up }, update.agreed);
            }
            (Some(control), None) => control.spent(held_up),
            (None, _) => {}
        }
    }

    /// Learns from what is buffered, before the target or the stream changes.
    ///
    /// # Errors
    /// A failed update.
    pub fn flush(&mut self) -> Result<Vec<Update>> {
        let Some(learner) = self.learner.as_mut() else {
            return Ok(Vec::new());
        };
        let began = Instant::now();
        let learnt = learner.flush()?;
        let mut updates = Vec::new();
        for learnt in learnt {
            updates.extend(self.adopt(Some(learnt))?);
        }
        // Two at most, of which the first ran beside decoding.
        if !updates.is_empty() {
            self.charge(updates.last(), began);
        }
        Ok(updates)
    }

    /// Drafts and learns with the adapter and the acceptance head that belong to a target and a task
    /// from now on. The
    /// weights of the others stay packed, so that coming back moves pointers only.
    ///
    /// # Errors
    /// Examples that were not [flushed](Self::flush).
    pub fn turn_to(&mut self, target: &str, task: &str) -> Result<()> {
        self.adaptive.turn_to(target, task);
        if let Some(control) = &mut self.control {
            control.turn_to(target, task);
        }
        let name = self.lora().key(target, task);
        let (Some(learner), Drafter::Model(drafter)) = (&mut self.learner, &mut self.drafter)
        else {
            return Ok(());
        };
        let before = learner.adapter_name()?;
        if !learner.turn_to(&name)? {
            return Ok(());
        }
        let mut packed = match self.resident.remove(&name) {
            Some(packed) => packed,
            None => match learner.weights()? {
                LearntWeights::Whole(whole) => Packed::new(&whole, self.settings)?,
                // The last blocks are packed anew each time: the others are the same for all.
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

    /// Writes what was learnt: weights or adapters, n-gram caches, acceptance heads. `pairs` are
    /// the drafter's with the targets of the job.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(
        &mut self,
        folder: &Path,
        drafter: &ModelFolder<DraftId>,
        pairs: &[&Pair],
    ) -> Result<()> {
        state::save_caches(folder, pairs, &self.caches)?;
        self.adaptive.save(folder)?;
        self.lookups.save(folder)?;
        if let Some(control) = &self.control {
            control.save(folder)?;
        }
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
    pub fn load(&mut self, folder: &Path, pairs: &[&Pair]) -> Result<()> {
        self.caches = state::load_caches(folder, pairs)?;
        for cache in self.caches.values_mut() {
            cache.reconfigure(self.config.cache.into());
        }
        self.adaptive.load(folder)?;
        self.lookups = Lookups::load(folder, &self.config.decode)?;
        if let Some(control) = &mut self.control {
            control.load(folder)?;
        }
        self.weights_changed();
        if let Some(learner) = &mut self.learner {
            learner.load(&folder.join(LEARNT))?;
            if let Drafter::Model(engine) = &mut self.drafter {
                learner.weights()?.load_into(engine)?;
            }
        }
        Ok(())
    }

    /// What is counted over a stream, for a checkpoint.
    ///
    /// # Errors
    /// An update under way.
    pub(super) fn counts(&mut self) -> Result<ArmCounts> {
        let learner = self.learner.as_mut();
        let (updates, prompts) = learner
            .map(Learner::counts)
            .transpose()?
            .unwrap_or_default();
        Ok(ArmCounts {
            updates,
            prompts,
            streamed: self.adaptive.prompts(),
            specials: self.specials.clone(),
        })
    }

    /// Counts on from a checkpoint.
    ///
    /// # Errors
    /// An update under way.
    pub(super) fn count_from(&mut self, counts: ArmCounts) -> Result<()> {
        if let Some(learner) = &mut self.learner {
            learner.count_from((counts.updates, counts.prompts))?;
        }
        self.adaptive.count_from(counts.streamed);
        self.specials = counts.specials;
        Ok(())
    }

    fn weights_changed(&mut self) {
        if let Some(padded) = &mut self.padded {
            (padded.engine, padded.in_use) = (None, None);
        }
    }

    fn adopt(&mut self, learnt: Option<Learnt>) -> Result<Option<Update>> {
        let Some((update, weights)) = learnt else {
            return Ok(None);
        };
        self.weights_changed();
        if let Drafter::Model(drafter) = &mut self.drafter {
            weights.load_into(drafter)?;
        }
        match (&mut self.learner, &mut self.padded) {
            // Until the next update is done nobody else has these weights.
            (Some(learner), Some(padded)) if learner.is_away() => padded.in_use = Some(weights),
            (Some(learner), _) => learner.give_back(weights),
            (None, _) => {}
        }
        Ok(Some(update))
    }
}

/// The n-grams `arm` merges with this pair, from the caches of the arm they belong to.
fn cache_of<'a>(
    caches: &'a mut BTreeMap<u64, NgramCache>,
    owner: &ArmConfig,
    arm: &ArmConfig,
    pair: &Pair,
) -> Option<&'a mut NgramCache> {
    let fresh = || match owner.cache.source {
        CacheUse::Static => static_table(&pair.draft, &pair.target, owner.cache.into()),
        _ => NgramCache::new(owner.cache.into()),
    };
    if arm.cache.source == CacheUse::None {
        return None;
    }
    let own = pair.target.fingerprint();
    if !owner.cache.keep {
        caches.retain(|other, _| *other == own);
    }
    Some(caches.entry(own).or_insert_with(fresh))
}
