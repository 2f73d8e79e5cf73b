//! The decode thread: it owns engines and sequences, and takes a round of all of them at a time.
//!
//! ```text
//! admit -> draft (each sequence) -> one target forward (all) -> judge (each) -> commit (each) -> tell
//! ```
//!
//! All drafts of a step are judged before any of them is committed: sequences of a pair share an
//! n-gram cache, and a draft has to be judged by the cache it was drafted with.

mod sequence;
mod text;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use models::{Engine, Packed};
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::{LanguageModel, Session, SessionConfig, SpecError, VerifyMode};
use vocab_align::{DraftId, TargetId};

use crate::ask::{Event, Job};
use crate::error::ApiError;
use crate::learn::{Mailbox, Terms};
use crate::models::{Models, Target};
use crate::options::Options;
use crate::stats::{Stats, Step};

use sequence::{Progress, Seat, Sequence};
pub(crate) use sequence::{positions, terms_of};

/// N-gram caches by index of the target; targets of one vocabulary share that of the first.
pub(crate) type Caches = BTreeMap<usize, NgramCache>;

/// What the decode thread is told.
pub(crate) enum Command {
    /// A request.
    Ask(Box<Job>),
    /// New weights of an adapter.
    Weights(String, Box<Packed>),
    /// A copy of the n-gram caches is wanted.
    Caches(Sender<Caches>),
    /// No more requests; running answers may be finished until then.
    Stop(Instant),
}

/// The decode thread's own.
pub(crate) struct Decoder {
    models: Arc<Models>,
    options: Arc<Options>,
    stats: Arc<Stats>,
    commands: Receiver<Command>,
    learner: Option<Mailbox>,
    caches: BTreeMap<usize, Box<NgramCache>>,
    /// Target whose n-gram cache a target uses.
    cache_of: Vec<usize>,
    /// Packed weights by adapter, with their version.
    weights: HashMap<String, (u64, Packed)>,
    /// What an adapter that has learnt nothing decodes with.
    base: Packed,
    /// The targets' weights, which stay packed while no seat uses them.
    resident: Vec<Packed>,
    waiting: VecDeque<Job>,
    running: Vec<Sequence>,
    idle: Vec<Seat>,
    logits: Vec<f32>,
    stopping: Option<Instant>,
}

impl Decoder {
    /// Builds a first seat, so that unusable models are told at the start.
    pub(crate) fn new(
        models: Arc<Models>,
        options: Arc<Options>,
        stats: Arc<Stats>,
        commands: Receiver<Command>,
        learner: Option<Mailbox>,
        caches: Caches,
    ) -> Result<Self> {
        let vocabulary = |t: &Target| t.pair.target.fingerprint();
        let first = |target: &Target| {
            let same = |other: &Target| vocabulary(other) == vocabulary(target);
            models.targets.iter().position(same).unwrap_or_default()
        };
        let cache_of: Vec<usize> = models.targets.iter().map(first).collect();
        let mut caches: BTreeMap<usize, Box<NgramCache>> = caches
            .into_iter()
            .map(|(i, cache)| (i, Box::new(cache)))
            .collect();
        for &index in &cache_of {
            let fresh = || Box::new(NgramCache::new(cache_config(&options)));
            caches.entry(index).or_insert_with(fresh);
        }
        let mut drafter = models.drafter.engine(options.engine)?;
        let mut decoder = Self {
            base: drafter.packed()?,
            weights: HashMap::new(),
            resident: Vec::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            idle: Vec::new(),
            logits: Vec::new(),
            stopping: None,
            cache_of,
            caches,
            models,
            options,
            stats,
            commands,
            learner,
        };
        for target in 0..decoder.models.targets.len() {
            let mut seat = decoder.seat(target)?;
            let seconds = plain_step(seat.session.target_mut())?;
            decoder.stats.plain_step(target, seconds);
            decoder.resident.push(seat.session.target_mut().packed()?);
            if decoder.idle.len() < decoder.options.parallel {
                decoder.idle.push(seat);
            }
        }
        Ok(decoder)
    }

    /// Decodes until it is told to stop; the n-gram caches as they are then.
    pub(crate) fn run(mut self) -> Caches {
        loop {
            self.stats.load(self.running.len(), self.waiting.len());
            self.listen();
            if let Some(until) = self.stopping {
                self.refuse_waiting();
                if self.running.is_empty() || Instant::now() >= until {
                    break;
                }
            }
            self.admit();
            self.step();
        }
        for sequence in self.running.drain(..) {
            sequence.job.tell(Event::Failed(ApiError::Stopping));
        }
        let caches = std::mem::take(&mut self.caches);
        caches.into_iter().map(|(i, cache)| (i, *cache)).collect()
    }

    /// Takes in what has come; waits for something where there is nothing to do.
    fn listen(&mut self) {
        let busy = !self.running.is_empty() || !self.waiting.is_empty();
        if !busy && self.stopping.is_none() {
            match self.commands.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.stopping = Some(Instant::now()),
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.stopping.get_or_insert(Instant::now());
                    break;
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Ask(job) => self.waiting.push_back(*job),
            Command::Weights(adapter, packed) => {
                let version = self
                    .weights
                    .get(&adapter)
                    .map_or(1, |(version, _)| version + 1);
                self.weights.insert(adapter, (version, *packed));
            }
            Command::Caches(reply) => {
                let copy = self.caches.iter().map(|(i, cache)| (*i, (**cache).clone()));
                // Who asked may have given up.
                let _ = reply.send(copy.collect());
            }
            Command::Stop(until) => {
                let first = self.stopping.map_or(until, |first| first.min(until));
                self.stopping = Some(first);
            }
        }
    }

    fn refuse_waiting(&mut self) {
        for job in self.waiting.drain(..) {
            job.tell(Event::Failed(ApiError::Stopping));
        }
    }

    /// Seats waiting requests: of those whose user has the fewest answers in the making, the first.
    fn admit(&mut self) {
        let limit = self.options.timeout;
        let late = |job: &Job| job.arrived.elapsed() > limit;
        self.waiting.retain(|job| {
            if late(job) {
                job.tell(Event::Failed(ApiError::Timeout(limit.as_secs())));
            }
            !late(job) && !job.abandoned()
        });
        while self.running.len() < self.options.parallel && !self.waiting.is_empty() {
            let load = |job: &Job| {
                let own = |sequence: &&Sequence| sequence.job.ask.user == job.ask.user;
                self.running.iter().filter(own).count()
            };
            let next = (0..self.waiting.len()).min_by_key(|i| load(&self.waiting[*i]));
            let Some(job) = next.and_then(|i| self.waiting.remove(i)) else {
                return;
            };
            self.begin(job);
        }
    }

    fn begin(&mut self, mut job: Job) {
        let index = job.ask.target;
        let mut seat = match self.take_seat(index, &job.ask.prompt.target) {
            Ok(seat) => seat,
            Err(error) => return fail(&mut job, &format!("{error:#}"), &self.stats),
        };
        let target = &self.models.targets[index];
        let learn = self.options.learn;
        let adapter = learn.map_or_else(
            || target.name.clone(),
            |learn| learn.adapter(&target.name, &job.ask.user),
        );
        if job.ask.drafting
            && let Err(error) = self.dress(&mut seat, &adapter, &target.name)
        {
            return fail(&mut job, &format!("{error:#}"), &self.stats);
        }
        let terms = self.terms();
        // Where nothing is learnt, an answer depends on its request alone.
        let own = terms.is_none() && job.ask.drafting;
        let own = own.then(|| self.caches[&self.cache_of[index]].clone());
        let k = self.options.draft_length;
        match Sequence::start(job, seat, target, k, adapter, terms, own) {
            Ok(sequence) => self.running.push(sequence),
            Err(failed) => {
                let (mut job, error) = *failed;
                fail(&mut job, &error.to_string(), &self.stats);
            }
        }
    }

    fn terms(&self) -> Option<Terms> {
        self.learner.as_ref().map(Mailbox::terms)
    }

    /// The seat whose caches hold most of a prompt; another one where none holds half of it.
    fn take_seat(&mut self, target: usize, prompt: &[TargetId]) -> Result<Seat> {
        let fitting = self
            .idle
            .iter()
            .enumerate()
            .filter(|(_, seat)| seat.target == target);
        let best = fitting
            .map(|(i, seat)| (seat.session.held(prompt), i))
            .max_by_key(|(held, _)| *held);
        let seats = self.idle.len() + self.running.len();
        if let Some((held, i)) = best
            && (2 * held >= prompt.len() || seats >= self.options.parallel)
        {
            // Without anything in common, the longest unused one is the least loss.
            let oldest = |target: usize| {
                let own = self
                    .idle
                    .iter()
                    .enumerate()
                    .filter(|(_, s)| s.target == target);
                own.min_by_key(|(_, seat)| seat.last_used).map(|(i, _)| i)
            };
            let i = if 2 * held >= prompt.len() {
                i
            } else {
                oldest(target).unwrap_or(i)
            };
            return Ok(self.idle.swap_remove(i));
        }
        if seats >= self.options.parallel {
            // All are of other targets: one of them makes room.
            let oldest = self
                .idle
                .iter()
                .enumerate()
                .min_by_key(|(_, seat)| seat.last_used);
            if let Some((i, _)) = oldest {
                self.idle.swap_remove(i);
            }
        }
        self.seat(target)
    }

    /// A new pair of KV caches.
    fn seat(&self, index: usize) -> Result<Seat> {
        let target = &self.models.targets[index];
        let engines = (
            self.models.drafter.engine(self.options.engine)?,
            target.folder.engine(self.options.engine)?,
        );
        let config = SessionConfig {
            stop: target.folder.stop_tokens(),
            ..SessionConfig::new(VerifyMode::Exact, 1)
        };
        let session = Session::new(engines.0, engines.1, target.pair.clone(), config)
            .with_context(|| format!("target `{}`", target.name))?;
        Ok(Seat::new(index, session, (String::new(), 0)))
    }

    /// Gives a seat's drafter the weights of an adapter: those of its target where it has none.
    fn dress(&self, seat: &mut Seat, adapter: &str, target: &str) -> Result<()> {
        let known = [adapter, target]
            .into_iter()
            .find(|name| self.weights.contains_key(*name));
        let wanted = known.and_then(|name| {
            let (version, packed) = self.weights.get(name)?;
            Some(((name.to_owned(), *version), packed))
        });
        let ((name, version), packed) = wanted.unwrap_or(((String::new(), 0), &self.base));
        if seat.weights == (name.clone(), version) {
            return Ok(());
        }
        let mut packed = packed.clone();
        seat.session
            .change_drafter(|drafter| drafter.swap_weights(&mut packed))?;
        seat.weights = (name, version);
        Ok(())
    }

    /// One round of every sequence.
    fn step(&mut self) {
        let began = Instant::now();
        self.leave_abandoned();
        if self.running.is_empty() {
            return;
        }
        let mut failed: Vec<(usize, SpecError)> = Vec::new();
        for (i, sequence) in self.running.iter_mut().enumerate() {
            let shared = shared(&self.caches, &self.cache_of, sequence);
            if let Err(error) = sequence.draft(shared) {
                failed.push((i, error));
            }
        }
        let drafted = Instant::now();
        let mut step = Step {
            sequences: self.running.len(),
            draft_seconds: (drafted - began).as_secs_f64(),
            ..Step::default()
        };
        let mut ended = Vec::new();
        for target in 0..self.models.targets.len() {
            self.verify(target, &mut step, &mut failed, &mut ended);
        }
        step.seconds = began.elapsed().as_secs_f64();
        self.stats.step(&step);
        self.leave(failed, ended);
    }

    /// Scores the drafts for one target in one forward, judges them, and then commits them.
    fn verify(
        &mut self,
        target: usize,
        step: &mut Step,
        failed: &mut Vec<(usize, SpecError)>,
        ended: &mut Vec<(usize, Option<&'static str>)>,
    ) {
        let clock = Instant::now();
        let own = |sequence: &&mut Sequence| sequence.seat.target == target;
        let mut inputs: Vec<(&mut Engine, &[TargetId])> = self
            .running
            .iter_mut()
            .filter(own)
            .filter_map(Sequence::input)
            .collect();
        if inputs.is_empty() {
            return;
        }
        let scored = Engine::forward_together(&mut inputs, &mut self.logits);
        step.target_seconds += clock.elapsed().as_secs_f64();
        step.forwards += 1;
        let error = scored.err();
        if let Some(error) = &error {
            tracing::error!("a forward failed: {error}");
        }
        let entry = &self.models.targets[target];
        let vocab = entry.folder.config().vocab_size;
        // Where each sequence's rows are.
        let (mut at, mut rows) = (0, Vec::new());
        for (i, sequence) in self.running.iter_mut().enumerate() {
            if sequence.seat.target != target {
                continue;
            }
            let Some(count) = sequence.input().map(|(_, ids)| ids.len()) else {
                continue;
            };
            let range = at..at + count * vocab;
            at = range.end;
            let shared = shared(&self.caches, &self.cache_of, sequence);
            let logits = match &error {
                None => self.logits.get(range.clone()).unwrap_or_default(),
                // A failed forward is the failure of every sequence in it.
                Some(_) => &[],
            };
            match sequence.judge(shared, logits) {
                Ok(()) => rows.push((i, range)),
                Err(error) => failed.push((i, error)),
            }
        }
        for (i, range) in rows {
            let sequence = &mut self.running[i];
            let cache = self.caches.get_mut(&self.cache_of[target]);
            let logits = self.logits.get(range).unwrap_or_default();
            match sequence.commit(cache.map(|cache| &mut **cache), logits, entry) {
                Err(error) => failed.push((i, error)),
                Ok(None) => ended.push((i, None)),
                Ok(Some(Progress { outcome, reason })) => {
                    if let Some(outcome) = outcome {
                        step.add(sequence.job.ask.drafting, &outcome);
                    }
                    if reason.is_some() {
                        ended.push((i, reason));
                    }
                }
            }
        }
    }

    /// Frees the seats of answers that have ended or failed.
    fn leave(
        &mut self,
        failed: Vec<(usize, SpecError)>,
        ended: Vec<(usize, Option<&'static str>)>,
    ) {
        let mut reasons: Vec<(usize, Result<Option<&'static str>, SpecError>)> = failed
            .into_iter()
            .map(|(i, error)| (i, Err(error)))
            .chain(ended.into_iter().map(|(i, reason)| (i, Ok(reason))))
            .collect();
        // From the back, so that indices stay what they are.
        reasons.sort_by_key(|(i, _)| std::cmp::Reverse(*i));
        for (i, reason) in reasons {
            let mut sequence = self.running.remove(i);
            let target = &self.models.targets[sequence.seat.target];
            match reason {
                Ok(Some(reason)) => {
                    sequence.tell_end(reason);
                    let terms = self.learner.as_ref().map(Mailbox::terms);
                    let room = positions(&self.models.drafter);
                    if let Some(example) = sequence.example(target, terms, room)
                        && let Some(learner) = &self.learner
                    {
                        learner.offer(&sequence.adapter, example, &self.stats);
                    }
                    self.stats
                        .answer(&target.name, &sequence.totals, sequence.job.ask.drafting);
                }
                Ok(None) => self.stats.cancelled(),
                Err(error) => fail(&mut sequence.job, &error.to_string(), &self.stats),
            }
            let (seat, _) = sequence.stand_up();
            self.idle.push(seat);
        }
    }

    /// Answers that nobody waits for any more, or that took too long.
    fn leave_abandoned(&mut self) {
        let limit = self.options.timeout;
        let mut i = 0;
        while i < self.running.len() {
            let job = &self.running[i].job;
            let late = job.arrived.elapsed() > limit;
            if !late && !job.abandoned() {
                i += 1;
                continue;
            }
            if late {
                job.tell(Event::Failed(ApiError::Timeout(limit.as_secs())));
            }
            self.stats.cancelled();
            let (seat, _) = self.running.remove(i).stand_up();
            self.idle.push(seat);
        }
    }
}

/// The n-grams that the sequences of a pair share; `None` where the sequence has its own.
fn shared<'a>(
    caches: &'a BTreeMap<usize, Box<NgramCache>>,
    cache_of: &[usize],
    sequence: &Sequence,
) -> Option<&'a NgramCache> {
    caches
        .get(&cache_of[sequence.seat.target])
        .map(|cache| &**cache)
}

fn fail(job: &mut Job, message: &str, stats: &Stats) {
    tracing::warn!("an answer failed: {message}");
    stats.failed();
    job.end(Event::Failed(ApiError::Internal(message.to_owned())));
}

/// Bounds of an n-gram cache.
pub(crate) fn cache_config(options: &Options) -> CacheConfig {
    CacheConfig {
        eviction: ngram_cache::Eviction::Lru,
        max_entries: None,
        max_bytes: Some(options.ngram_bytes),
    }
}

/// Seconds of decoding one token alone: the least of a few, behind one that warms up.
fn plain_step(engine: &mut Engine) -> Result<f64> {
    let mut logits = Vec::new();
    let mut least = Duration::MAX;
    for _ in 0..6 {
        let clock = Instant::now();
        LanguageModel::<TargetId>::forward(engine, &[TargetId(0)], &mut logits)?;
        least = least.min(clock.elapsed());
    }
    LanguageModel::<DraftId>::truncate(engine, 0);
    Ok(least.as_secs_f64())
}
