//! A decode thread and a learner's thread, and the interface to them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adaptive_draft::ControllerConfig;
use cpu_engine::MemoryUse;
use models::{TargetFolder, engine_options};
use online::{ArmState, StateFolder};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::decode::command::Command;
use crate::decode::{Decoder, VerifyRequest};
use crate::error::{ApiError, Result, ServeError};
use crate::learn::queue::LearnerQueue;
use crate::learn::{LearnerThread, open_state, publish_saved};
use crate::models::{Models, Target};
use crate::options::Options;
use crate::remote::wire::{Answers, Round};
use crate::request::{Event, Job, Request};
use crate::stats::Stats;

/// Time that running answers have to end after the server is told to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// A drafter and targets that answer several requests at a time and learn from the answers.
pub struct Service {
    models: Arc<Models>,
    options: Arc<Options>,
    stats: Arc<Stats>,
    commands: Sender<Command>,
    permits: Arc<Semaphore>,
    learner: Option<LearnerQueue>,
    threads: Option<Threads>,
}

struct Threads {
    decoder: JoinHandle<ArmState>,
    learner: Option<JoinHandle<Result<()>>>,
    /// The state, if there is no learner's thread to keep it.
    state: Option<StateFolder>,
}

/// The events of a request: each with the number of its answer, pieces in order.
pub type Events = mpsc::UnboundedReceiver<(u32, Event)>;

impl Service {
    /// Loads models and state and starts the threads.
    ///
    /// # Errors
    /// Options of 0 that must be at least 1; models that cannot be loaded or do not fit the memory;
    /// a state that is damaged, in use, or of another drafter.
    pub fn start(mut options: Options) -> Result<Self> {
        for (option, number) in [
            ("--parallel", options.parallel),
            ("--k", options.draft_length),
            ("--max-tokens", options.max_tokens),
            ("--draft-top", options.remote.draft_top),
            (
                "--sessions",
                options.expose.map_or(1, |expose| expose.sessions),
            ),
            (
                "--learn-every",
                options.learn.map_or(1, |learn| learn.every),
            ),
        ] {
            if number == 0 {
                return Err(ServeError::said(format!("{option} 0: must be at least 1")));
            }
        }
        let models = Arc::new(Models::load(&options)?);
        check_memory(&models, &options)?;
        options.learn = options.learn.map(|learn| {
            let keeps_states = options.engine.device.is_cpu();
            learn.suited(models.drafter.config(), keeps_states)
        });
        let options = Arc::new(options);
        let part = options.learn.map(|learn| learn.part());
        let (state, known) = open_state(&models, &options, part)?.unzip();
        let known = known.unwrap_or_default();
        let stats = Arc::new(Stats::new(&known));
        if options.controller {
            stats.control(ControllerConfig {
                copies: options.lookup.is_some(),
                learns: options.learn.is_some(),
                ..ControllerConfig::default()
            });
        }
        let (commands, inbox) = channel();
        let (learner, queue, state) = match options.learn {
            Some(learn) => {
                let (learner, queue) = LearnerThread::new(
                    Arc::clone(&models),
                    Arc::clone(&options),
                    learn,
                    Arc::clone(&stats),
                    commands.clone(),
                    state,
                )?;
                (Some(learner), Some(queue), None)
            }
            None => {
                if let Some(state) = &state {
                    publish_saved(&models, &options, state.part(), &commands)?;
                }
                (None, None, state)
            }
        };
        let decoder = Decoder::new(
            Arc::clone(&models),
            Arc::clone(&options),
            Arc::clone(&stats),
            inbox,
            &commands,
            queue.clone(),
            known,
        )?;
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let decoder = spawn("decode").spawn(move || decoder.run())?;
        let learner = match learner {
            Some(learner) => Some(spawn("learn").spawn(move || learner.run())?),
            None => None,
        };
        Ok(Self {
            permits: Arc::new(Semaphore::new(options.parallel + options.queue)),
            threads: Some(Threads {
                decoder,
                learner,
                state,
            }),
            learner: queue,
            models,
            options,
            stats,
            commands,
        })
    }

    /// The models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// The options that the service was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The service's counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// True while the decode thread runs.
    pub fn is_alive(&self) -> bool {
        self.threads
            .as_ref()
            .is_some_and(|threads| !threads.decoder.is_finished())
    }

    /// Submits requests, each for one answer. Dropping the events cancels them.
    ///
    /// # Errors
    /// [`ApiError::ContextLength`], [`ApiError::QueueFull`], [`ApiError::Stopping`].
    pub fn submit(&self, requests: Vec<Request>) -> Result<Events, ApiError> {
        for request in &requests {
            let context = self.models.targets[request.target].context;
            let tokens = request.prompt.target.len();
            if tokens + request.max_tokens > context {
                return Err(ApiError::ContextLength {
                    tokens,
                    context,
                    wanted: request.max_tokens,
                });
            }
        }
        let mut permits = Vec::new();
        for _ in &requests {
            let permit = Arc::clone(&self.permits).try_acquire_owned();
            let full = |_| ApiError::QueueFull(self.options.queue);
            permits.push(permit.map_err(full)?);
        }
        let (events, receiver) = mpsc::unbounded_channel();
        for (request, permit) in requests.into_iter().zip(permits) {
            let job = Job {
                request,
                events: events.clone(),
                arrived: Instant::now(),
                permit: Some(permit),
            };
            let sent = self.commands.send(Command::Request(Box::new(job)));
            sent.map_err(|_| ApiError::Stopping)?;
        }
        Ok(receiver)
    }

    /// Submits drafts of other servers for verification. Nothing is sent back if the service is
    /// being stopped.
    pub(crate) fn verify(&self, target: usize, rounds: Vec<Round>) -> oneshot::Receiver<Answers> {
        let (reply, answers) = oneshot::channel();
        let waiting = VerifyRequest {
            target,
            rounds,
            reply,
        };
        // If the decode thread has ended, the receiver reports it.
        let _ = self.commands.send(Command::Verify(waiting));
        answers
    }

    /// Asks the learner's thread to save its state soon.
    pub fn save(&self) {
        if let Some(learner) = &self.learner {
            learner.save();
        }
    }

    /// Takes no more requests. Running answers have some seconds to finish.
    pub fn stop_accepting(&self) {
        // The decode thread may have ended by itself.
        let _ = self
            .commands
            .send(Command::Stop(Instant::now() + SHUTDOWN_GRACE));
    }

    /// Ends running answers, within seconds, and saves what was learnt.
    ///
    /// # Errors
    /// A thread that panicked; a state that cannot be saved.
    pub fn stop(&mut self) -> Result<()> {
        let Some(threads) = self.threads.take() else {
            return Ok(());
        };
        self.stop_accepting();
        let decoded = threads.decoder.join();
        let decoded = decoded.map(|known| {
            // Without a learner nobody saves it.
            if let Some(learner) = &self.learner {
                learner.stop(known);
            }
        });
        // If the decode thread panicked, this ends the learner's.
        self.learner = None;
        let saved = match threads.learner {
            Some(learner) => learner.join().unwrap_or(Err(ServeError::LearnerPanicked)),
            None => Ok(()),
        };
        drop(threads.state);
        let lost = "the decode thread panicked; what it learnt after the last saving is lost";
        decoded.map_err(|_| ServeError::said(lost))?;
        saved.map_err(|source| match source {
            ServeError::LearnerPanicked => source,
            source => ServeError::NotSaved(Box::new(source)),
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!("{}", error.in_full());
        }
    }
}

/// Checks that the sequences, at their longest, fit the memory limit.
fn check_memory(models: &Models, options: &Options) -> Result<()> {
    let of = |config: &lm::LmConfig, settings: lm::EngineSettings| {
        let expected = MemoryUse::expected(config, &engine_options(config, settings));
        expected.cache + expected.scratch
    };
    // The limit is that of this process; a PyTorch worker is another one.
    let here = models.targets.iter().filter_map(Target::folder);
    let here = here.filter_map(TargetFolder::folder);
    let sizes = here.map(|folder| of(folder.config(), options.engine));
    let target = sizes.max().unwrap_or(0);
    let slot = target + of(models.drafter.config(), options.drafter_engine());
    let judged = options.expose.map_or(0, |expose| expose.sessions);
    let needed = slot * options.parallel + target * judged;
    tracing::info!(
        sequences = options.parallel,
        mib = needed >> 20,
        "memory of keys, values and activations at the most"
    );
    match options.memory {
        Some(limit) if needed > limit => Err(ServeError::said(format!(
            "{} sequences may take {} MiB, more than --memory-mb {}\nhint: lower --parallel, --sessions or --context",
            options.parallel + judged,
            needed.div_ceil(1 << 20),
            limit >> 20
        ))),
        _ => Ok(()),
    }
}
