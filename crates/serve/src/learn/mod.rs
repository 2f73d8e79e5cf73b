//! The learner's thread: examples come in from answers, updates go back to the decode thread as
//! packed weights, and what was learnt goes to the disk.

mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use experiment::{LearnConfig, LoraSettings, ObjectiveName};
use models::Packed;
use online::{Example, Learner};

use crate::decode::{Command, Kept, terms_of};
use crate::models::Models;
use crate::options::{LearnOptions, LearnScope, MOST_ADAPTERS, Options};
use crate::stats::Stats;

pub(crate) use state::{Saved, State};

/// Examples that wait for the learner; more are dropped.
const WAITING: usize = 64;
/// Time the decode thread has to hand out its n-grams.
const PATIENCE: Duration = Duration::from_secs(60);
/// Root of what is random in learning: how adapters begin, and what is replayed.
const SEED: u64 = 0;

/// What the learner wants to know of an answer, and whether special tokens are learnt.
#[derive(Clone, Copy)]
pub(crate) struct Terms(pub(crate) experiment::Terms, pub(crate) bool);

/// A note to the learner.
enum Note {
    Example(String, Box<Example>),
    Save,
    Stop,
}

/// Where the decode thread leaves examples.
#[derive(Clone)]
pub(crate) struct Mailbox {
    notes: SyncSender<Note>,
    terms: Terms,
}

impl Mailbox {
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Hands an example over, unless too many wait: decoding never waits for learning.
    pub(crate) fn offer(&self, adapter: &str, example: Example, stats: &Stats) {
        let note = Note::Example(adapter.to_owned(), Box::new(example));
        stats.example(self.notes.try_send(note).is_ok());
    }
}

/// The settings of the learner.
pub(crate) fn config(options: &LearnOptions) -> LearnConfig {
    LearnConfig {
        objective: ObjectiveName::Hybrid,
        every: options.every,
        lr: options.rate,
        replay: 16,
        replay_window: 256,
        ema: 0.9,
        lora: LoraSettings {
            rank: options.rank,
            ..LoraSettings::default()
        },
        ..LearnConfig::default()
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
    waiting: BTreeMap<String, VecDeque<Example>>,
    state: Option<State>,
    next_update: Instant,
    next_save: Instant,
    /// Whether something was learnt behind the last saving.
    changed: bool,
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
        let mut learners = Learners::new(learn, Arc::clone(&models), saved.learnt.clone());
        let first = models.targets.first().map_or("", |target| &target.name);
        let terms = terms_of(learners.of(first)?);
        let (sender, notes) = sync_channel(WAITING);
        let mut teaching = Self {
            waiting: BTreeMap::new(),
            next_update: Instant::now(),
            next_save: Instant::now() + options.save_every,
            changed: false,
            models,
            options,
            stats,
            notes,
            decoder,
            learners,
            state,
        };
        publish_all(
            &mut teaching.learners,
            &saved.adapters,
            &teaching.options,
            &teaching.decoder,
        )?;
        let mailbox = Mailbox {
            notes: sender.clone(),
            terms,
        };
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
                Ok(Note::Example(adapter, example)) => self.take(adapter, *example),
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

    fn take(&mut self, adapter: String, example: Example) {
        let (name, every) = (self.learners.name(adapter), self.learners.options.every);
        let waiting = self.waiting.entry(name).or_default();
        waiting.push_back(example);
        self.changed = true;
        // Where updates are limited, the latest answers are the ones to learn from.
        while waiting.len() > every {
            waiting.pop_front();
            self.stats.example(false);
        }
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
        let learner = self.learners.of(name)?;
        let mut learnt = None;
        for example in examples {
            learnt = learner.push(example)?.or(learnt);
        }
        let Some((update, weights)) = learnt else {
            return Ok(());
        };
        publish(name, &weights, &self.options, &self.decoder)?;
        self.learners.of(name)?.give_back(weights);
        let target = name.split('/').next().unwrap_or(name);
        self.stats.update(target, update.loss, update.seconds);
        self.changed = true;
        Ok(())
    }

    fn save_now(&mut self) {
        self.next_save = Instant::now() + self.options.save_every;
        if self.state.is_none() || !std::mem::take(&mut self.changed) {
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
        let learners = &mut self.learners;
        let written = state.write(&self.models, caches, &self.stats.sums(), |folder| {
            learners.save(folder)
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
    weights: &lm::Checkpoint,
    options: &Options,
    decoder: &Sender<Command>,
) -> Result<()> {
    let packed = Packed::new(weights, options.engine)?;
    // It is gone only where everything ends.
    let _ = decoder.send(Command::Weights(name.to_owned(), Box::new(packed)));
    Ok(())
}

/// Sends what adapters of targets that are served had learnt before; the others stay where they are.
fn publish_all(
    learners: &mut Learners,
    adapters: &[String],
    options: &Options,
    decoder: &Sender<Command>,
) -> Result<()> {
    let models = Arc::clone(&learners.models);
    for name in adapters {
        let own = |target: &str| *name == target || name.starts_with(&format!("{target}/"));
        if models.targets.iter().any(|target| own(&target.name)) {
            let weights = learners.of(name)?.weights()?;
            publish(name, &weights, options, decoder)?;
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
        rate: 0.0,
        rank: state.rank(),
        updates_per_minute: None,
        scope: LearnScope::Target,
    };
    let mut learners = Learners::new(frozen, Arc::clone(models), saved.learnt.clone());
    publish_all(&mut learners, &saved.adapters, options, decoder)
}

/// The learners: one for all adapters, which it switches between, or one a name where all weights
/// are trained.
struct Learners {
    options: LearnOptions,
    models: Arc<Models>,
    /// Folder of saved weights or adapters.
    saved: Option<std::path::PathBuf>,
    by_name: BTreeMap<String, Learner>,
    /// Names of adapters in use.
    names: Vec<String>,
}

impl Learners {
    fn new(options: LearnOptions, models: Arc<Models>, saved: Option<std::path::PathBuf>) -> Self {
        Self {
            options,
            models,
            saved,
            by_name: BTreeMap::new(),
            names: Vec::new(),
        }
    }

    /// The adapter that learns in place of `wanted`: its target's, where there are too many.
    fn name(&mut self, wanted: String) -> String {
        let known = self.names.contains(&wanted);
        match (
            known || self.names.len() < MOST_ADAPTERS,
            wanted.split_once('/'),
        ) {
            (false, Some((target, _))) => target.to_owned(),
            _ => wanted,
        }
    }

    fn key(&self, name: &str) -> String {
        match self.options.rank {
            0 => name.to_owned(),
            _ => String::new(),
        }
    }

    /// The learner of an adapter, turned to it.
    fn of(&mut self, name: &str) -> Result<&mut Learner> {
        let key = self.key(name);
        if !self.by_name.contains_key(&key) {
            let config = config(&self.options);
            let mut learner = Learner::new(&self.models.drafter.checkpoint()?, config, SEED)?;
            let folder = self.saved.as_ref().map(|saved| saved.join(folder(&key)));
            if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
                let what = || format!("what `{name}` learnt");
                learner.load(&folder).with_context(what)?;
            }
            self.by_name.insert(key.clone(), learner);
        }
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        let learner = self.by_name.get_mut(&key).context("a learner just made")?;
        learner.turn_to(name)?;
        Ok(learner)
    }

    fn forget(&mut self, name: &str) {
        self.by_name.remove(&self.key(name));
    }

    /// Writes all of them into folders of their own; the names of those that learnt.
    fn save(&mut self, root: &std::path::Path) -> Result<Vec<String>> {
        let base = self.models.drafter.path.display().to_string();
        for (key, learner) in &mut self.by_name {
            learner.save(&root.join(folder(key)), &base)?;
        }
        Ok(self.names.clone())
    }
}

/// Folder of a learner inside the saved state.
fn folder(key: &str) -> String {
    match key {
        "" => "adapters".to_owned(),
        key => online::file_name(key),
    }
}
