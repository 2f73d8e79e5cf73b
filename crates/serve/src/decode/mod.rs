//! The decode thread: it owns engines and sequences, and decodes one round of all of them per step.
//!
//! ```text
//! admit -> draft (each sequence) -> one target forward (all) -> verify (each) -> commit (each) -> send
//!                                \-> request to a remote target ... reply -> commit -> send
//! ```
//!
//! All drafts of a step are verified, or sent to a remote target, before any of them is committed:
//! sequences of a pair share an n-gram cache, and a draft has to be verified with the cache that it
//! was drafted with. A sequence that waits for a reply sits out steps; the others go on.

mod controlled;
mod corpora;
mod costs;
mod elsewhere;
mod lengths;
mod log_probs;
mod seated;
mod seats;
mod sequence;
mod step;
mod text;
mod verifier;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant};

use adaptive_draft::{Chain, Head};
use anyhow::Result;
use models::{Engine, Packed};
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::LanguageModel;
use vocab_align::{DraftId, TargetId};

use crate::ask::{Event, Job};
use crate::error::ApiError;
use crate::learn::Mailbox;
use crate::models::{Models, Target};
use crate::options::Options;
use crate::stats::Stats;

use corpora::Corpora;
pub(crate) use corpora::{Texts, locked};
use costs::TargetCosts;
use elsewhere::{Errands, Reply};
use lengths::Lengths;
use seated::Seated;
pub(crate) use sequence::terms_of;
use sequence::{Seat, Sequence};
use verifier::Verifiers;
pub(crate) use verifier::Waiting;

/// N-gram caches by index of the target; targets with the same vocabulary share that of the first.
pub(crate) type Caches = BTreeMap<usize, NgramCache>;

/// The state that the decode thread learns by itself.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub(crate) caches: Caches,
    /// Acceptance statistics of draft tokens, by name of the adapter.
    pub(crate) chains: BTreeMap<String, Vec<Chain>>,
    /// Texts to copy from, the least recently used first.
    pub(crate) texts: Vec<Texts>,
}

/// A request whose prompt is being read.
struct Reading {
    job: Job,
    seat: Seat,
    /// Number of prompt tokens that the KV cache holds already.
    cached: usize,
}

/// Answers that failed in a step, by index.
type Failures = Vec<(usize, ApiError)>;

/// Answers that ended in a step, by index, with the reason; `None` if the client has hung up.
type Ended = Vec<(usize, Option<&'static str>)>;

/// Time between two checks of clients while there is nothing to do but to wait for replies.
const LOOK: Duration = Duration::from_millis(50);

/// A message to the decode thread.
pub(crate) enum Command {
    /// A request.
    Ask(Box<Job>),
    /// Drafts of another server.
    Judge(Waiting),
    /// The reply to drafts sent to a remote target.
    Judged(Reply),
    /// New weights of an adapter.
    Weights(String, Box<Packed>),
    /// A new state of an adapter's acceptance head, and the number of its training steps.
    Head(String, Arc<Head>, u64),
    /// A request for a copy of the n-gram caches.
    Caches(Sender<Kept>),
    /// No more requests are taken; running answers have until then.
    Stop(Instant),
}

/// The state of the decode thread.
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
    /// Weights of an adapter that has learnt nothing.
    base: Packed,
    /// The targets' packed weights, kept also while no slot uses them.
    resident: Vec<Packed>,
    waiting: VecDeque<Job>,
    /// Requests with a slot whose prompts are being read.
    reading: VecDeque<Reading>,
    /// Draft lengths.
    lengths: Lengths,
    /// Costs of rounds, by target.
    costs: Vec<TargetCosts>,
    /// Texts to copy from; `None` if nothing is looked up.
    corpora: Option<Corpora>,
    running: Vec<Sequence>,
    /// Rounds on their way to remote targets, and the replies that have come.
    errands: Errands,
    replies: Vec<Reply>,
    idle: Vec<Seat>,
    verifiers: Verifiers,
    /// Logits of the target, and of the drafter.
    logits: Vec<f32>,
    draft_logits: Vec<f32>,
    /// Time of the last measurement of a plain step.
    probed: Option<Instant>,
    stopping: Option<Instant>,
}

impl Decoder {
    /// Creates a first slot, so that unusable models are reported at the start.
    pub(crate) fn new(
        models: Arc<Models>,
        options: Arc<Options>,
        stats: Arc<Stats>,
        (commands, to_itself): (Receiver<Command>, &Sender<Command>),
        learner: Option<Mailbox>,
        kept: Kept,
    ) -> Result<Self> {
        let Kept {
            caches,
            chains,
            texts,
        } = kept;
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
        let mut drafter = models.drafter.engine(options.drafter_engine())?;
        let expose = options.expose.map(|e| (e.sessions, e.idle));
        let (sessions, idle) = expose.unwrap_or_default();
        let mut decoder = Self {
            base: drafter.packed()?,
            weights: HashMap::new(),
            resident: Vec::new(),
            waiting: VecDeque::new(),
            reading: VecDeque::new(),
            lengths: Lengths::new(
                chains,
                models.drafter.config().hidden_size,
                options.draft_length,
            ),
            costs: models
                .targets
                .iter()
                .map(|_| TargetCosts::default())
                .collect(),
            corpora: options
                .lookup
                .map(|scope| Corpora::new(scope, options.lookup_bytes, texts)),
            running: Vec::new(),
            errands: Errands::start(&models, to_itself, options.parallel)?,
            replies: Vec::new(),
            idle: Vec::new(),
            verifiers: Verifiers::new(sessions, idle),
            logits: Vec::new(),
            draft_logits: Vec::new(),
            probed: Some(Instant::now()),
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
            if let Seated::Here(engine) = seat.session.target_mut() {
                let seconds = plain_step(engine)?;
                decoder.stats.plain_step(target, seconds);
                decoder.resident.push(engine.packed()?);
            }
            if decoder.idle.len() < decoder.options.parallel {
                decoder.idle.push(seat);
            }
        }
        Ok(decoder)
    }

    /// Decodes until it is told to stop. Returns the state at the end.
    pub(crate) fn run(mut self) -> Kept {
        loop {
            self.stats.load(self.running.len(), self.waiting.len());
            self.listen();
            if let Some(until) = self.stopping {
                self.refuse_waiting();
                let idle = self.running.is_empty() && self.reading.is_empty();
                if idle || Instant::now() >= until {
                    break;
                }
            }
            self.admit();
            self.step();
        }
        for sequence in self.running.drain(..) {
            sequence.job.tell(Event::Failed(ApiError::Stopping));
        }
        for reading in self.reading.drain(..) {
            reading.job.tell(Event::Failed(ApiError::Stopping));
        }
        self.kept()
    }

    fn kept(&self) -> Kept {
        let caches = self.caches.iter().map(|(i, cache)| (*i, (**cache).clone()));
        Kept {
            caches: caches.collect(),
            chains: match self.options.adapt_length {
                true => self.lengths.chains(),
                false => BTreeMap::new(),
            },
            texts: self.corpora.as_ref().map_or_else(Vec::new, Corpora::texts),
        }
    }

    /// Handles the messages that have come; waits for one if there is nothing to do.
    fn listen(&mut self) {
        let replies = !self.running.is_empty() || !self.waiting.is_empty();
        if !self.is_busy() && (replies || self.stopping.is_none()) {
            let told = match replies {
                true => self.commands.recv_timeout(LOOK),
                false => self.commands.recv().map_err(RecvTimeoutError::from),
            };
            match told {
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.stopping = Some(Instant::now()),
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
            Command::Judge(waiting) => self.verifiers.wait(waiting),
            Command::Judged(reply) => self.replies.push(reply),
            Command::Head(adapter, head, steps) => self.follow_head(&adapter, head, steps),
            Command::Weights(adapter, packed) => {
                let version = self
                    .weights
                    .get(&adapter)
                    .map_or(1, |(version, _)| version + 1);
                self.weights.insert(adapter, (version, *packed));
            }
            Command::Caches(reply) => {
                // The learner may have given up waiting.
                let _ = reply.send(self.kept());
            }
            Command::Stop(until) => {
                let first = self.stopping.map_or(until, |first| first.min(until));
                self.stopping = Some(first);
            }
        }
    }

    /// Replaces the head of a served target, or of one of its users.
    fn follow_head(&mut self, adapter: &str, head: Arc<Head>, steps: u64) {
        let name = target_of(adapter);
        let found = self.models.targets.iter().position(|t| t.name == name);
        if let Some(target) = found {
            let crowd = self.crowd(target, 0);
            let costs = self.costs[target].of(crowd);
            self.lengths.follow(adapter, head, steps, (crowd, &costs));
            self.stats.head(name, self.lengths.by_head(adapter));
        }
    }

    fn refuse_waiting(&mut self) {
        for job in self.waiting.drain(..) {
            job.tell(Event::Failed(ApiError::Stopping));
        }
        self.verifiers.clear();
    }
}

/// The n-grams that the sequences of a pair share; `None` if the sequence has its own.
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
    fail_with(job, ApiError::Internal(message.to_owned()), stats);
}

fn fail_with(job: &mut Job, error: ApiError, stats: &Stats) {
    tracing::warn!("an answer failed: {error}");
    stats.failed();
    job.end(Event::Failed(error));
}

/// Name of the target of an adapter.
pub(crate) fn target_of(adapter: &str) -> &str {
    adapter
        .split_once('/')
        .map_or(adapter, |(target, _)| target)
}

/// Bounds of an n-gram cache.
pub(crate) fn cache_config(options: &Options) -> CacheConfig {
    CacheConfig {
        eviction: ngram_cache::Eviction::Lru,
        max_entries: None,
        max_bytes: Some(options.ngram_bytes),
    }
}

/// Seconds of decoding one token alone: the minimum of a few tries, the first of which warms up.
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
