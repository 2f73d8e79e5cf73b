//! The decode thread: it owns engines and sequences, and decodes one round of all of them per step.
//!
//! ```text
//! admit -> draft (each) -> one target forward (all) -> verify (each) -> commit (each) -> send
//!                       \-> request to a remote target ... reply -> commit -> send
//! ```
//!
//! All drafts of a step are verified, or sent to a remote target, before any of them is committed:
//! sequences of a pair share an n-gram cache, and a draft has to be verified with the cache that it
//! was drafted with. A sequence that waits for a reply sits out steps; the others continue.

mod admission;
pub(crate) mod command;
mod corpora;
mod costs;
mod lengths;
mod log_probs;
mod remote_queue;
mod remote_rounds;
mod sequence;
mod step;
mod target_model;
mod text;
mod verifier;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant};

use adaptive_draft::Head;
use models::Packed;
use ngram_cache::NgramCache;
use online::{ArmState, seconds_of, start_costs};

use crate::error::{ApiError, Result};
use crate::learn::queue::LearnerQueue;
use crate::models::{Models, target_of};
use crate::options::Options;
use crate::request::{Event, Job};
use crate::stats::Stats;

use command::Command;
use corpora::Corpora;
use costs::TargetCosts;
use lengths::DraftLengths;
use remote_queue::{RemoteBatch, Reply, start_remotes};
use sequence::{Prefilling, Sequence, Slot};
use target_model::TargetModel;
use verifier::Verifiers;
pub(crate) use verifier::VerifyRequest;

/// Answers that ended in a step, by index, with the reason (`None` if nobody waits for them any
/// more) or the failure.
type Ended = Vec<(usize, Result<Option<&'static str>, ApiError>)>;

/// Time between two checks of clients while there is nothing to do but to wait for replies.
const CLIENT_CHECK: Duration = Duration::from_millis(50);

/// The state of the decode thread.
pub(crate) struct Decoder {
    models: Arc<Models>,
    options: Arc<Options>,
    stats: Arc<Stats>,
    commands: Receiver<Command>,
    learner: Option<LearnerQueue>,
    /// The state to be saved: the n-gram caches in use, and parts that are only passed on. Its
    /// other parts are in `lengths`, `corpora` and `stats` while the thread runs.
    known: ArmState,
    /// Packed weights by adapter, with their version.
    weights: HashMap<String, (u64, Packed)>,
    /// Weights of an adapter that has learnt nothing.
    base: Packed,
    /// The targets' packed weights, kept also while no slot uses them.
    resident: Vec<Packed>,
    waiting: VecDeque<Job>,
    /// Requests with a slot whose prompts are being read.
    prefilling: VecDeque<Prefilling>,
    /// Draft lengths.
    lengths: DraftLengths,
    /// Costs of rounds, by target.
    costs: Vec<TargetCosts>,
    /// Texts to copy from; `None` if nothing is looked up.
    corpora: Option<Corpora>,
    running: Vec<Sequence>,
    /// Rounds on their way to remote targets, and the replies that have come.
    remote_queue: Sender<RemoteBatch>,
    replies: Vec<Reply>,
    idle: Vec<Slot>,
    verifiers: Verifiers,
    /// Logits of the latest forward, by target, and of the drafter.
    logits: Vec<Vec<f32>>,
    draft_logits: Vec<f32>,
    /// Time of the last measurement of a plain step.
    probed: Option<Instant>,
    stopping: Option<Instant>,
}

impl Decoder {
    /// Creates a first slot of every target, so that unusable models are reported at the start. For
    /// local targets it measures a plain step (a forward of one token) and, if the draft length or
    /// lookup follows costs, the costs of drafts. `replies` is the sending end of `commands`, for
    /// the threads that wait for remote targets.
    pub(crate) fn new(
        models: Arc<Models>,
        options: Arc<Options>,
        stats: Arc<Stats>,
        commands: Receiver<Command>,
        replies: &Sender<Command>,
        learner: Option<LearnerQueue>,
        mut known: ArmState,
    ) -> Result<Self> {
        for target in &models.targets {
            let fresh = || NgramCache::new(options.cache_config());
            let cache = known.caches.entry(target.vocabulary());
            cache.or_insert_with(fresh);
        }
        let served = |name: &str| models.targets.iter().any(|t| t.name == target_of(name));
        let mut chains = std::mem::take(&mut known.chains);
        chains.retain(|name, _| served(name));
        let texts = std::mem::take(&mut known.texts);
        let mut drafter = models.drafter.engine(options.drafter_engine())?;
        let expose = options.expose.map(|e| (e.sessions, e.idle));
        let (sessions, idle) = expose.unwrap_or_default();
        let mut decoder = Self {
            base: drafter.packed()?,
            weights: HashMap::new(),
            resident: Vec::new(),
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            lengths: DraftLengths::new(
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
            remote_queue: start_remotes(&models, options.parallel, replies)?,
            replies: Vec::new(),
            idle: Vec::new(),
            verifiers: Verifiers::new(sessions, idle),
            logits: vec![Vec::new(); models.targets.len()],
            draft_logits: Vec::new(),
            probed: Some(Instant::now()),
            stopping: None,
            known,
            models,
            options,
            stats,
            commands,
            learner,
        };
        let by_costs = decoder.options.adapt_length || decoder.options.lookup.is_some();
        for target in 0..decoder.models.targets.len() {
            let mut slot = decoder.new_slot(target)?;
            if let TargetModel::Local(engine) = slot.session.target_mut() {
                if let Some(plain) = seconds_of(engine, 1, 1)? {
                    decoder.stats.plain_step(target, plain);
                    if by_costs {
                        decoder.costs[target].alone = start_costs(engine, Some(&mut drafter))?;
                    }
                }
                decoder.resident.push(engine.packed()?);
            }
            if decoder.idle.len() < decoder.options.parallel {
                decoder.idle.push(slot);
            }
        }
        Ok(decoder)
    }

    /// Decodes until it is told to stop. Returns the state at the end.
    pub(crate) fn run(mut self) -> ArmState {
        loop {
            self.stats.load(self.running.len(), self.waiting.len());
            self.listen();
            if let Some(until) = self.stopping {
                self.refuse_waiting();
                let idle = self.running.is_empty() && self.prefilling.is_empty();
                if idle || Instant::now() >= until {
                    break;
                }
            }
            self.admit();
            self.step();
        }
        for job in self.jobs() {
            job.send(Event::Failed(ApiError::Stopping));
        }
        self.snapshot()
    }

    /// The requests that have a slot.
    fn jobs(&self) -> impl Iterator<Item = &Job> {
        let running = self.running.iter().map(|sequence| &sequence.job);
        running.chain(self.prefilling.iter().map(|prefilling| &prefilling.job))
    }

    /// A copy of the state to be saved, without the counters, which the learner adds.
    fn snapshot(&self) -> ArmState {
        let mut known = self.known.clone();
        if self.options.adapt_length {
            known.chains = self.lengths.chains();
        }
        known.texts = self.corpora.as_ref().map_or_else(Vec::new, Corpora::texts);
        known
    }

    /// Handles the messages that have come; waits for one if there is nothing to do.
    fn listen(&mut self) {
        let replies = !self.running.is_empty() || !self.waiting.is_empty();
        if !self.is_busy() && (replies || self.stopping.is_none()) {
            let received = match replies {
                true => self.commands.recv_timeout(CLIENT_CHECK),
                false => self.commands.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(command) => self.handle(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.stopping = Some(Instant::now()),
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.stopping.get_or_insert(Instant::now());
                    break;
                }
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Request(job) => self.waiting.push_back(*job),
            Command::Verify(waiting) => self.verifiers.waiting.push(waiting),
            Command::RemoteReply(reply) => self.replies.push(reply),
            Command::Head(adapter, head, steps) => self.follow_head(&adapter, head, steps),
            Command::Weights(adapter, packed) => {
                let version = self
                    .weights
                    .get(&adapter)
                    .map_or(1, |(version, _)| version + 1);
                self.weights.insert(adapter, (version, *packed));
            }
            Command::Snapshot(reply) => {
                // The learner may have given up waiting.
                let _ = reply.send(self.snapshot());
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
            let costs = self.costs[target].of(self.concurrency(target, 0));
            self.lengths.follow(adapter, head, steps, &costs);
            let by_head = self.lengths.by_head(adapter);
            let mut counters = self.stats.counters();
            counters.by_head.insert(name.to_owned(), by_head);
        }
    }

    fn refuse_waiting(&mut self) {
        for job in self.waiting.drain(..) {
            job.send(Event::Failed(ApiError::Stopping));
        }
        // Dropping a request closes its reply channel; its handler then reports the shutdown.
        self.verifiers.waiting.clear();
    }
}

/// The n-grams that the sequences of a pair share. A sequence with a cache of its own uses that one
/// instead.
fn shared<'a>(known: &'a ArmState, models: &Models, sequence: &Sequence) -> Option<&'a NgramCache> {
    let target = &models.targets[sequence.slot.target];
    known.caches.get(&target.vocabulary())
}

fn fail(job: &mut Job, message: &str, stats: &Stats) {
    fail_with(job, ApiError::Internal(message.to_owned()), stats);
}

fn fail_with(job: &mut Job, error: ApiError, stats: &Stats) {
    tracing::warn!("an answer failed: {error}");
    stats.counters().failed += 1;
    job.end(Event::Failed(error));
}
