//! The learner's thread: examples come in from answers, updates go back to the decode thread as
//! packed weights, and what was learnt goes to the disk.

mod heads;
mod learners;
mod saved;
mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use adaptive_draft::SCALARS;
use anyhow::Result;
use models::Packed;
use online::{Example, LearntWeights};

use crate::decode::{Command, Kept, target_of, terms_of};
use crate::models::Models;
use crate::options::{LearnOptions, LearnScope, Options};
use crate::stats::Stats;

use heads::Heads;
use learners::Learners;
pub use saved::{LearntBy, SavedState};
pub(crate) use state::{Saved, State};

/// Examples that wait for the learner; more are dropped.
const WAITING: usize = 64;
/// Time the decode thread has to hand out its n-grams.
const PATIENCE: Duration = Duration::from_secs(60);
/// Root of what is random in learning: how adapters begin, and what is replayed.
const SEED: u64 = 0;

/// What the learner wants to know of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// What it minimises.
    pub(crate) losses: experiment::Terms,
    /// Whether special tokens are learnt.
    pub(crate) ends: bool,
    /// The last blocks that learn, from what entered them; 0 where all do.
    pub(crate) blocks: usize,
}

/// What a finished answer teaches.
struct Lesson {
    adapter: String,
    /// The drafter.
    example: Example,
    /// The acceptance head, where there is one.
    judged: Vec<adaptive_draft::Example>,
}

/// A note to the learner.
enum Note {
    Lesson(Box<Lesson>),
    Save,
    Stop,
}

/// Where the decode thread leaves examples.
#[derive(Clone)]
pub(crate) struct Mailbox {
    notes: SyncSender<Note>,
    terms: Terms,
    /// Bytes of the examples that wait, and the most.
    held: Arc<AtomicUsize>,
    limit: usize,
}

impl Mailbox {
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Hands over what an answer teaches, unless too much waits: decoding never waits for learning.
    pub(crate) fn offer(
        &self,
        adapter: &str,
        example: Example,
        judged: Vec<adaptive_draft::Example>,
        stats: &Stats,
    ) {
        let bytes = example.bytes();
        let fits = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.limit;
        let lesson = Lesson {
            adapter: adapter.to_owned(),
            example,
            judged,
        };
        let taken = fits && self.notes.try_send(Note::Lesson(Box::new(lesson))).is_ok();
        if !taken {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        stats.example(taken);
    }
}

/// The thread that learns and saves. Without learning it saves n-grams alone.
pub(crate) struct Teaching {
    models: Arc<Models>,
    options: Arc<Options>,
    stats: Arc<Stats>,
    notes: Receiver<Note>,
    decoder: Sender<Command>,
    learners: Learners,
    heads: Heads,
    waiting: BTreeMap<String, VecDeque<Example>>,
    /// Bytes of the examples that wait, here and on their way.
    held: Arc<AtomicUsize>,
    state: Option<State>,
    next_update: Instant,
    next_save: Instant,
    /// Whether something was learnt behind the last saving.
    changed: bool,
    /// Answers with the drafter at the last saving: n-grams and seconds of those that nothing else was
    /// learnt from are saved, too.
    answers: u64,
}

/// The other ends of a [`Teaching`].
pub(crate) struct Handle {
    notes: SyncSender<Note>,
    pub(crate) mailbox: Mailbox,
}

impl Handle {
    /// Saves soon.
    pub(crate) fn save(&self) {
        // A full mailbox means that it is at work; it saves by itself in time.
        let _ = self.notes.try_send(Note::Save);
    }

    /// No more notes come.
    pub(crate) fn stop(&self) {
        let _ = self.notes.send(Note::Stop);
    }
}

impl Teaching {
    /// Goes on with what `saved` holds; its weights go to the decode thread at once.
    pub(crate) fn new(
        models: Arc<Models>,
        options: Arc<Options>,
        learn: LearnOptions,
        stats: Arc<Stats>,
        decoder: Sender<Command>,
        (state, saved): (Option<State>, &Saved),
    ) -> Result<(Self, Handle)> {
        let budget = options.example_bytes;
        let mut learners = Learners::new(learn, budget, Arc::clone(&models), saved);
        let first = models.targets.first().map_or("", |target| &target.name);
        let terms = terms_of(learners.of(first)?);
        let (sender, notes) = sync_channel(WAITING);
        let held = Arc::new(AtomicUsize::new(0));
        let mailbox = Mailbox {
            notes: sender.clone(),
            terms,
            held: Arc::clone(&held),
            limit: budget,
        };
        let mut teaching = Self {
            heads: heads_of(&models, saved),
            waiting: BTreeMap::new(),
            held,
            next_update: Instant::now(),
            next_save: Instant::now() + options.save_every,
            changed: false,
            answers: stats.sums().answers(),
            models,
            options,
            stats,
            notes,
            decoder,
            learners,
            state,
        };
        publish_all(
            (&mut teaching.learners, &mut teaching.heads),
            &saved.adapters,
            &teaching.options,
            &teaching.decoder,
        )?;
        let handle = Handle {
            notes: sender,
            mailbox,
        };
        Ok((teaching, handle))
    }

    /// Learns until it is told to stop, then waits for `caches` and saves a last time.
    pub(crate) fn run(mut self, caches: &Receiver<Kept>) {
        loop {
            let now = Instant::now();
            let mut until = self.next_save;
            if self.due().is_some() {
                until = until.min(self.next_update);
            }
            match self
                .notes
                .recv_timeout(until.saturating_duration_since(now))
            {
                Ok(Note::Lesson(lesson)) => self.take(*lesson),
                Ok(Note::Save) => self.save_now(),
                Ok(Note::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= self.next_update
                && let Some(name) = self.due()
            {
                self.update(&name);
            }
            if Instant::now() >= self.next_save {
                self.save_now();
            }
        }
        if let Ok(caches) = caches.recv_timeout(PATIENCE) {
            self.save(&caches);
        }
    }

    fn take(&mut self, lesson: Lesson) {
        let name = self.learners.name(lesson.adapter);
        let every = self.learners.options.every;
        let waiting = self.waiting.entry(name.clone()).or_default();
        waiting.push_back(lesson.example);
        self.changed = true;
        // Where updates are limited, the latest answers are the ones to learn from.
        while waiting.len() > every {
            let oldest = waiting.pop_front();
            let bytes = oldest.map_or(0, |example| example.bytes());
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            self.stats.example(false);
        }
        let distils = waiting.len() >= every && Instant::now() >= self.next_update;
        if self.options.adapt_length
            && let Err(error) = self.train_head(&name, lesson.judged, distils)
        {
            tracing::warn!(adapter = name, "a step of a head failed: {error:#}");
        }
    }

    /// Algorithm 4: a step on a batch from R behind every answer but those that the drafter is
    /// distilled behind.
    fn train_head(
        &mut self,
        name: &str,
        judged: Vec<adaptive_draft::Example>,
        distils: bool,
    ) -> Result<()> {
        self.heads.extend(name, judged)?;
        if distils {
            return Ok(());
        }
        let began = Instant::now();
        if let Some((head, steps, report)) = self.heads.step(name)? {
            self.stats.head_step(target_of(name), &report);
            let seconds = began.elapsed().as_secs_f64();
            self.stats.spent(target_of(name), seconds);
            // It is gone only where everything ends.
            let _ = self
                .decoder
                .send(Command::Head(name.to_owned(), head, steps));
        }
        Ok(())
    }

    /// An adapter that has the examples of an update.
    fn due(&self) -> Option<String> {
        let every = self.learners.options.every;
        let due = self
            .waiting
            .iter()
            .find(|(_, waiting)| waiting.len() >= every);
        due.map(|(name, _)| name.clone())
    }

    fn update(&mut self, name: &str) {
        let pause = self.learners.options.updates_per_minute;
        let pause = pause.map(|n| Duration::from_secs_f64(60.0 / f64::from(n.max(1))));
        self.next_update = Instant::now() + pause.unwrap_or_default();
        if let Err(error) = self.try_update(name) {
            tracing::warn!(adapter = name, "an update failed: {error:#}");
            self.stats.update_failed();
            // What it holds may be half an update: it goes on from what was saved.
            self.learners.forget(name);
        }
    }

    fn try_update(&mut self, name: &str) -> Result<()> {
        let examples = self.waiting.remove(name).unwrap_or_default();
        let bytes = examples.iter().map(Example::bytes).sum();
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        let began = Instant::now();
        let learner = self.learners.of(name)?;
        let mut learnt = None;
        for example in examples {
            learnt = learner.push(example)?.or(learnt);
        }
        let Some((update, weights)) = learnt else {
            return Ok(());
        };
        publish(name, &weights, (&self.models, &self.options), &self.decoder)?;
        let learner = self.learners.of(name)?;
        learner.give_back(weights);
        let replayed = learner.replay_bytes()?;
        let target = target_of(name);
        self.stats.update(target, update.loss, update.seconds);
        // Beside decoding, it is charged for all its time.
        self.stats
            .learnt(target, began.elapsed().as_secs_f64(), update.agreed);
        self.stats.replayed(self.learners.key(name), replayed);
        self.changed = true;
        Ok(())
    }

    fn save_now(&mut self) {
        self.next_save = Instant::now() + self.options.save_every;
        let answers = self.stats.sums().answers();
        let counted = std::mem::replace(&mut self.answers, answers) != answers;
        let changed = std::mem::take(&mut self.changed) || counted;
        if self.state.is_none() || !changed {
            return;
        }
        let (reply, caches) = std::sync::mpsc::channel();
        let asked = self.decoder.send(Command::Caches(reply)).is_ok();
        match caches.recv_timeout(PATIENCE) {
            Ok(caches) if asked => self.save(&caches),
            _ => tracing::warn!("the n-grams were not handed out; nothing is saved"),
        }
    }

    fn save(&mut self, caches: &Kept) {
        let Some(state) = &mut self.state else {
            return;
        };
        let (learners, heads) = (&mut self.learners, &self.heads);
        let written = state.write(&self.models, caches, &self.stats.sums(), |to| {
            heads.save(to.heads)?;
            learners.save(to.learnt)
        });
        match written {
            Ok(bytes) => self.stats.saved(Some(bytes)),
            Err(error) => {
                self.stats.saved(None);
                tracing::error!("the state could not be saved: {error:#}");
            }
        }
    }
}

/// Sends weights to the decode thread, packed.
fn publish(
    name: &str,
    weights: &LearntWeights,
    (models, options): (&Models, &Options),
    decoder: &Sender<Command>,
) -> Result<()> {
    let packed = match weights {
        LearntWeights::Whole(weights) => Packed::new(weights, options.drafter_engine())?,
        // The decode thread holds the others, which are the drafter's own.
        LearntWeights::Tail(tail) => {
            let base = models.drafter.engine(options.drafter_engine())?.packed()?;
            base.with_tail(tail, options.drafter_engine())?
        }
    };
    // It is gone only where everything ends.
    let _ = decoder.send(Command::Weights(name.to_owned(), Box::new(packed)));
    Ok(())
}

/// The heads of a drafter, as they were saved.
fn heads_of(models: &Models, saved: &Saved) -> Heads {
    let features = models.drafter.config().hidden_size + SCALARS;
    Heads::new(features, saved.heads.clone())
}

/// Sends what adapters of targets that are served had learnt before, and their heads; the others stay
/// where they are.
fn publish_all(
    (learners, heads): (&mut Learners, &mut Heads),
    adapters: &[String],
    options: &Options,
    decoder: &Sender<Command>,
) -> Result<()> {
    let models = Arc::clone(&learners.models);
    let served = |name: &str| models.targets.iter().any(|t| t.name == target_of(name));
    for name in adapters.iter().filter(|name| served(name)) {
        let weights = learners.of(name)?.weights()?;
        publish(name, &weights, (&models, options), decoder)?;
    }
    if !options.adapt_length {
        return Ok(());
    }
    // A head may have learnt before its drafter did.
    let targets = models.targets.iter().map(|target| &target.name);
    let names: BTreeSet<&String> = targets.chain(adapters).collect();
    for name in names.into_iter().filter(|name| served(name)) {
        if let Some((head, steps)) = heads.known(name)? {
            let _ = decoder.send(Command::Head(name.clone(), head, steps));
        }
    }
    Ok(())
}

/// As [`publish_all`] for a server that learns nothing.
pub(crate) fn publish_saved(
    models: &Arc<Models>,
    options: &Options,
    state: Option<&State>,
    saved: &Saved,
    decoder: &Sender<Command>,
) -> Result<()> {
    let Some(state) = state else {
        return Ok(());
    };
    let frozen = LearnOptions {
        every: 1,
        rate: Some(0.0),
        rank: state.cut().rank,
        blocks: Some(state.cut().blocks),
        updates_per_minute: None,
        scope: LearnScope::Target,
    };
    let mut learners = Learners::new(frozen, 0, Arc::clone(models), saved);
    let mut heads = heads_of(models, saved);
    let learnt = (&mut learners, &mut heads);
    publish_all(learnt, &saved.adapters, options, decoder)
}
