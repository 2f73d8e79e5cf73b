//! The command line. Data goes to stdout; progress, logs and errors to stderr.

mod align;
mod bench;
mod cache;
mod costs;
mod failure;
mod generate;
mod head;
mod lawtest;
mod pad;
mod pretrain;
mod run;
mod streams;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

pub use failure::report as report_failure;

use crate::hub::{local_tokenizer, show_progress};
use crate::streams::DataSource;

/// Speculative decoding with one drafter for any target model, whatever its tokenizer.
#[derive(Debug, Parser)]
#[command(name = "omnidraft", version, propagate_version = true)]
#[command(after_help = "Examples:
  omnidraft run experiments/quickstart.toml
  omnidraft generate --target models/L --drafter models/D --prompt 'Write a haiku.'
  omnidraft align --draft models/D --target models/L

Wherever a model folder is expected, hf:owner/name or hf:owner/name@revision downloads a model from
the Hugging Face hub into its cache (HF_HOME) first. Gated models need HF_TOKEN.")]
pub struct Cli {
    /// Draw no progress bars (they are never drawn where stderr is no terminal).
    #[arg(long, global = true)]
    no_progress: bool,
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay a stream through every arm and write rows, tables and figures.
    Run(run::RunArgs),
    /// Rebuild tables and figures from a results folder.
    Report(run::ReportArgs),
    /// Compare two vocabularies and print how many tokens they share.
    Align(align::AlignArgs),
    /// Work with n-gram caches.
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Answer a prompt, with or without a drafter.
    Generate(generate::GenerateArgs),
    /// Find how many padding blocks give drafter and target a ratio of step times.
    Pad(pad::PadArgs),
    /// Measure what drafting and verification cost in an experiment, for `[decode.costs]`.
    Costs(costs::CostsArgs),
    /// Train an acceptance head before a run.
    Head(head::HeadArgs),
    /// Time the decode engine.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Test whether a pair's output follows the target's own law.
    Lawtest(lawtest::LawtestArgs),
    /// Train a tokenizer and a small model from a recipe.
    Pretrain(pretrain::PretrainArgs),
    /// Write the mini streams again from their generators.
    Streams(streams::StreamsArgs),
}

/// Where prompts and texts come from.
#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    /// Folder with one subfolder per task, or `hub`: gsm8k, mbpp_humaneval, alpaca and xsum are
    /// downloaded from the Hugging Face hub when first used (default: $OMNIDRAFT_SHARED/datasets,
    /// if that is set).
    #[arg(long, value_name = "DIR|hub")]
    data_dir: Option<PathBuf>,
}

impl DataArgs {
    fn source(&self) -> Result<DataSource> {
        Ok(DataSource::resolve(self.data_dir.clone())?)
    }
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// Whatever went wrong, with its context.
    pub fn execute(self) -> Result<()> {
        let progress = !self.no_progress && std::io::IsTerminal::is_terminal(&std::io::stderr());
        show_progress(progress);
        match self.command {
            Command::Run(args) => args.execute(progress),
            Command::Report(args) => args.execute(),
            Command::Align(args) => args.execute(),
            Command::Cache(command) => command.execute(),
            Command::Generate(args) => args.execute(),
            Command::Pad(args) => args.execute(),
            Command::Costs(args) => args.execute(),
            Command::Head(args) => args.execute(),
            Command::Bench(command) => command.execute(),
            Command::Lawtest(args) => args.execute(),
            Command::Pretrain(args) => args.execute(progress),
            Command::Streams(args) => args.execute(),
        }
    }
}

/// Accepts a `tokenizer.json`, a folder that holds one, or a model of the hub.
fn tokenizer_file(path: &std::path::Path) -> Result<PathBuf> {
    Ok(match local_tokenizer(path)? {
        Some(file) => file,
        None if path.is_dir() => path.join("tokenizer.json"),
        None => path.to_owned(),
    })
}

/// Writes to stdout; a closed pipe is no failure.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
