//! `omnidraft bench round`: the parts of a speculative round's time.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use cpu_engine::EngineOptions;
use lm::{Device, WeightType};
use ngram_cache::{CacheConfig, NgramCache};
use serde::Serialize;
use spec_decode::{
    ConstantLength, DeviceLogits, LanguageModel, ModelError, NoSink, Pair, Prompt, Sampling,
    Session, SessionConfig, StreamName, Totals, VerifyMode,
};
use vocab_align::{TokenId, Vocabulary};

use super::Shape;
use super::subject::{Source, Subject, WalkName};
use crate::args::{DeviceArgs, parse_verify};
use crate::print;
use hub::local_folder;
use streams::MiniTask;
use streams::{DataSource, Split};

/// Number of tokens of a response.
const RESPONSE: usize = 64;
/// Number of rounds before the clock counts, because of page faults and cold caches.
const WARM_UP: usize = 4;

/// Arguments of `round`.
#[derive(Debug, Args)]
pub struct RoundArgs {
    /// Random drafter of this shape.
    #[arg(long, value_enum, default_value = "llama-68m")]
    drafter_shape: Shape,
    /// Random target of this shape.
    #[arg(long, value_enum, default_value = "llama-242m")]
    target_shape: Shape,
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
    /// Threads (default: one a fast core).
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    devices: DeviceArgs,
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
#[derive(Debug, Serialize)]
struct Report {
    drafter: String,
    target: String,
    draft_vocabulary: usize,
    target_vocabulary: usize,
    weights: String,
    draft_weights: String,
    kernels: String,
    threads: usize,
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
    /// Masking and sampling of draft tokens.
    sampling_ms: f64,
    /// Draft to target tokens, n-gram cache included.
    translate_ms: f64,
    /// Acceptance tests and residuals.
    verify_ms: f64,
    /// Truncation of caches, retokenisation, new n-grams.
    commit_ms: f64,
    /// Share of the round outside of forwards.
    outside_share: f64,
    /// Bytes copied from graphics devices.
    fetched_bytes_per_round: f64,
}

/// An engine with a clock around its forwards.
struct Timed {
    subject: Subject,
    vocab: usize,
    seconds: Rc<Cell<f64>>,
    /// Size of the vocabulary; the model's further logits belong to no token.
    tokens: usize,
    /// True if logits on a device may stay there.
    keeps: bool,
}

impl Timed {
    /// Runs `work` with the clock on.
    fn clocked<T>(
        &mut self,
        work: impl FnOnce(&mut Subject) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let began = Instant::now();
        let done = work(&mut self.subject);
        self.seconds
            .set(self.seconds.get() + began.elapsed().as_secs_f64());
        done
    }

    /// Masks logits that belong to no token.
    fn mask(&self, logits: &mut [f32]) {
        for row in logits.chunks_exact_mut(self.vocab) {
            row[self.tokens..].fill(f32::NEG_INFINITY);
        }
    }
}

impl DeviceLogits for Timed {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.clocked(|subject| on_device(subject)?.score(ids))
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        self.clocked(|subject| on_device(subject)?.best(columns))?;
        // The best column of random weights may belong to no token; one that does takes its place.
        let tokens = self.tokens as u32;
        for column in columns.iter_mut().flatten() {
            *column %= tokens.max(1);
        }
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.clocked(|subject| on_device(subject)?.rows(rows, logits))?;
        self.mask(logits);
        Ok(())
    }
}

/// The logits that the last forward left on a device.
fn on_device(subject: &mut Subject) -> Result<&mut dyn DeviceLogits, ModelError> {
    let none = || ModelError::new("this engine has its logits in memory");
    subject.decoder().device_logits(0).ok_or_else(none)
}

impl LanguageModel for Timed {
    fn vocab_size(&self) -> usize {
        self.vocab
    }

    fn len(&self) -> usize {
        self.subject.shown().len()
    }

    fn max_len(&self) -> usize {
        self.subject.shown().max_len()
    }

    fn truncate(&mut self, len: usize) {
        self.subject.decoder().truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let done = self.clocked(|subject| subject.decoder().forward(ids, logits));
        self.mask(logits);
        done
    }

    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        let keeps = self.keeps;
        let device = self.subject.decoder().device_logits(tokens);
        match device.filter(|_| keeps) {
            Some(_) => Some(self),
            None => None,
        }
    }
}

impl RoundArgs {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        if self.k == 0 || self.rounds == 0 || self.threads == Some(0) {
            bail!("--k, --rounds and --threads must be at least 1");
        }
        let report = self.measure()?;
        if self.json {
            print(&format!("{:#}\n", serde_json::to_value(&report)?))
        } else {
            print(&report.text())
        }
    }

    fn measure(&self) -> Result<Report> {
        let (mode, lookup) = parse_verify(&self.verify)?;
        if lookup {
            bail!("--verify prompt-lookup has no drafter to time");
        }
        let pair = Pair::new(
            &vocabulary(&self.drafter_tokenizer)?,
            &vocabulary(&self.target_tokenizer)?,
        );
        let clocks = [Rc::new(Cell::new(0.0)), Rc::new(Cell::new(0.0))];
        let on = self.devices.drafter()?;
        let stored = self.drafts_in();
        let drafter = self.engine(self.drafter_shape, stored, pair.draft.len(), on, &clocks[0])?;
        let on = self.devices.target()?;
        let target = self.engine(
            self.target_shape,
            self.weights,
            pair.target.len(),
            on,
            &clocks[1],
        )?;
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
                let outcome = session.round(Some(&mut cache), &mut policy, &mut NoSink)?;
                seen += 1;
                if seen > WARM_UP {
                    let now = fetched_bytes(&session);
                    report.fetched_bytes_per_round += (now - fetched) as f64;
                    report.drafter_ms += clocks[0].get() - before[0];
                    report.target_ms += clocks[1].get() - before[1];
                    totals.add(&outcome);
                }
            }
        }
        report.fill(&totals);
        Ok(report)
    }

    fn drafts_in(&self) -> WeightType {
        self.draft_weights.unwrap_or(self.weights)
    }

    fn engine(
        &self,
        shape: Shape,
        weights: WeightType,
        tokens: usize,
        device: Device,
        clock: &Rc<Cell<f64>>,
    ) -> Result<Timed> {
        let mut config = shape.config()?;
        config.vocab_size = config.vocab_size.max(tokens);
        let mut options = EngineOptions {
            weights,
            ..EngineOptions::default()
        };
        if let Some(threads) = self.threads {
            options.threads = threads;
        }
        let vocab = config.vocab_size;
        let mut subject = Subject::new(Source::Shape(Box::new(config)), options, device)?;
        subject.tune(WalkName::Kept, weights);
        subject.prepare()?;
        Ok(Timed {
            vocab,
            subject,
            seconds: clock.clone(),
            tokens,
            keeps: !self.all_logits,
        })
    }

    fn blank(&self, mode: VerifyMode, drafter: &Timed, target: &Timed) -> Report {
        Report {
            drafter: self.drafter_shape.name(),
            target: self.target_shape.name(),
            draft_vocabulary: drafter.vocab,
            target_vocabulary: target.vocab,
            weights: self.weights.to_string(),
            draft_weights: self.drafts_in().to_string(),
            kernels: target.subject.kernels(),
            threads: target.subject.threads(),
            k: self.k,
            temperature: self.temperature,
            verify: mode.name(),
            rounds: 0,
            proposed_per_round: 0.0,
            accepted_per_round: 0.0,
            round_ms: 0.0,
            drafter_ms: 0.0,
            target_ms: 0.0,
            sampling_ms: 0.0,
            translate_ms: 0.0,
            verify_ms: 0.0,
            commit_ms: 0.0,
            outside_share: 0.0,
            fetched_bytes_per_round: 0.0,
        }
    }
}

/// Bytes copied from graphics devices by both models.
fn fetched_bytes(session: &Session<Timed, Timed>) -> u64 {
    session.drafter().subject.fetched_bytes() + session.target().subject.fetched_bytes()
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
        for (part, ms) in [
            ("drafter forwards", self.drafter_ms),
            ("target forward", self.target_ms),
            ("draft sampling", self.sampling_ms),
            ("translation", self.translate_ms),
            ("verification", self.verify_ms),
            ("commit", self.commit_ms),
        ] {
            text += &format!("  {part:<17} {ms:>9.4} ms\n");
        }
        if self.fetched_bytes_per_round > 0.0 {
            let bytes = self.fetched_bytes_per_round;
            text += &format!("  from the device   {bytes:>9.0} bytes\n");
        }
        text
    }
}
