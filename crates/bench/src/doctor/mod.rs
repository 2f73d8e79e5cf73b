//! `omnidraft doctor`: a measurement of whether speculation pays on this machine with this pair.

mod advice;
mod learning;
mod measure;
mod model;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use cpu_engine::default_threads;
use experiment::DecodeConfig;
use lm::{EngineSettings, WeightType};
use models::step::{STEP_CONTEXT, StepTimes, Stepper};
use models::{ModelFolder, TargetFolder, align};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use spec_decode::PlainConfig;
use streams::{MiniTask, Prompt, Split, load_prompts};
use vocab_align::DraftId;

use crate::args::{DeviceArgs, ThreadArgs, TorchArgs};
use crate::{flag, print_as};
use learning::Learning;
use measure::{DecodingRun, Measured};
use model::{best, break_even};

/// Draft lengths to measure.
const LENGTHS: [usize; 4] = [1, 2, 4, 8];
/// Acceptance rates whose speedups are printed.
const RATES: [f64; 6] = [0.3, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Number of bootstrap samples of the prompts, and the share of each tail outside of the interval.
const DRAWS: usize = 1000;
const TAIL: f64 = 0.025;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft doctor --target models/L --drafter models/D
  omnidraft doctor --target models/L --drafter models/D --data datasets/mini-chat/test.jsonl --prompts 20
  omnidraft doctor --target models/L --drafter models/D --weights int8 --draft-weights int4 --threads 2 --json

Answers a few prompts plainly, with drafts of several lengths, and with lookups in the text so far.
Says how fast each is here, at which acceptance rate drafting breaks even, and what to change. Run it
alone on the machine.")]
pub struct DoctorArgs {
    /// Model folder of the target, or hf:owner/name[@revision]; torch: in front of it for a worker
    /// of PyTorch.
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    drafter: PathBuf,
    /// Prompts, a JSON object with `id` and `prompt` a line, or the file of a benchmark such as Spec-Bench
    /// (default: the embedded streams').
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Prompts answered.
    #[arg(long, default_value_t = 10)]
    prompts: usize,
    /// Maximum number of tokens per answer.
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Weight format while decoding.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    /// Weight format of the drafter, if that is another one: its steps cost less in fewer bits.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightType>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    torch: TorchArgs,
    /// Seed of the random streams.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Measurement of one draft length, or of lookup.
#[derive(Debug, Clone, Serialize)]
struct Row {
    k: usize,
    acceptance: f64,
    tokens_a_round: f64,
    /// Cost of a round, in plain target steps.
    round_cost: f64,
    /// Speedup over plain decoding, without prefill.
    speed: f64,
    /// Ends of the 95% interval over prompts.
    low: f64,
    high: f64,
    /// Shares of the time: drafting, target, everything else.
    shares: [f64; 3],
}

/// The whole report.
#[derive(Debug, Clone, Serialize)]
struct Diagnosis {
    target: String,
    drafter: String,
    prompts: usize,
    tokens: usize,
    weights: String,
    draft_weights: String,
    threads: usize,
    cores: usize,
    /// Milliseconds of a target step, and of a drafter step, at a context of [`STEP_CONTEXT`] tokens.
    target_step_ms: f64,
    drafter_step_ms: f64,
    /// Drafter step over target step.
    step_ratio: f64,
    /// Time of five tokens at once, in plain target steps.
    verify_cost: f64,
    drafted: Vec<Row>,
    lookup: Row,
    break_even: Option<f64>,
    /// Acceptance rate, best draft length, expected speedup.
    expected: Vec<(f64, usize, f64)>,
    /// Cost and possible gain of learning; `None` for a drafter that cannot learn here.
    learning: Option<Learning>,
    advice: Vec<String>,
}

impl Diagnosis {
    /// The fastest draft length.
    fn best(&self) -> Option<&Row> {
        self.drafted
            .iter()
            .max_by(|a, b| a.speed.total_cmp(&b.speed))
    }
}

impl DoctorArgs {
    /// Measures the pair and prints the report.
    ///
    /// # Errors
    /// Unusable models or prompts, options out of range.
    pub fn execute(self, progress: bool) -> Result<()> {
        if self.prompts == 0 || self.max_tokens == 0 {
            bail!("--prompts and --max-tokens must be at least 1");
        }
        let decode = self.decode();
        let sampling = decode.sampling().map_err(flag)?;
        let prompts = self.questions()?;
        let target = self.torch.load(&self.target, self.threads)?;
        let drafter = ModelFolder::<DraftId>::load(&self.drafter)?;
        let drafts = decode.drafter_engine(self.devices.drafter()?);
        let scores = decode.engine().on(self.devices.target()?);
        let steps = steps((&drafter, drafts), (&target, scores))?;
        let engines = (drafter.engine(drafts)?, target.engine(scores)?);
        let start = Instant::now();
        let show = progress && std::io::stderr().is_terminal();
        let tell = |done: usize| {
            if show {
                let left =
                    start.elapsed().as_secs_f64() / done as f64 * (prompts.len() - done) as f64;
                eprint!("\r{done}/{} prompts, {left:.0} s left ", prompts.len());
            }
        };
        let settings = PlainConfig {
            sampling,
            max_new_tokens: self.max_tokens,
            stop: target.stop_tokens(),
        };
        let measured = measure::measure(
            &drafter, &target, engines, &prompts, &settings, self.seed, tell,
        )?;
        if show {
            eprint!("\r{:40}\r", "");
        }
        let mut found = self.diagnosis(&measured, &steps);
        found.learning = self.learning(&measured, &drafter, &target)?;
        found.advice = advice::sentences(&found);
        print_as(self.json, &found, Diagnosis::text)
    }

    fn questions(&self) -> Result<Vec<Prompt>> {
        let mut prompts = match &self.data {
            Some(file) => load_prompts(file, "doctor")?,
            None => {
                let mut all = Vec::new();
                let (math, chat) = (
                    MiniTask::Math.prompts(Split::Test)?,
                    MiniTask::Chat.prompts(Split::Test)?,
                );
                for (a, b) in math.into_iter().zip(chat) {
                    all.extend([a, b]);
                }
                all
            }
        };
        prompts.truncate(self.prompts);
        Ok(prompts)
    }

    fn decode(&self) -> DecodeConfig {
        DecodeConfig {
            temperature: self.temperature,
            weights: self.weights,
            draft_weights: self.draft_weights,
            threads: self.threads.count(),
            ..DecodeConfig::default()
        }
    }

    /// Times learning on as many threads, and estimates the gain that it needs to pay.
    fn learning(
        &self,
        measured: &Measured,
        drafter: &ModelFolder<DraftId>,
        target: &TargetFolder,
    ) -> Result<Option<Learning>> {
        let plain = &measured.plain;
        let speed = |way: &&DecodingRun| way.speed(plain);
        let fastest = measured
            .drafted
            .iter()
            .max_by(|a, b| speed(a).total_cmp(&speed(b)));
        let can = self.devices.drafter()?.is_cpu() && drafter.config().check_trainable().is_ok();
        let Some(fastest) = fastest.filter(|_| can) else {
            return Ok(None);
        };
        let alignment = align(drafter, target).alignment;
        let ids = 0..drafter.vocabulary.len() as u32;
        let shared = ids.filter(|id| alignment.direct(DraftId(*id)).is_some());
        let shared = shared.count();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads.count());
        let checkpoint = drafter.checkpoint()?;
        let weights = self.decode().drafts_in();
        let learn = || learning::measure(&checkpoint, weights, measured, fastest, shared);
        pool.build()?.install(learn).map(Some)
    }

    fn diagnosis(&self, measured: &Measured, steps: &StepTimes) -> Diagnosis {
        let plain = &measured.plain;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let count = plain.answers.len();
        let draw = |_| (0..count).map(|_| rng.random_range(0..count)).collect();
        let draws: Vec<Vec<usize>> = (0..DRAWS).map(draw).collect();
        let rounds = measured.rounds();
        let at = |rate: &f64| best(&rounds, *rate).map(|(k, speed)| (*rate, k, speed));
        Diagnosis {
            target: self.target.display().to_string(),
            drafter: self.drafter.display().to_string(),
            prompts: count,
            tokens: plain.tokens(),
            weights: self.weights.to_string(),
            draft_weights: self.decode().drafts_in().to_string(),
            threads: self.threads.count(),
            cores: default_threads(),
            target_step_ms: 1e3 * steps.target_s,
            drafter_step_ms: 1e3 * steps.draft_s,
            step_ratio: steps.ratio(),
            verify_cost: steps.verify_s / steps.target_s,
            drafted: measured
                .drafted
                .iter()
                .map(|way| row(way, plain, &draws))
                .collect(),
            lookup: row(&measured.lookup, plain, &draws),
            break_even: break_even(&rounds),
            expected: RATES.iter().filter_map(at).collect(),
            learning: None,
            advice: Vec::new(),
        }
    }
}

fn steps(
    (drafter, drafts): (&ModelFolder<DraftId>, EngineSettings),
    (target, scores): (&TargetFolder, EngineSettings),
) -> Result<StepTimes> {
    // Half of a short context leaves room for the measured steps.
    let context = |longest: usize| STEP_CONTEXT.min(longest / 2);
    let longest = drafter.config().max_position_embeddings;
    let mut small = Stepper::new(drafter, drafts, context(longest))?;
    let mut large = Stepper::of_target(target, scores, context(target.max_context()))?;
    Ok(models::step::measure(&mut small, &mut large)?)
}

fn row(way: &DecodingRun, plain: &DecodingRun, draws: &[Vec<usize>]) -> Row {
    let mut speeds: Vec<f64> = draws
        .iter()
        .map(|order| way.speed_of(plain, order))
        .collect();
    speeds.sort_unstable_by(f64::total_cmp);
    let end = |share: f64| speeds[(share * (speeds.len() - 1) as f64).round() as usize];
    Row {
        k: way.k,
        acceptance: way.acceptance(),
        tokens_a_round: way.tokens_a_round(),
        round_cost: way.round_cost(plain).cost,
        speed: way.speed(plain),
        low: end(TAIL),
        high: end(1.0 - TAIL),
        shares: way.shares(),
    }
}

impl Diagnosis {
    fn text(&self) -> String {
        let mut text = format!(
            "target {}: {:.3} ms a step, five tokens at once {:.2} steps\ndrafter {}: {:.3} ms a step, {:.2} of the \
             target's\n{} prompts, {} tokens plainly, weights {}, the drafter's {}, {} threads\n\n",
            self.target,
            self.target_step_ms,
            self.verify_cost,
            self.drafter,
            self.drafter_step_ms,
            self.step_ratio,
            self.prompts,
            self.tokens,
            self.weights,
            self.draft_weights,
            self.threads,
        );
        text.push_str(
            "drafts of       acceptance  tokens a round  round costs  speed (95% of prompts)\n",
        );
        let mut line = |name: String, row: &Row| {
            let _ = writeln!(
                text,
                "{name:15} {:10.2}  {:14.2}  {:5.2} steps  {:.2}x ({:.2} to {:.2})",
                row.acceptance, row.tokens_a_round, row.round_cost, row.speed, row.low, row.high
            );
        };
        for row in &self.drafted {
            line(format!("{} by drafter", row.k), row);
        }
        line(format!("{} by lookup", self.lookup.k), &self.lookup);
        text.push_str("\nexpected where each proposed token is accepted with probability a:\n");
        for (rate, k, speed) in &self.expected {
            let _ = writeln!(text, "  a = {rate:.1}: {speed:.2}x, k = {k}");
        }
        if let Some(learning) = &self.learning {
            text.push_str(&learning.text());
        }
        text.push('\n');
        for sentence in &self.advice {
            let _ = writeln!(text, "- {sentence}");
        }
        text
    }
}
