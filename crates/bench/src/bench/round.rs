//! `omnidraft bench round`: the parts of a speculative round's time.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use cpu_engine::EngineOptions;
use lm::{Device, RandomWeights, WeightType};
use ngram_cache::{CacheConfig, NgramCache};
use serde::Serialize;
use spec_decode::{
    ConstantLength, LanguageModel, NoSink, Pair, Prompt, Sampling, Session, SessionConfig,
    StreamName, Totals, VerifyMode,
};
use vocab_align::{TokenId, Vocabulary};

use super::subject::{Subject, WalkName};
use super::timed::{Decoder, Timed};
use super::{shape_config, shape_parser};
use crate::args::{DeviceArgs, ThreadArgs, TorchArgs, parse_verify};
use crate::print_as;
use hub::local_folder;
use models::{TORCH_PREFIX, TargetFolder, TorchSettings, torch_model};
use streams::MiniTask;
use streams::{DataSource, Split};

/// Number of tokens of a response.
const RESPONSE: usize = 64;
/// Number of rounds before the clock counts, because of page faults and cold caches.
const WARM_UP: usize = 4;

/// Name of a worker's part that is not its model.
const BRIDGE: &str = "worker's bridge";

/// Arguments of `round`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft bench round --threads 1 --rounds 50
  omnidraft bench round --target torch:models/L --torch-device cpu --target-step-ms 20 --temperature 0")]
pub struct RoundArgs {
    /// Random drafter of this shape.
    #[arg(long, default_value = "llama-68m", value_parser = shape_parser())]
    drafter_shape: String,
    /// Random target of this shape.
    #[arg(long, default_value = "llama-242m", value_parser = shape_parser())]
    target_shape: String,
    /// In place of a shape: torch:DIR, a target that a worker of PyTorch decodes. What the worker
    /// does besides its model counts as outside of the models.
    #[arg(long, value_name = "torch:DIR", conflicts_with_all = ["target_shape", "target_tokenizer"])]
    target: Option<PathBuf>,
    /// Least milliseconds of a forward of the target, which waits for their end: the share that the
    /// rest of a round has beside a target of such steps.
    #[arg(long, value_name = "MS")]
    target_step_ms: Option<u32>,
    /// Folder of the drafter's tokenizer.json, or hf:owner/name[@revision]; a vocabulary larger
    /// than the shape's widens the model.
    #[arg(long, value_name = "DIR", default_value = "models/D")]
    drafter_tokenizer: PathBuf,
    /// Folder of the target's tokenizer.json.
    #[arg(long, value_name = "DIR", default_value = "models/L")]
    target_tokenizer: PathBuf,
    /// Weight format of both models.
    #[arg(long, default_value_t = WeightType::Bf16)]
    weights: WeightType,
    /// Weight format of the drafter, if that is another one.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightType>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    torch: TorchArgs,
    /// Fetch all logits from a graphics device, also unused ones.
    #[arg(long)]
    all_logits: bool,
    /// Draft tokens a round.
    #[arg(long, short, default_value_t = 4)]
    k: usize,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Verification mode: exact, paper, tli or slem.
    #[arg(long, default_value = "exact")]
    verify: String,
    /// Rounds to time.
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Means over the timed rounds, milliseconds.
#[derive(Debug, Default, Serialize)]
struct Report {
    drafter: String,
    target: String,
    draft_vocabulary: usize,
    target_vocabulary: usize,
    weights: String,
    draft_weights: String,
    kernels: String,
    threads: usize,
    /// Least milliseconds of a forward of the target.
    target_step_ms: Option<u32>,
    k: usize,
    temperature: f64,
    verify: &'static str,
    rounds: usize,
    proposed_per_round: f64,
    accepted_per_round: f64,
    round_ms: f64,
    /// Forwards of the drafter.
    drafter_ms: f64,
    /// Forwards of the target.
    target_ms: f64,
    /// Time of a worker's calls outside of its model: frames, copies, waiting for processes.
    bridge_ms: f64,
    /// Masking and sampling of draft tokens.
    sampling_ms: f64,
    /// Draft to target tokens, n-gram cache included.
    translate_ms: f64,
    /// Acceptance tests and draws from residual distributions.
    verify_ms: f64,
    /// Truncation of KV caches, tokenising the text again, new n-grams.
    commit_ms: f64,
    /// Share of the round outside of the models.
    outside_share: f64,
    /// Bytes copied from graphics devices.
    fetched_bytes_per_round: f64,
}

impl RoundArgs {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        if self.k == 0 || self.rounds == 0 {
            bail!("--k and --rounds must be at least 1");
        }
        print_as(self.json, &self.measure()?, Report::text)
    }

    fn measure(&self) -> Result<Report> {
        let (mode, lookup) = parse_verify(&self.verify)?;
        if lookup {
            bail!("--verify prompt-lookup has no drafter to time");
        }
        let worker = self.worker()?;
        let of_target = match &worker {
            Some(worker) => worker.vocabulary.clone(),
            None => vocabulary(&self.target_tokenizer)?,
        };
        let pair = Pair::new(&vocabulary(&self.drafter_tokenizer)?, &of_target);
        let clocks = [Rc::new(Cell::new(0.0)), Rc::new(Cell::new(0.0))];
        let on = self.devices.drafter()?;
        let (stored, tokens) = (self.drafts_in(), pair.draft.len());
        let drafter = self.engine(&self.drafter_shape, stored, tokens, on, &clocks[0])?;
        let target = match &worker {
            Some(worker) => self.sequence(worker, &clocks[1])?,
            None => self.target_engine(pair.target.len(), &clocks[1])?,
        };
        let mut report = self.blank(mode, &drafter, &target);
        let settings = SessionConfig {
            sampling: Sampling::new(self.temperature)?,
            ..SessionConfig::new(mode, RESPONSE)
        };
        let mut session = Session::new(drafter, target, pair.clone(), settings)?;
        let prompts = DataSource::embedded().load(MiniTask::ALL[0].name(), Split::Test)?;
        let mut cache = NgramCache::new(CacheConfig::default());
        let mut totals = Totals::default();
        let mut seen = 0;
        'rounds: for (i, prompt) in prompts.iter().cycle().enumerate() {
            let draft = pair.draft.encode(&prompt.prompt)?;
            let target = pair.target.encode(&prompt.prompt)?;
            let ids = Prompt {
                draft: &draft,
                target: &target,
            };
            session.start(ids, StreamName::new(0, i as u64))?;
            while session.finished().is_none() {
                if totals.rounds == self.rounds {
                    break 'rounds;
                }
                let before = clocks.each_ref().map(|clock| clock.get());
                let mut policy = ConstantLength(self.k);
                let fetched = fetched_bytes(&session);
                let inside = session.target().model_seconds()?;
                let outcome = session.round(Some(&mut cache), &mut policy, &mut NoSink)?;
                seen += 1;
                if seen > WARM_UP {
                    let now = fetched_bytes(&session);
                    report.fetched_bytes_per_round += (now - fetched) as f64;
                    report.drafter_ms += clocks[0].get() - before[0];
                    let target = clocks[1].get() - before[1];
                    let inside = match (inside, session.target().model_seconds()?) {
                        (Some(before), Some(now)) => now - before,
                        _ => target,
                    };
                    report.target_ms += inside;
                    report.bridge_ms += target - inside;
                    totals.add(&outcome);
                }
            }
        }
        report.fill(&totals);
        Ok(report)
    }

    /// The target of a worker, loaded.
    fn worker(&self) -> Result<Option<TargetFolder>> {
        let Some(target) = &self.target else {
            self.torch.settings([], self.threads)?;
            return Ok(None);
        };
        let Some(model) = torch_model(target) else {
            bail!("--target {}: must be {TORCH_PREFIX}DIR", target.display());
        };
        let settings = TorchSettings {
            clock: Some(self.least_step()),
            ..self.torch.settings([&**target], self.threads)?
        };
        Ok(Some(TargetFolder::torch(&model, &settings)?))
    }

    fn least_step(&self) -> Duration {
        Duration::from_millis(self.target_step_ms.unwrap_or_default().into())
    }

    fn target_engine(&self, tokens: usize, clock: &Rc<Cell<f64>>) -> Result<Timed> {
        let on = self.devices.target()?;
        let own = self.engine(&self.target_shape, self.weights, tokens, on, clock)?;
        let least = self.least_step();
        Ok(Timed { least, ..own })
    }

    /// A sequence of a worker, which waits by itself for the end of a step.
    fn sequence(&self, worker: &TargetFolder, clock: &Rc<Cell<f64>>) -> Result<Timed> {
        let Some(torch) = worker.worker() else {
            bail!("the target has no worker");
        };
        let tokens = worker.vocabulary.len();
        let engine = torch.sequence(worker.max_context())?;
        Ok(Timed {
            decoder: Decoder::Worker(Box::new(engine)),
            seconds: clock.clone(),
            tokens,
            keeps: !self.all_logits,
            least: Duration::ZERO,
        })
    }

    fn drafts_in(&self) -> WeightType {
        self.draft_weights.unwrap_or(self.weights)
    }

    fn engine(
        &self,
        shape: &str,
        weights: WeightType,
        tokens: usize,
        device: Device,
        clock: &Rc<Cell<f64>>,
    ) -> Result<Timed> {
        let mut config = shape_config(shape)?;
        config.vocab_size = config.vocab_size.max(tokens);
        let options = EngineOptions {
            weights,
            threads: self.threads.count(),
            ..EngineOptions::default()
        };
        let mut subject = Subject::new(
            || Ok(Box::new(RandomWeights::new(&config, 0))),
            options,
            device,
        )?;
        subject.tune(WalkName::Kept, weights);
        subject.prepare()?;
        Ok(Timed {
            decoder: Decoder::Own(subject),
            seconds: clock.clone(),
            tokens,
            keeps: !self.all_logits,
            least: Duration::ZERO,
        })
    }

    fn blank(&self, mode: VerifyMode, drafter: &Timed, target: &Timed) -> Report {
        let (name, weights, kernels) = match &target.decoder {
            Decoder::Own(own) => {
                let name = self.target_shape.clone();
                (name, self.weights.to_string(), own.kernels())
            }
            Decoder::Worker(engine) => {
                let facts = engine.torch().facts();
                let name = facts.architecture.clone();
                let kernels = format!("torch {} on {}", facts.torch, facts.device);
                (name, facts.dtype.clone(), kernels)
            }
        };
        let threads = match &drafter.decoder {
            Decoder::Own(own) => own.threads(),
            Decoder::Worker(_) => 0,
        };
        Report {
            drafter: self.drafter_shape.clone(),
            target: name,
            draft_vocabulary: drafter.vocab_size(),
            target_vocabulary: target.vocab_size(),
            weights,
            draft_weights: self.drafts_in().to_string(),
            kernels,
            threads,
            target_step_ms: self.target_step_ms,
            k: self.k,
            temperature: self.temperature,
            verify: mode.name(),
            ..Report::default()
        }
    }
}

/// Bytes copied from graphics devices by both models.
fn fetched_bytes(session: &Session<Timed, Timed>) -> u64 {
    session.drafter().fetched_bytes() + session.target().fetched_bytes()
}

fn vocabulary<I: TokenId>(folder: &Path) -> Result<Vocabulary<I>> {
    Ok(Vocabulary::from_file(
        &local_folder(folder)?.join("tokenizer.json"),
    )?)
}

impl Report {
    /// Fills in means of the sums so far (`drafter_ms` and `target_ms` are in seconds before).
    fn fill(&mut self, totals: &Totals) {
        let rounds = totals.rounds.max(1) as f64;
        let mean = |seconds: f64| 1e3 * seconds / rounds;
        let times = &totals.timings;
        let outside = times.total() - self.drafter_ms - self.target_ms;
        self.rounds = totals.rounds;
        self.fetched_bytes_per_round /= rounds;
        self.proposed_per_round = totals.proposed as f64 / rounds;
        self.accepted_per_round = totals.accepted as f64 / rounds;
        self.outside_share = outside / times.total();
        self.sampling_ms = mean(times.draft - self.drafter_ms);
        self.drafter_ms = mean(self.drafter_ms);
        self.target_ms = mean(self.target_ms);
        self.bridge_ms = mean(self.bridge_ms);
        self.round_ms = mean(times.total());
        self.translate_ms = mean(times.translate);
        self.verify_ms = mean(times.verify);
        self.commit_ms = mean(times.commit);
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} ({} tokens, {}) drafts {} for {} ({} tokens, {}): {}, T = {}, kernels {}, {} threads\n",
            self.drafter,
            self.draft_vocabulary,
            self.draft_weights,
            self.k,
            self.target,
            self.target_vocabulary,
            self.weights,
            self.verify,
            self.temperature,
            self.kernels,
            self.threads,
        );
        text += &format!(
            "{} rounds, {:.2} proposed, {:.2} accepted; {:.3} ms a round, {:.2}% of it outside the models\n",
            self.rounds,
            self.proposed_per_round,
            self.accepted_per_round,
            self.round_ms,
            100.0 * self.outside_share,
        );
        let parts = [
            ("drafter forwards", self.drafter_ms),
            ("target forward", self.target_ms),
            (BRIDGE, self.bridge_ms),
            ("draft sampling", self.sampling_ms),
            ("translation", self.translate_ms),
            ("verification", self.verify_ms),
            ("commit", self.commit_ms),
        ];
        let local = self.bridge_ms == 0.0;
        for (part, ms) in parts
            .into_iter()
            .filter(|(part, _)| !(local && *part == BRIDGE))
        {
            text += &format!("  {part:<17} {ms:>9.4} ms\n");
        }
        if self.fetched_bytes_per_round > 0.0 {
            let bytes = self.fetched_bytes_per_round;
            text += &format!("  from the device   {bytes:>9.0} bytes\n");
        }
        text
    }
}
