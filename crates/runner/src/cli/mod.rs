//! The command line. Data goes to stdout; progress, logs and errors to stderr.

mod align;
#[cfg(feature = "serve")]
mod chat;
mod check;
mod edited;
mod export;
mod failure;
mod generate;
mod head;
mod import;
#[cfg(feature = "serve")]
mod learn;
mod manual;
mod new;
mod pages;
mod plan;
mod preflight;
mod pretrain;
mod query;
mod rows;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod template;
mod trace;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

pub use failure::report as report_failure;

use bench::args::{DataArgs, print};
use bench::{bench as engine_bench, costs, doctor, lawtest, pad};
use hub::show_progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Speculative decoding with one drafter for any target model, whatever its tokenizer.
#[derive(Debug, Parser)]
#[command(name = "omnidraft", version, propagate_version = true)]
#[command(after_help = "Examples:
  omnidraft run experiments/quickstart.toml
  omnidraft new mine
  omnidraft generate --target models/L --drafter models/D --prompt 'Write a haiku.'
  omnidraft align --drafter models/D --target models/L

Wherever a model folder is expected, hf:owner/name or hf:owner/name@revision downloads a model from
the Hugging Face hub into its cache (HF_HOME) first. Gated models need HF_TOKEN.

`omnidraft dev` lists further commands: measurements, pages, parts of runs.

Paths of models are relative to the working directory. RUST_LOG=info says more on stderr; NO_COLOR=1
takes colours away.")]
pub struct Cli {
    /// Draw no progress bars (they are drawn only if stderr is a terminal).
    #[arg(long, global = true)]
    no_progress: bool,
    /// The command.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a commented experiment to begin with.
    New(new::NewArgs),
    /// Run an experiment: all its jobs, then its report.
    Run(run::RunArgs),
    /// Run one job of an experiment, as launchers do.
    #[command(hide = true)]
    Job(run::JobArgs),
    /// Say how far the jobs of a run are.
    Status(pages::StatusArgs),
    /// Make tables, figures and pages from the rows of a run.
    Report(pages::ReportArgs),
    /// Put tables of published runs into pages that quote them.
    #[command(hide = true)]
    Quote(pages::QuoteArgs),
    /// Copy what the pages of a run need, and nothing else.
    #[command(hide = true)]
    Publish(pages::PublishArgs),
    /// Write the rows of a run as one table that any program reads.
    Rows(rows::RowsArgs),
    /// Ask the rows of runs in SQL.
    Query(query::QueryArgs),
    /// Print the reference of every key of an experiment.
    #[command(hide = true)]
    Config,
    /// Compare two vocabularies and print how many tokens they share.
    Align(align::AlignArgs),
    /// Say what models are, what they share, and whether they fit into memory.
    Check(check::CheckArgs),
    /// Make a model folder out of a GGUF file.
    Import(import::ImportArgs),
    /// Write what a drafter learnt as a model that other programs read.
    Export(export::ExportArgs),
    /// Let a drafter learn from answers that were recorded elsewhere, without the target.
    #[cfg(feature = "serve")]
    Learn(learn::LearnArgs),
    /// Answer a prompt, with or without a drafter.
    Generate(generate::GenerateArgs),
    /// Answer requests over HTTP, with a drafter that learns from the answers.
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    /// Talk to a target in the terminal, with a drafter that learns from the answers.
    #[cfg(feature = "serve")]
    Chat(chat::ChatArgs),
    /// Say whether speculation will pay on this machine with a pair, and what to change.
    Doctor(doctor::DoctorArgs),
    /// Find how many padding columns give drafter and target a ratio of step times.
    #[command(hide = true)]
    Pad(pad::PadArgs),
    /// Measure what drafting and verification cost in an experiment, for `[decode.costs]`.
    #[command(hide = true)]
    Costs(costs::CostsArgs),
    /// Train an acceptance head before a run.
    #[command(hide = true)]
    Head(head::HeadArgs),
    /// Time the decode engine.
    #[command(subcommand, hide = true)]
    Bench(engine_bench::BenchCommand),
    /// Test whether a pair's output follows the target's own law.
    #[command(hide = true)]
    Lawtest(lawtest::LawtestArgs),
    /// Record targets once, to replay them anywhere.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Train a tokenizer and a small model from a recipe.
    Pretrain(pretrain::PretrainArgs),
    /// Print what makes a shell complete this program's words.
    #[command(hide = true)]
    Completions(manual::CompletionsArgs),
    /// Write a manual page for every command.
    #[command(hide = true)]
    Man(manual::ManArgs),
    /// List the commands that `--help` leaves out.
    #[command(hide = true)]
    Dev,
}

/// The commands that `--help` leaves out: measurements, pages of the repository, parts of runs.
fn dev() -> String {
    let all = Cli::command();
    let hidden = all.get_subcommands().filter(|own| own.is_hide_set());
    let line = |own: &clap::Command| {
        let about = own.get_about().map(ToString::to_string);
        format!("{:9} {}\n", own.get_name(), about.unwrap_or_default())
    };
    hidden.map(line).collect()
}

impl Cli {
    /// Runs the command. The exit code is that of its jobs, if it runs any.
    ///
    /// # Errors
    /// Errors of the command, with their context.
    pub fn execute(self) -> Result<ExitCode> {
        let progress = !self.no_progress;
        show_progress(progress && std::io::stderr().is_terminal());
        let done = match self.command {
            Command::New(args) => args.execute(),
            Command::Completions(args) => args.execute(),
            Command::Man(args) => args.execute(),
            Command::Run(args) => return args.execute(progress),
            Command::Job(args) => return args.execute(progress),
            Command::Status(args) => args.execute(),
            Command::Report(args) => args.execute(),
            Command::Quote(args) => args.execute(),
            Command::Publish(args) => args.execute(),
            Command::Rows(args) => args.execute(),
            Command::Query(args) => args.execute(),
            Command::Dev => print(&dev()),
            Command::Config => print(&experiment::reference::markdown()),
            Command::Align(args) => args.execute(),
            Command::Check(args) => args.execute(),
            Command::Import(args) => args.execute(),
            Command::Export(args) => args.execute(),
            #[cfg(feature = "serve")]
            Command::Learn(args) => args.execute(progress && std::io::stderr().is_terminal()),
            Command::Generate(args) => args.execute(),
            #[cfg(feature = "serve")]
            Command::Serve(args) => args.execute(),
            #[cfg(feature = "serve")]
            Command::Chat(args) => args.execute(),
            Command::Doctor(args) => args.execute(progress),
            Command::Pad(args) => args.execute(),
            Command::Costs(args) => args.execute(),
            Command::Head(args) => args.execute(),
            Command::Bench(command) => command.execute(),
            Command::Lawtest(args) => args.execute(),
            Command::Trace(command) => command.execute(progress && std::io::stderr().is_terminal()),
            Command::Pretrain(args) => args.execute(progress && std::io::stderr().is_terminal()),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// A progress bar over things of a `kind`, hidden without `progress`.
fn bar(length: usize, kind: &str, progress: bool) -> ProgressBar {
    if !progress {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64);
    let style = "{elapsed_precise} {bar:20} {pos} of {len} KIND, {msg}, ETA {eta}";
    if let Ok(style) = ProgressStyle::with_template(&style.replace("KIND", kind)) {
        bar.set_style(style);
    }
    bar
}
