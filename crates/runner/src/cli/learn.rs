//! `omnidraft learn`: a drafter learns from answers that were recorded elsewhere.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bench::args::{ThreadArgs, print};
use clap::Args;
use indicatif::ProgressBar;
use lm::{EngineSettings, WeightType};
use results::bootstrap::{Group, PromptKey, Series};
use results::{Estimate, Sums};
use serve::{LearnOptions, Log, Options, RecordedAnswer, RecordedLearner};
use spec_decode::Totals;
use streams::StreamRng;

use super::bar;
use super::serve::named;

/// Maximum number of times that the held-out answers are replayed while the drafter learns, besides
/// once before.
const POINTS: usize = 4;
/// Longest draft, as in experiments (`decode.k`).
const LONGEST_DRAFT: usize = 64;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft learn --from traffic.jsonl --target models/L --drafter models/D --state runs/learnt
  omnidraft learn --from traces/L-mini-math.parquet --target models/L --drafter models/D --state runs/learnt --passes 2
  omnidraft export runs/learnt --to hf --out runs/models/learnt

Of the target the tokenizer and the chat template are read; its weights need not be at hand. docs/learn.md
says which logs are read. The state is that of serve and chat: both go on with it.")]
pub struct LearnArgs {
    /// Files of answers: lines of JSON (.jsonl), or traces of `omnidraft trace record` (.parquet).
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
    /// The target that gave the answers, by its model folder, its tokenizer, or hf:owner/name; or
    /// NAME=FOLDER. The state knows it by this name.
    #[arg(long, value_name = "[NAME=]DIR")]
    target: String,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    drafter: PathBuf,
    /// Folder in which what the drafter learns is kept, and found again at the next call.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Times that the answers are gone through.
    #[arg(long, default_value_t = 1, value_name = "N")]
    passes: usize,
    /// Share of the answers that is not learnt from, to see what learning brings: from 0 and below 1.
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    held_out: f64,
    /// Files of answers that are held out, in the place of a share of --from.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "held_out")]
    held_out_from: Vec<PathBuf>,
    /// Maximum number of answers: the first ones in the order of --seed.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Seed of the order of the answers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Answers that an update learns from.
    #[arg(long, default_value_t = 2, value_name = "ANSWERS")]
    learn_every: usize,
    /// Learning rate. Left out: 0.002, and for a drafter of 50 million parameters or more 0.0002, in its
    /// last blocks 0.0005.
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Last blocks that learn (0: all). Left out: 2 for a drafter of 50 million parameters or more,
    /// otherwise all.
    #[arg(long, value_name = "BLOCKS")]
    learn_blocks: Option<usize>,
    /// Rank of low-rank adapters; 0 trains weights.
    #[arg(long, default_value_t = 0)]
    adapter_rank: usize,
    /// Draft tokens a round while the answers are gone through.
    #[arg(long, short, default_value_t = 4)]
    k: usize,
    /// Weight storage of the drafter.
    #[arg(long, default_value_t = WeightType::F32, value_name = "WEIGHTS")]
    draft_weights: WeightType,
    /// Maximum tokens of prompt and answer; longer ones are left out.
    #[arg(long, default_value_t = 4096)]
    context: usize,
    #[command(flatten)]
    threads: ThreadArgs,
    /// A page with what was learnt from, the settings and the table.
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
}

/// The answers of all files, in the order in which they are gone through.
struct Answers {
    learnt: Vec<RecordedAnswer>,
    held_out: Vec<RecordedAnswer>,
    /// Lines about what was read and left out.
    notes: Vec<String>,
}

/// Totals of drafting on the held-out answers, after a number of answers were learnt from.
struct Point {
    answers: usize,
    /// Mean loss of the updates since the point before.
    loss: Option<f64>,
    totals: Vec<Totals>,
}

impl LearnArgs {
    /// Learns, saves, and says what it brought.
    pub fn execute(self, progress: bool) -> Result<()> {
        self.check()?;
        let mut learner = RecordedLearner::open(self.options()?)?;
        let answers = self.answers(&learner)?;
        let points = self.learn(&mut learner, &answers, progress)?;
        let bytes = learner.save()?;
        let mut text = table(&points);
        let _ = writeln!(
            text,
            "\n{}: {} of what was learnt",
            self.state.display(),
            indicatif::HumanBytes(bytes)
        );
        print(&text)?;
        match &self.page {
            Some(page) => self.write_page(page, &answers, &points),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.held_out) {
            bail!("--held-out {}: must be from 0 and below 1", self.held_out);
        }
        for (name, value, most) in [
            // Passes over all answers are counted in 64 bits.
            ("--passes", self.passes, u32::MAX as usize),
            ("--learn-every", self.learn_every, usize::MAX),
            ("--k", self.k, LONGEST_DRAFT),
            ("--limit", self.limit.unwrap_or(1), usize::MAX),
        ] {
            if value == 0 {
                bail!("{name} 0: must be at least 1");
            }
            if value > most {
                bail!("{name} {value}: must be at most {most}");
            }
        }
        // An update by Adam changes every weight by about the rate: above 1, nothing is left of the
        // drafter.
        if let Some(rate) = self
            .learning_rate
            .filter(|rate| !(0.0..=1.0).contains(rate))
        {
            bail!(
                "--learning-rate {rate}: must be from 0 to 1\nhint: left out, it is one that suits the drafter"
            );
        }
        let Some(page) = &self.page else {
            return Ok(());
        };
        if page.exists() {
            bail!(
                "{}: is there already\nhint: name another file with --page, or remove this one",
                page.display()
            );
        }
        let folder = page
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => bail!(
                "{}: there is no folder {}\nhint: make it, or name another file with --page",
                page.display(),
                folder.display()
            ),
            None => Ok(()),
        }
    }

    fn options(&self) -> Result<Options> {
        let (name, folder) = named(&self.target)?;
        let engine = EngineSettings {
            context: Some(self.context),
            ..EngineSettings::new(self.draft_weights, self.threads.count())
        };
        Ok(Options {
            engine,
            draft_weights: Some(self.draft_weights),
            draft_length: self.k,
            parallel: 1,
            queue: 0,
            max_tokens: self.context,
            example_bytes: 128 << 20,
            learn: Some(LearnOptions {
                every: self.learn_every,
                rate: self.learning_rate,
                rank: self.adapter_rank,
                blocks: self.learn_blocks,
                ..LearnOptions::default()
            }),
            state: Some(self.state.clone()),
            state_bytes: 4096 << 20,
            ..Options::new(name, folder, self.drafter.clone())
        })
    }

    /// Reads all files, puts the answers into the order of the seed, and sets some aside.
    fn answers(&self, learner: &RecordedLearner) -> Result<Answers> {
        let mut notes = Vec::new();
        let mut all = self.read(&self.from, learner, &mut notes)?;
        if all.is_empty() {
            bail!("there is no answer to learn from\n  {}", notes.join("\n  "));
        }
        StreamRng::new(self.seed, "learn").shuffle(&mut all);
        all.truncate(self.limit.unwrap_or(usize::MAX));
        let held_out = if self.held_out_from.is_empty() {
            let share = (self.held_out * all.len() as f64).ceil() as usize;
            all.split_off(all.len() - share.min(all.len() - 1))
        } else {
            let held_out = self.read(&self.held_out_from, learner, &mut notes)?;
            if held_out.is_empty() {
                bail!("there is no held-out answer\n  {}", notes.join("\n  "));
            }
            held_out
        };
        for note in &notes {
            eprintln!("{note}");
        }
        Ok(Answers {
            learnt: all,
            held_out,
            notes,
        })
    }

    /// Reads files; answers that are too long are left out.
    fn read(
        &self,
        files: &[PathBuf],
        learner: &RecordedLearner,
        notes: &mut Vec<String>,
    ) -> Result<Vec<RecordedAnswer>> {
        let mut all = Vec::new();
        for path in files {
            let log = Log::read(path, learner.models())?;
            notes.push(note(path, &log));
            all.extend(log.answers);
        }
        let before = all.len();
        all.retain(|answer| answer.prompt.target.len() + answer.tokens.len() <= self.context);
        let long = before - all.len();
        if long > 0 {
            let context = self.context;
            notes.push(format!("{long} answers have more than {context} tokens with their prompts (--context) and are left out"));
        }
        Ok(all)
    }

    /// Learns from the answers, and replays the held-out ones before and at up to [`POINTS`] points
    /// on the way.
    fn learn(
        &self,
        learner: &mut RecordedLearner,
        answers: &Answers,
        progress: bool,
    ) -> Result<Vec<Point>> {
        let steps = self.passes * answers.learnt.len();
        let stride = steps.div_ceil(POINTS);
        let points = 1 + steps.div_ceil(stride);
        let bar = bar(steps + points * answers.held_out.len(), "answers", progress);
        let mut found = vec![point(learner, answers, (0, &[]), &bar)?];
        let mut losses = Vec::new();
        for pass in 0..self.passes {
            for (i, answer) in answers.learnt.iter().enumerate() {
                losses.extend(learner.learn(answer)?.1);
                bar.inc(1);
                let done = pass * answers.learnt.len() + i + 1;
                if done == steps {
                    losses.extend(learner.flush()?);
                }
                if done == steps || done.is_multiple_of(stride) {
                    found.push(point(learner, answers, (done, &losses), &bar)?);
                    losses.clear();
                    learner.save()?;
                }
            }
        }
        bar.finish_and_clear();
        Ok(found)
    }

    fn write_page(&self, path: &Path, answers: &Answers, points: &[Point]) -> Result<()> {
        let mut text = String::from("# What a drafter learnt from recorded answers\n\n");
        let _ = writeln!(
            text,
            "The drafter `{}` learnt from answers of `{}`. The table goes through {} held-out answers after so many of {} were learnt from ({} passes, seed {}, an update every {} answers, {} draft tokens a round).\n",
            self.drafter.display(),
            self.target,
            answers.held_out.len(),
            answers.learnt.len(),
            self.passes,
            self.seed,
            self.learn_every,
            self.k,
        );
        for note in &answers.notes {
            let _ = writeln!(text, "- {note}");
        }
        let _ = writeln!(text, "\n{}", table(points));
        text.push_str(
            "Acceptance is accepted over proposed tokens, averaged over the rounds that proposed something; a draft is accepted as far as it is the recorded text. Intervals (95%) resample the held-out answers.\n",
        );
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

/// A line about a file.
fn note(path: &Path, log: &Log) -> String {
    let sampled = log.answers.iter().filter(|answer| answer.sampled).count();
    let mut text = format!(
        "{}: {} answers, {} with log-probabilities, {sampled} drawn at a temperature above 0 or an unknown one",
        path.display(),
        log.answers.len(),
        log.with_log_probs
    );
    if log.other_tokens > 0 {
        let _ = write!(
            text,
            "; the log-probabilities of {} name tokens that the target does not have, so that their text alone counts",
            log.other_tokens
        );
    }
    if log.other_alternatives > 0 {
        let _ = write!(
            text,
            "; in {} some alternatives are tokens that the target does not have, and count with the rest",
            log.other_alternatives
        );
    }
    if log.without_text > 0 {
        let _ = write!(text, "; {} without text are left out", log.without_text);
    }
    text
}

/// Replays the held-out answers.
fn point(
    learner: &mut RecordedLearner,
    answers: &Answers,
    (done, losses): (usize, &[f64]),
    bar: &ProgressBar,
) -> Result<Point> {
    let (mut totals, mut all) = (Vec::new(), Totals::default());
    for answer in &answers.held_out {
        let found = learner.replay(answer)?;
        all.merge(&found);
        totals.push(found);
        bar.inc(1);
    }
    if !totals.is_empty() {
        bar.set_message(format!("held out: acceptance {:.3}", all.acceptance_rate()));
    }
    let mean = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
    Ok(Point {
        answers: done,
        loss: (!losses.is_empty()).then_some(mean),
        totals,
    })
}

/// The points as a table in Markdown.
fn table(points: &[Point]) -> String {
    let mut text = String::from(
        "| answers learnt from | loss | acceptance, held out | tokens a round, held out | over before |\n|--:|--:|--:|--:|--:|\n",
    );
    let answers = points.first().map_or(0, |point| point.totals.len());
    let key = |i: usize| -> PromptKey { (0, i.to_string()) };
    let group = Group::new("learn", (0..answers).map(|i| (0, key(i))));
    let series = |sums: fn(&Totals) -> Sums| -> Vec<Option<Estimate>> {
        let of = |point: &Point| {
            let mut series = Series::default();
            for (i, totals) in point.totals.iter().enumerate() {
                group.push(&mut series, 0, &key(i), sums(totals));
            }
            series
        };
        group.estimate(&points.iter().map(of).collect::<Vec<_>>())
    };
    let acceptance = series(|t| {
        let rounds = t.proposing_rounds as f64;
        Sums::of(t.acceptance_rate() * rounds, rounds)
    });
    let length = series(|t| Sums::of(t.emitted as f64, t.rounds as f64));
    let before = length.first().cloned().flatten();
    for ((point, acceptance), length) in points.iter().zip(acceptance).zip(length) {
        let over = length
            .as_ref()
            .zip(before.as_ref())
            .and_then(|(own, before)| own.over(before));
        let loss = point
            .loss
            .map_or("-".to_owned(), |loss| format!("{loss:.3}"));
        let _ = writeln!(
            text,
            "| {} | {loss} | {} | {} | {} |",
            point.answers,
            shown(acceptance.as_ref()),
            shown(length.as_ref()),
            shown(over.as_ref()),
        );
    }
    text
}

fn shown(estimate: Option<&Estimate>) -> String {
    let Some(estimate) = estimate else {
        return "-".to_owned();
    };
    match estimate.interval() {
        Some(interval) => format!(
            "{:.3} ({:.3}–{:.3})",
            estimate.value, interval.low, interval.high
        ),
        None => format!("{:.3}", estimate.value),
    }
}
