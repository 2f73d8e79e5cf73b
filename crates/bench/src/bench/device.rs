//! `omnidraft bench device`: one model on a graphics device, loaded once and timed in several ways.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use cpu_engine::EngineOptions;
use lm::{Device, LanguageModel, WeightType};
use models::step::median;
use serde::Serialize;

use super::subject::{DeviceFacts, PassTime, Subject};
use super::{MIN_SAMPLES, What, call, peak_memory, prompt, rewind, token_ids};
use crate::print_as;

/// Numbers of tokens of the calls.
const ROWS: [usize; 11] = [1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 33];
/// Numbers of rows of the passes timed by the device's own clock.
const PASSES: [usize; 4] = [1, 5, 12, 16];
/// Passes with other outputs per group and groups per cube than the usual ones, for `--cubes`.
/// Every one of them is compiled first, which takes seconds for integer weights and many rows.
const OTHERS: [(usize, [usize; 2]); 8] = [
    (1, [4, 1]),
    (1, [8, 1]),
    (1, [8, 2]),
    (5, [4, 1]),
    (5, [8, 2]),
    (12, [8, 1]),
    (16, [8, 1]),
    (16, [4, 2]),
];
/// Number of runs of every part of such a pass.
const REPEATS: usize = 5;
/// Numbers of tokens of the prompts.
const PROMPTS: [usize; 2] = [128, 512];

/// Arguments of `device`.
#[derive(Debug, Args)]
pub struct DeviceBenchArgs {
    #[command(flatten)]
    what: What,
    /// Weight format.
    #[arg(long, default_value_t = WeightType::Bf16)]
    weights: WeightType,
    /// Graphics device: gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Gpu(0))]
    device: Device,
    /// Tokens in the cache before a call.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Time passes with other divisions of a matrix among cubes too.
    #[arg(long)]
    cubes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The figures of one model. Times are medians, in milliseconds.
#[derive(Debug, Default, Serialize)]
struct Report {
    command: &'static str,
    model: String,
    weights: String,
    device: Option<DeviceFacts>,
    context: usize,
    parameters: usize,
    memory_bytes: usize,
    load_s: f64,
    peak_bytes: Option<u64>,
    /// Bytes of weights that a pass reads.
    weight_bytes: usize,
    /// Read bandwidth of the device's memory, in gigabytes per second.
    memory_gb_per_s: f64,
    /// Bytes of weights over the time of one token (`greedy_ms`).
    weights_gb_per_s: f64,
    /// Calls with all logits brought to the host, by number of tokens.
    ms: BTreeMap<usize, f64>,
    /// Calls that return the most probable tokens only.
    greedy_ms: BTreeMap<usize, f64>,
    /// The same, launched one by one instead of replayed.
    launched_ms: BTreeMap<usize, f64>,
    /// A prompt into an empty cache with logits of its last token, by number of tokens.
    prefill_ms: BTreeMap<usize, f64>,
    /// Passes timed by the device's clock, with their launches by kind.
    passes: Vec<PassTime>,
}

impl DeviceBenchArgs {
    /// Measures and prints.
    pub(super) fn execute(self) -> Result<()> {
        if self.context == 0 || !(self.seconds >= 0.0 && self.seconds <= 3600.0) {
            bail!("--context must be at least 1, and --seconds between 0 and 3600");
        }
        if self.device == Device::Cpu {
            bail!("--device: `bench verify` times the processor");
        }
        let longest = ROWS[ROWS.len() - 1];
        let called = self.context.saturating_add(longest);
        let room = called.max(PROMPTS[PROMPTS.len() - 1]);
        let options = EngineOptions {
            weights: self.weights,
            max_len: room,
            ..EngineOptions::default()
        };
        let began = Instant::now();
        let mut subject = Subject::new(|| self.what.open(), options, self.device)?;
        let load_s = began.elapsed().as_secs_f64();
        let engine = subject.decoder();
        if room > engine.max_len() {
            bail!(
                "--context {}: with prompts and calls {room} tokens are needed, and the model holds {}",
                self.context,
                engine.max_len()
            );
        }
        let ids = token_ids(room, engine.vocab_size());
        let probe = subject.probe()?;
        let mut memory = Vec::new();
        for _ in 0..MIN_SAMPLES {
            memory.push(probe.pass()? / 1e9);
        }
        drop(probe);
        let mut report = Report {
            command: "device",
            model: self.what.name(),
            weights: self.weights.to_string(),
            device: subject.device_facts(),
            context: self.context,
            parameters: subject.config().num_params(),
            memory_bytes: subject.memory_bytes(),
            load_s,
            peak_bytes: peak_memory(),
            weight_bytes: subject.weight_bytes(),
            memory_gb_per_s: median(memory),
            ..Report::default()
        };
        for replay in [true, false] {
            subject.set_replay(replay);
            let engine = subject.decoder();
            for m in ROWS {
                let greedy = self.median_ms(|| self.greedy(engine, &ids, m))?;
                match replay {
                    true => report.greedy_ms.insert(m, greedy),
                    false => report.launched_ms.insert(m, greedy),
                };
                if replay {
                    let all = self.median_ms(|| call(engine, &ids, self.context, m, 1))?;
                    report.ms.insert(m, all);
                }
            }
        }
        for tokens in PROMPTS {
            let engine = subject.decoder();
            let ms = self.median_ms(|| prompt(engine, &ids[..tokens]))?;
            report.prefill_ms.insert(tokens, ms);
        }
        let usual = PASSES.map(|rows| (rows, None));
        let others = OTHERS.map(|(rows, cubes)| (rows, Some(cubes)));
        let others = others.into_iter().filter(|_| self.cubes);
        for (rows, cubes) in usual.into_iter().chain(others) {
            let pass = subject.time_steps(rows, self.context, REPEATS, cubes)?;
            report.passes.extend(pass);
        }
        report.weights_gb_per_s = report.weight_bytes as f64 / report.greedy_ms[&1] / 1e6;
        print_as(self.json, &report, Report::text)
    }

    /// Median of the seconds that `call` returns, in milliseconds; the first two calls warm up.
    fn median_ms(&self, mut call: impl FnMut() -> Result<f64>) -> Result<f64> {
        for _ in 0..2 {
            call()?;
        }
        let limit = Duration::from_secs_f64(self.seconds);
        let start = Instant::now();
        let mut times = Vec::new();
        while times.len() < MIN_SAMPLES || start.elapsed() < limit {
            times.push(1e3 * call()?);
        }
        Ok(median(times))
    }

    /// Seconds of a call of `m` tokens after the context, with the most probable token of each row
    /// only.
    fn greedy(&self, engine: &mut dyn LanguageModel, ids: &[u32], m: usize) -> Result<f64> {
        rewind(engine, ids, self.context)?;
        let mut best = Vec::new();
        let start = Instant::now();
        let device = engine.device_logits(m);
        let device = device.context("logits of so many rows do not stay on the device")?;
        device.score(&ids[self.context..self.context + m])?;
        device.best(&mut best)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Report {
    fn text(&self) -> String {
        let share = 100.0 * self.weights_gb_per_s / self.memory_gb_per_s;
        let mut text = format!(
            "device {}: {:.1}M parameters, weights {}, on {}, context {}, {:.0} MB, loaded in {:.1} s\n\
             weights {:.0} GB/s of {:.0} GB/s memory ({share:.0}%) at one token\n\
             tokens  all logits     greedy   launched   over one\n",
            self.model,
            self.parameters as f64 / 1e6,
            self.weights,
            self.device.as_ref().map_or("?", |device| &device.name),
            self.context,
            self.memory_bytes as f64 / 1e6,
            self.load_s,
            self.weights_gb_per_s,
            self.memory_gb_per_s,
        );
        for (m, ms) in &self.greedy_ms {
            text += &format!(
                "  {m:>4} {:>11.3} {ms:>10.3} {:>10.3} {:>10.2}\n",
                self.ms[m],
                self.launched_ms[m],
                ms / self.greedy_ms[&1],
            );
        }
        for (tokens, ms) in &self.prefill_ms {
            text += &format!("prompt of {tokens}: {ms:.2} ms\n");
        }
        for pass in &self.passes {
            text += &format!(
                "a pass of {} rows by the clock of the device, cubes of {} x {} outputs: {} launches, {:.3} ms\n",
                pass.rows, pass.cubes[1], pass.cubes[0], pass.launches, pass.ms,
            );
            for step in &pass.steps {
                text += &format!(
                    "  {:<12} {:>4} in {:>8.3} ms\n",
                    step.name, step.launches, step.ms
                );
            }
        }
        text
    }
}
