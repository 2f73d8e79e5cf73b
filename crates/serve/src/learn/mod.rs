//! The learner's thread: it receives examples from answers, sends updated weights to the decode
//! thread, and saves the state.

mod heads;
mod learners;
pub(crate) mod queue;
mod recorded;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, sync_channel};
use std::time::{Duration, Instant};

use distill_loss::Example;
use models::{Engine, Packed};
use online::{ArmState, LearntPart, LearntWeights, SavedState, StateFolder, Wanted};

use crate::decode::command::Command;
use crate::error::Result;
use crate::models::{Models, target_of};
use crate::options::{LearnOptions, LookupScope, Options};
use crate::stats::Stats;

use heads::Heads;
use learners::Learners;
use queue::{AnswerExamples, LearnerMessage, LearnerQueue};
pub use recorded::{KnownRow, RecordedAnswer, RecordedLearner};
use waiting::Waiting;

/// Maximum number of examples that wait for the learner; more are dropped.
const WAITING: usize = 64;
/// Time that the decode thread has to hand out what it knows.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);
/// Root seed of learning: of initial adapters, and of replay.
const SEED: u64 = 0;

/// The thread that learns and saves.
pub(crate) struct LearnerThread {
    models: Arc<Models>,
    options: Arc<Options>,
    stats: Arc<Stats>,
    messages: Receiver<LearnerMessage>,
    decoder: Sender<Command>,
    learners: Learners,
    heads: Heads,
    waiting: Waiting,
    /// Bytes of the examples that wait, here and in the queue.
    held: Arc<AtomicUsize>,
    state: Option<StateFolder>,
    next_update: Instant,
    next_save: Instant,
    /// True if something was learnt after the last saving, or if that failed.
    changed: bool,
    /// Number of answers with the drafter at the last saving. The n-grams and counters of answers
    /// that gave no example are saved as well.
    answers: u64,
}

impl LearnerThread {
    /// Starts from the state in `options.state`, if there is one, and sends its weights and heads
    /// to the decode thread at once.
    pub(crate) fn new(
        models: Arc<Models>,
        options: Arc<Options>,
        learn: LearnOptions,
        stats: Arc<Stats>,
        decoder: Sender<Command>,
        state: Option<StateFolder>,
    ) -> Result<(Self, LearnerQueue)> {
        let budget = options.example_bytes;
        let root = options.state.clone();
        let mut learners = Learners::new(learn, budget, Arc::clone(&models), root);
        let first = models.targets.first().map_or("", |target| &target.name);
        let needs = learners.of(first)?.needs();
        let (sender, messages) = sync_channel(WAITING);
        let held = Arc::new(AtomicUsize::new(0));
        let queue = LearnerQueue {
            messages: sender,
            needs,
            held: Arc::clone(&held),
            limit: budget,
        };
        let mut heads = Heads::new(&models, &options);
        publish_all(&mut learners, &mut heads, &options, &decoder)?;
        let thread = Self {
            heads,
            // The other half of the budget is for examples that are still in the queue.
            waiting: Waiting::new(learners.options.every, budget / 2),
            held,
            next_update: Instant::now(),
            next_save: Instant::now() + options.save_every,
            changed: false,
            answers: stats.answers(),
            models,
            options,
            stats,
            messages,
            decoder,
            learners,
            state,
        };
        Ok((thread, queue))
    }

    /// Learns until it is told to stop, then saves a last time.
    pub(crate) fn run(mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            let mut until = self.next_save;
            if self.waiting.due().is_some() {
                until = until.min(self.next_update);
            }
            match self
                .messages
                .recv_timeout(until.saturating_duration_since(now))
            {
                Ok(LearnerMessage::Answer(answer)) => self.take(*answer),
                Ok(LearnerMessage::Save) => self.save_now(),
                Ok(LearnerMessage::Stop(known)) => return self.save(*known),
                // The decode thread panicked, which is reported as that.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= self.next_update
                && let Some(name) = self.waiting.due()
            {
                self.update(&name);
            }
            if Instant::now() >= self.next_save {
                self.save_now();
            }
        }
    }

    fn take(&mut self, answer: AnswerExamples) {
        let name = self.learners.name(answer.adapter);
        self.changed = true;
        for (other, example) in self.waiting.push(&name, answer.example) {
            self.held.fetch_sub(example.bytes(), Ordering::Relaxed);
            self.stats.example_displaced();
            let target = target_of(&other);
            self.stats.tell(|own| own.drop_recording(target));
        }
        let distils = self.waiting.is_due(&name) && Instant::now() >= self.next_update;
        if self.options.adapt_length
            && let Err(error) = self.train_head(&name, answer.head_examples, distils)
        {
            let error = error.in_full();
            tracing::warn!(adapter = name, "a step of a head failed: {error}");
        }
    }

    /// Algorithm 4: a training step on a batch from R after every answer, except those after which
    /// the drafter is distilled.
    fn train_head(
        &mut self,
        name: &str,
        head_examples: Vec<adaptive_draft::Example>,
        distils: bool,
    ) -> Result<()> {
        self.heads.of(name)?.extend(head_examples);
        if distils {
            return Ok(());
        }
        let began = Instant::now();
        if let Some((head, steps, report)) = self.heads.step(name)? {
            self.stats.head_step(target_of(name), &report);
            let seconds = began.elapsed().as_secs_f64();
            self.stats.tell(|own| own.spent(target_of(name), seconds));
            // The decode thread is gone only when the server stops.
            let _ = self
                .decoder
                .send(Command::Head(name.to_owned(), head, steps));
        }
        Ok(())
    }

    fn update(&mut self, name: &str) {
        let pause = self.learners.options.updates_per_minute;
        let pause = pause.map(|n| Duration::from_secs_f64(60.0 / f64::from(n.max(1))));
        self.next_update = Instant::now() + pause.unwrap_or_default();
        let began = Instant::now();
        let learnt = self.try_update(name);
        if let Err(error) = &learnt {
            let error = error.in_full();
            tracing::warn!(adapter = name, "an update failed: {error}");
            self.stats.counters().update_failures += 1;
        }
        // An update that was taken is charged with what it learnt.
        if !learnt.unwrap_or(false) {
            let seconds = began.elapsed().as_secs_f64();
            self.stats.tell(|own| own.spent(target_of(name), seconds));
        }
    }

    /// Learns from the examples of an adapter. Returns true if the update was taken, and the
    /// controller was told of it; false if there was nothing to learn.
    fn try_update(&mut self, name: &str) -> Result<bool> {
        let examples = self.waiting.take(name);
        let bytes = examples.iter().map(Example::bytes).sum();
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        let began = Instant::now();
        let learner = self.learners.of(name)?;
        let mut learnt = None;
        for example in examples {
            learnt = learner.push(example)?.or(learnt);
        }
        if learnt.is_none() {
            // Examples that fill the room are fewer than those of an update.
            learnt = learner.flush()?.pop();
        }
        let Some((update, weights)) = learnt else {
            return Ok(false);
        };
        publish(name, &weights, &self.models, &self.options, &self.decoder)?;
        let learner = self.learners.of(name)?;
        learner.give_back(weights);
        let replayed = learner.replay_bytes()?;
        let target = target_of(name);
        self.stats.update(target, update.loss, update.seconds);
        // The controller counts the whole time, although decoding runs at the same time.
        let seconds = began.elapsed().as_secs_f64();
        self.stats
            .tell(|own| own.learnt(target, seconds, update.agreed));
        let key = self.learners.key(name);
        self.stats.counters().replayed.insert(key, replayed);
        self.changed = true;
        Ok(true)
    }

    fn save_now(&mut self) {
        self.next_save = Instant::now() + self.options.save_every;
        let answers = self.stats.answers();
        let counted = std::mem::replace(&mut self.answers, answers) != answers;
        let changed = std::mem::take(&mut self.changed) || counted;
        if self.state.is_none() || !changed {
            return;
        }
        let (reply, known) = std::sync::mpsc::channel();
        let asked = self.decoder.send(Command::Snapshot(reply)).is_ok();
        match known.recv_timeout(SNAPSHOT_TIMEOUT) {
            Ok(known) if asked => {
                if let Err(error) = self.save(known) {
                    tracing::error!("the state could not be saved: {}", error.in_full());
                    self.changed = true;
                }
            }
            _ => {
                tracing::warn!("the n-grams were not handed out; nothing is saved");
                self.changed = true;
            }
        }
    }

    fn save(&mut self, mut known: ArmState) -> Result<()> {
        let Some(state) = &mut self.state else {
            return Ok(());
        };
        // Counted here, not by the decode thread: it has ended before the last updates.
        self.stats.write_into(&mut known);
        let (learners, heads) = (&mut self.learners, &self.heads);
        let limit = self.options.state_bytes;
        let written = state.write(&known, &self.models.pairs(), limit, |to| {
            heads.save(to)?;
            learners.save(to)
        });
        self.stats.saved(written.as_ref().ok().copied());
        written?;
        Ok(())
    }
}

/// The inputs of the first block that learns, for a text that the drafter reads.
pub(crate) fn states_of(drafter: &mut Engine, ids: &[u32]) -> Result<Vec<f32>> {
    Ok(drafter.states_of(ids)?.to_vec())
}

/// Sends weights to the decode thread, packed.
fn publish(
    name: &str,
    weights: &LearntWeights,
    models: &Models,
    options: &Options,
    decoder: &Sender<Command>,
) -> Result<()> {
    let packed = match weights {
        LearntWeights::Whole(weights) => Packed::new(weights, options.drafter_engine())?,
        // The other blocks are the drafter's own, which the decode thread has.
        LearntWeights::Tail(tail) => {
            let base = models.drafter.engine(options.drafter_engine())?.packed()?;
            base.with_tail(tail, options.drafter_engine())?
        }
    };
    // The decode thread is gone only when the server stops.
    let _ = decoder.send(Command::Weights(name.to_owned(), Box::new(packed)));
    Ok(())
}

/// Opens the folder of a state, with what is known for the served targets.
pub(crate) fn open_state(
    models: &Models,
    options: &Options,
    part: Option<LearntPart>,
) -> Result<Option<(StateFolder, ArmState)>> {
    let Some(root) = &options.state else {
        return Ok(None);
    };
    let wanted = Wanted {
        drafter: &models.drafter.path,
        part,
        pairs: &models.pairs(),
        caches: options.cache_config(),
        text_bytes: options.lookup_bytes,
        texts: match options.lookup {
            Some(LookupScope::User) => |user| user.is_some(),
            Some(LookupScope::Shared) => |user| user.is_none(),
            Some(LookupScope::Own) | None => |_| false,
        },
    };
    Ok(Some(StateFolder::open(root, &wanted)?))
}

/// Sends the saved weights and heads of adapters whose targets are served to the decode thread; the
/// others stay on disk.
fn publish_all(
    learners: &mut Learners,
    heads: &mut Heads,
    options: &Options,
    decoder: &Sender<Command>,
) -> Result<()> {
    let models = Arc::clone(&learners.models);
    let served = |name: &str| models.targets.iter().any(|t| t.name == target_of(name));
    let saved = options.state.as_deref().map(SavedState::open).transpose()?;
    let adapters = match saved.flatten() {
        Some(saved) => saved.names()?,
        None => Vec::new(),
    };
    for name in adapters.iter().filter(|name| served(name)) {
        let weights = learners.of(name)?.weights()?;
        publish(name, &weights, &models, options, decoder)?;
    }
    if !options.adapt_length {
        return Ok(());
    }
    // A head may have been trained before its drafter.
    let targets = models.targets.iter().map(|target| &target.name);
    let names: BTreeSet<&String> = targets.chain(&adapters).collect();
    for name in names.into_iter().filter(|name| served(name)) {
        if let Some((head, steps)) = heads.known(name)? {
            let _ = decoder.send(Command::Head(name.clone(), head, steps));
        }
    }
    Ok(())
}

/// Like [`publish_all`], for a server that learns nothing.
pub(crate) fn publish_saved(
    models: &Arc<Models>,
    options: &Options,
    part: LearntPart,
    decoder: &Sender<Command>,
) -> Result<()> {
    let frozen = LearnOptions {
        rate: Some(0.0),
        rank: part.rank,
        blocks: Some(part.blocks),
        ..LearnOptions::default()
    };
    let mut learners = Learners::new(frozen, 0, Arc::clone(models), options.state.clone());
    let mut heads = Heads::new(models, options);
    publish_all(&mut learners, &mut heads, options, decoder)
}
