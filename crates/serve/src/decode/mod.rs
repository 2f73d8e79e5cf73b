//! The decode thread: it owns engines and sequences, and takes a round of all of them at a time.
//!
//! ```text
//! admit -> draft (each sequence) -> one target forward (all) -> judge (each) -> commit (each) -> tell
//!                                \-> send to a target elsewhere ... reply -> commit -> tell
//! ```
//!
//! All drafts of a step are judged, or sent to where they are judged, before any of them is committed:
//! sequences of a pair share an n-gram cache, and a draft has to be judged by the cache it was drafted
//! with. A sequence that waits for a reply sits out steps; the others go on.

mod controlled;
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

use costs::TargetCosts;
use elsewhere::{Errands, Reply};
use lengths::Lengths;
use seated::Seated;
pub(crate) use sequence::terms_of;
use sequence::{Seat, Sequence};
use verifier::Verifiers;
pub(crate) use verifier::Waiting;

/// N-gram caches by index of the target; targets of one vocabulary share that of the first.
pub(crate) type Caches = BTreeMap<usize, NgramCache>;

/// What the decode thread learns by itself.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub(crate) caches: Caches,
    /// How often draft tokens stand, by name of the adapter.
    pub(crate) chains: BTreeMap<String, Vec<Chain>>,
}

/// A request whose prompt is being read.
struct Reading {
    job: Job,
    seat: Seat,
    /// Tokens that need not be read.
    cached: usize,
}

/// Answers that failed in a step, by place.
type Failures = Vec<(usize, ApiError)>;

/// Answers that came to their end in a step, by place; `None` where nobody listens any more.
type Ended = Vec<(usize, Option<&'static str>)>;

/// Time between two looks at clients while all that there is to do is to wait for replies.
const LOOK: Duration = Duration::from_millis(50);

/// What the decode thread is told.
pub(crate) enum Command {
    /// A request.
    Ask(Box<Job>),
    /// Drafts made elsewhere.
    Judge(Waiting),
    /// What became of such drafts elsewhere.
    Judged(Reply),
    /// New weights of an adapter.
    Weights(String, Box<Packed>),
    /// Another state of an adapter's acceptance head, and the steps of training behind it.
    Head(String, Arc<Head>, u64),
    /// A copy of the n-gram caches is wanted.
    Caches(Sender<Kept>),
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
    /// Requests with a seat whose prompts are being read.
    reading: VecDeque<Reading>,
    /// How long to draft.
    lengths: Lengths,
    /// What rounds take, by target.
    costs: Vec<TargetCosts>,
    running: Vec<Sequence>,
    /// Rounds on their way to targets elsewhere, and what came back of them.
    errands: Errands,
    replies: Vec<Reply>,
    idle: Vec<Seat>,
    verifiers: Verifiers,
    /// Rows of the target, and of the drafter.
    logits: Vec<f32>,
    draft_logits: Vec<f32>,
    /// When a plain step was measured last.
    probed: Option<Instant>,
    stopping: Option<Instant>,
}

impl Decoder {
    /// Builds a first seat, so that unusable models are told at the start.
    pub(crate) fn new(
        models: Arc<Models>,
        options: Arc<Options>,
        stats: Arc<Stats>,
        (commands, to_itself): (Receiver<Command>, &Sender<Command>),
        learner: Option<Mailbox>,
        kept: Kept,
    ) -> Result<Self> {
        let Kept { caches, chains } = kept;
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

    /// Decodes until it is told to stop; the n-gram caches as they are then.
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
        }
    }

    /// Takes in what has come; waits for something where there is nothing to do.
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
                // Who asked may have given up.
                let _ = reply.send(self.kept());
            }
            Command::Stop(until) => {
                let first = self.stopping.map_or(until, |first| first.min(until));
                self.stopping = Some(first);
            }
        }
    }

    /// Takes over a head, of a target that is served or of a user of it.
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
    fail_with(job, ApiError::Internal(message.to_owned()), stats);
}

fn fail_with(job: &mut Job, error: ApiError, stats: &Stats) {
    tracing::warn!("an answer failed: {error}");
    stats.failed();
    job.end(Event::Failed(error));
}

/// The target of an adapter.
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
