//! `omnidraft bench`: speed of the decode engine on this machine.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use cpu_engine::{Compact, EngineOptions, KernelChoice};
use lm::{
    Device, LanguageModel, LmConfig, RandomWeights, StoredCheckpoint, StoredType, TensorSource,
    WeightType, write_model,
};
use serde::Serialize;

use crate::args::ThreadArgs;
use crate::print_as;
use hub::local_folder;
use models::step::median;

mod device;
mod fidelity;
mod kernels;
pub(crate) mod learn;
mod logits;
mod round;
mod steps;
mod subject;
mod timed;

use device::DeviceBenchArgs;
use fidelity::FidelityArgs;
use kernels::{AdaptersArgs, KernelsArgs};
use learn::LearnArgs;
use logits::LogitsArgs;
use round::RoundArgs;
use steps::StepsArgs;
use subject::{Subject, WalkName};

/// Numbers of tokens of the calls that `verify` times.
const VERIFY: [usize; 7] = [1, 2, 3, 5, 8, 9, 16];
/// Longest call after the context, in tokens.
const LONGEST_CALL: usize = 16;
/// Minimum number of samples of every figure.
const MIN_SAMPLES: usize = 5;

/// The measurements.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  omnidraft bench verify --shape llama-242m --weights int8 --threads 2
  omnidraft bench verify --shape llama-3-8b --weights int4 --device gpu
  omnidraft bench device --shape llama-3-8b --weights int4
  omnidraft bench adapters
  omnidraft bench kernels --weights int4 --rows 1,5 --units 32,64,128 --per-group 2,4,8
  omnidraft bench decode --model models/L --weights bf16 --json
  omnidraft bench prefill --shape llama-68m --context 128
  omnidraft bench round --target-shape llama-242m --drafter-shape llama-68m
  omnidraft bench steps --target models/L --drafter models/D --weights int8,int4 --draft-weights int4
  omnidraft bench fidelity --model models/L models/Q
  omnidraft bench learn --shape llama-68m --threads 2")]
pub enum BenchCommand {
    /// Time one token after a context.
    Decode(BenchArgs),
    /// Time calls of 1 to 16 tokens with all logits, the cost of verifying drafts.
    Verify(VerifyArgs),
    /// Time reading a prompt of --context tokens into an empty cache, logits of the last one.
    Prefill(BenchArgs),
    /// Time a model on a graphics device in all ways, also by kind of launch, after one load.
    Device(DeviceBenchArgs),
    /// Time single projections of a graphics device, divided in several ways.
    Kernels(KernelsArgs),
    /// List the graphics devices of this machine.
    Adapters(AdaptersArgs),
    /// Time an update of a drafter (Algorithm 2) on synthetic examples.
    Learn(LearnArgs),
    /// Write a random model of a shape, for other engines to read.
    Checkpoint(CheckpointArgs),
    /// Write the logits of 16 tokens after a context, those that `verify` times.
    Logits(LogitsArgs),
    /// Time speculative rounds, and the part of them that is not spent in the models.
    Round(RoundArgs),
    /// Time a step of a drafter and of a target in every weight format of both.
    Steps(StepsArgs),
    /// Compare the next-token distributions of narrower weights with those of f32.
    Fidelity(FidelityArgs),
}

/// Arguments of the measurements.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    what: What,
    /// Weight format.
    #[arg(long, default_value_t = WeightType::Bf16)]
    weights: WeightType,
    /// Lossless 12-bit storage of the weights of bf16 checkpoints (auto: from 24 MiB on).
    #[arg(long, default_value = "auto", value_parser = named(COMPACT))]
    compact: Compact,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Device that computes: cpu, gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Cpu)]
    device: Device,
    /// Tokens in the cache before a call; for `prefill`, tokens of the prompt.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Seconds to measure, memory bandwidth included.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Instruction set; auto is the widest that this processor has.
    #[arg(long, default_value = "auto", value_parser = named(kernel_names()))]
    kernels: KernelChoice,
    /// Order in which the kernels read weights.
    #[arg(long, value_enum, default_value_t = WalkName::Kept)]
    walk: WalkName,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    bench: BenchArgs,
    /// Time calls of every number of tokens, to see whether one is slower than a larger one.
    #[arg(long)]
    every: bool,
}

/// Choices of [`Compact`] by name.
const COMPACT: [(&str, Compact); 3] = [
    ("auto", Compact::Auto),
    ("on", Compact::On),
    ("off", Compact::Off),
];

fn kernel_names() -> [(&'static str, KernelChoice); 7] {
    KernelChoice::ALL.map(|kernels| (kernels.name(), kernels))
}

/// A parser of the names of some values.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.map(|(name, _)| name)).try_map(move |given| {
        let found = values.iter().find(|(name, _)| *name == given);
        found.map(|(_, value)| *value).ok_or("no such name")
    })
}

/// A parser of the names of known shapes.
fn shape_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(lm::shape_names())
}

fn shape_config(name: &str) -> Result<LmConfig> {
    match lm::known_shape(name) {
        Some(config) => Ok(config?),
        None => bail!("the shape {name} is not known"),
    }
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Model folder (config.json and weights), or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Random weights in the shape of a known model.
    #[arg(long, value_parser = shape_parser())]
    shape: Option<String>,
}

impl What {
    /// Name of the model.
    fn name(&self) -> String {
        match &self.model {
            Some(folder) => folder.display().to_string(),
            None => self.shape.clone().unwrap_or_default(),
        }
    }

    /// Its weights.
    fn open(&self) -> Result<Box<dyn TensorSource>> {
        Ok(match (&self.model, &self.shape) {
            (Some(folder), _) => Box::new(StoredCheckpoint::open(&local_folder(folder)?)?),
            (None, Some(name)) => Box::new(RandomWeights::new(&shape_config(name)?, 0)),
            (None, None) => bail!("give --model or --shape"),
        })
    }
}

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// Shape; llama-3-8b takes 15 GiB on disk.
    #[arg(long, value_parser = shape_parser())]
    shape: String,
    /// Folder to write.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Largest file, in millions of bytes; one file without it.
    #[arg(long, value_name = "MB")]
    shard_mb: Option<NonZeroU64>,
}

/// One measurement. Times are medians.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    model: String,
    weights: String,
    /// True if the weights are in lossless compact form.
    compact: bool,
    threads: usize,
    context: usize,
    kernels: String,
    /// Order in which the kernels read weights; `None` on a graphics device.
    walk: Option<String>,
    parameters: usize,
    memory_bytes: usize,
    /// Seconds to read and pack the weights.
    load_s: f64,
    /// Peak memory of the process until then, in bytes; `None` if the system does not report it.
    peak_bytes: Option<u64>,
    /// Tokens a second of plain decoding, or of the prompt.
    tokens_per_s: f64,
    /// Milliseconds by tokens of a call.
    ms: BTreeMap<usize, f64>,
    ratio5: Option<f64>,
    ratio9: Option<f64>,
    /// Bytes of weights read by the shortest call, over its time.
    weights_gb_per_s: f64,
    /// Read bandwidth with the same threads, between the calls.
    memory_gb_per_s: f64,
}

impl BenchCommand {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        match self {
            Self::Decode(args) => args.execute("decode", &VERIFY[..1]),
            Self::Verify(VerifyArgs { bench, every }) => {
                let all: Vec<usize> = (1..=LONGEST_CALL).collect();
                bench.execute("verify", if every { &all[..] } else { &VERIFY })
            }
            Self::Prefill(args) => args.execute("prefill", &[]),
            Self::Device(args) => args.execute(),
            Self::Kernels(args) => args.execute(),
            Self::Adapters(args) => args.execute(),
            Self::Learn(args) => args.execute(),
            Self::Checkpoint(args) => args.execute(),
            Self::Logits(args) => args.execute(),
            Self::Round(args) => args.execute(),
            Self::Steps(args) => args.execute(),
            Self::Fidelity(args) => args.execute(),
        }
    }
}

impl CheckpointArgs {
    fn execute(self) -> Result<()> {
        let source = RandomWeights::new(&shape_config(&self.shape)?, self.seed);
        let shard = self.shard_mb.map_or(u64::MAX, |mb| mb.get() * 1_000_000);
        Ok(write_model(&source, &self.out, StoredType::Bf16, shard)?)
    }
}

impl BenchArgs {
    /// `calls` are the numbers of tokens of the calls to time after the context; empty for a
    /// prompt.
    fn execute(self, command: &'static str, calls: &[usize]) -> Result<()> {
        if self.context == 0 {
            bail!("--context must be at least 1");
        }
        if !(self.seconds >= 0.0 && self.seconds <= 3600.0) {
            bail!("--seconds must be between 0 and 3600");
        }
        let began = Instant::now();
        let mut subject = self.subject()?;
        let (load_s, peak_bytes) = (began.elapsed().as_secs_f64(), peak_memory());
        let walk = subject.tune(self.walk, self.weights);
        let engine = subject.decoder();
        let after = if calls.is_empty() { 0 } else { LONGEST_CALL };
        let room = self.context.saturating_add(after);
        if room > engine.max_len() {
            bail!(
                "--context {}: with the calls timed, {room} tokens are needed, and the model holds {}",
                self.context,
                engine.max_len()
            );
        }
        let ids = token_ids(self.context + LONGEST_CALL, engine.vocab_size());
        let probe = subject.probe()?;
        let engine = subject.decoder();
        let (mut times, mut bandwidth) = (BTreeMap::<usize, Vec<f64>>::new(), Vec::new());
        let limit = Duration::from_secs_f64(self.seconds);
        let start = Instant::now();
        // One of each in turn, so that a disturbance of the machine affects all alike.
        while bandwidth.len() < MIN_SAMPLES || start.elapsed() < limit {
            if calls.is_empty() {
                let time = prompt(engine, &ids[..self.context])?;
                times.entry(self.context).or_default().push(time);
            }
            for m in calls {
                // The faster of two, since other data fill the processor's caches before the first.
                let time = call(engine, &ids, self.context, *m, 2)?;
                times.entry(*m).or_default().push(time);
            }
            // The faster of two, as for the calls.
            bandwidth.push(probe.pass()?.max(probe.pass()?) / 1e9);
        }
        let ms: BTreeMap<usize, f64> = times
            .into_iter()
            .map(|(m, times)| (m, 1e3 * median(times)))
            .collect();
        let first = ms
            .first_key_value()
            .map_or((1, f64::NAN), |(m, ms)| (*m, *ms));
        let ratio = |m: usize| {
            (first.0 == 1)
                .then(|| Some(ms.get(&m)? / first.1))
                .flatten()
        };
        let report = Report {
            command,
            model: self.what.name(),
            weights: self.weights.to_string(),
            compact: subject.compact(),
            threads: subject.threads(),
            context: self.context,
            kernels: subject.kernels(),
            walk,
            parameters: subject.config().num_params(),
            memory_bytes: subject.memory_bytes(),
            load_s,
            peak_bytes,
            tokens_per_s: 1e3 * first.0 as f64 / first.1,
            ratio5: ratio(5),
            ratio9: ratio(9),
            weights_gb_per_s: subject.weight_bytes() as f64 / first.1 / 1e6,
            memory_gb_per_s: median(bandwidth),
            ms,
        };
        print_as(self.json, &report, Report::text)
    }

    fn subject(&self) -> Result<Subject> {
        let options = EngineOptions {
            weights: self.weights,
            compact: self.compact,
            threads: self.threads.count(),
            max_len: self.context.saturating_add(LONGEST_CALL),
            kernels: self.kernels,
            ..EngineOptions::default()
        };
        Subject::new(|| self.what.open(), options, self.device)
    }
}

/// Peak memory of the process so far, in bytes, from Linux.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The tokens of every measurement, `i * 7919 % vocab`, so that other engines can be given the same
/// ones.
fn token_ids(count: usize, vocab: usize) -> Vec<u32> {
    (0..count).map(|i| (i * 7919 % vocab) as u32).collect()
}

/// Seconds of reading a prompt into an empty cache.
fn prompt(engine: &mut dyn LanguageModel, ids: &[u32]) -> Result<f64> {
    engine.truncate(0);
    let mut logits = vec![0.0; engine.vocab_size()];
    let start = Instant::now();
    engine.prompt(ids, &mut logits)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Truncates the cache to `context` tokens, or fills it up to there.
fn rewind(engine: &mut dyn LanguageModel, ids: &[u32], context: usize) -> Result<()> {
    engine.truncate(context);
    let missing = &ids[engine.len()..context];
    if !missing.is_empty() {
        engine.prefill(missing)?;
    }
    Ok(())
}

/// Seconds of the fastest of some calls of `m` tokens after `context`, with all logits.
fn call(
    engine: &mut dyn LanguageModel,
    ids: &[u32],
    context: usize,
    m: usize,
    calls: usize,
) -> Result<f64> {
    rewind(engine, ids, context)?;
    let mut logits = vec![0.0; m * engine.vocab_size()];
    let mut best = f64::INFINITY;
    for _ in 0..calls {
        engine.truncate(context);
        let start = Instant::now();
        engine.forward(&ids[context..context + m], &mut logits)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{} {}: {:.1}M parameters, weights {}{}, kernels {}, {} threads, context {}, {:.0} MB\n",
            self.command,
            self.model,
            self.parameters as f64 / 1e6,
            self.weights,
            if self.compact { " compact" } else { "" },
            self.kernels,
            self.threads,
            self.context,
            self.memory_bytes as f64 / 1e6,
        );
        if let Some(walk) = &self.walk {
            text += &format!("walk {walk}; ");
        }
        text += &format!("loaded in {:.1} s", self.load_s);
        if let Some(peak) = self.peak_bytes {
            text += &format!(", with a peak of {:.0} MB", peak as f64 / 1e6);
        }
        text += "\n";
        text += &format!(
            "{:.1} tokens/s; weights {:.1} GB/s of {:.1} GB/s memory ({:.0}%)\n",
            self.tokens_per_s,
            self.weights_gb_per_s,
            self.memory_gb_per_s,
            100.0 * self.weights_gb_per_s / self.memory_gb_per_s,
        );
        let first = self.ms.first_key_value().map_or(f64::NAN, |(_, ms)| *ms);
        for (m, ms) in &self.ms {
            text += &format!("  {m:>4} tokens {ms:>10.3} ms");
            text += &match self.ms.len() {
                1 => "\n".to_owned(),
                _ => format!("   {:.2} x\n", ms / first),
            };
        }
        text
    }
}
