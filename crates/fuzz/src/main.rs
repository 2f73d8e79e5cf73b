//! `fuzz`: mutated inputs for every reader of the program.
#![expect(unsafe_code, reason = "a global allocator can be written no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use fuzz::page::Campaign;
use fuzz::worker::Meter;
use fuzz::{Corpus, MOST_MEMORY, Reader, readers, supervisor, worker};

/// Files of a campaign's folder.
const NUMBERS: &str = "campaign.json";
const PAGE: &str = "README.md";

/// Tries mutated inputs on every reader of the program.
///
/// Examples:
///   fuzz run --executions 1000
///   fuzz run --reader tokenizer --executions 100000 --out fuzzing
///   fuzz show tokenizer --index 17
#[derive(Parser)]
#[command(verbatim_doc_comment, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tries inputs and prints what became of them; exit status 1 where one failed.
    Run {
        /// Only this reader; may be given several times.
        #[arg(long = "reader", value_name = "NAME")]
        readers: Vec<String>,
        /// Inputs for each reader.
        #[arg(long, default_value_t = 1000, value_name = "N")]
        executions: u64,
        /// Root seed.
        #[arg(long, default_value_t = 1, value_name = "SEED")]
        seed: u64,
        /// Commit to be named on the page.
        #[arg(long, default_value = "unknown", value_name = "COMMIT")]
        commit: String,
        /// Folder for campaign.json, README.md and the inputs that failed.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Writes one input to standard output.
    Show {
        /// The reader.
        reader: String,
        /// Root seed.
        #[arg(long, default_value_t = 1, value_name = "SEED")]
        seed: u64,
        /// Number of the input.
        #[arg(long, value_name = "I")]
        index: u64,
    },
    /// Makes the page of a folder again from its numbers.
    Page {
        /// The folder that `run --out` wrote.
        folder: PathBuf,
    },
    /// Lists the readers.
    List,
    /// The process that tries inputs; `run` starts it.
    #[command(hide = true)]
    Worker {
        reader: String,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        from: u64,
        #[arg(long)]
        to: u64,
        #[arg(long)]
        scratch: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run {
            readers,
            executions,
            seed,
            commit,
            out,
        } => campaign(&readers, executions, seed, commit, out),
        Command::Show {
            reader,
            seed,
            index,
        } => {
            let input = Corpus::of(named(&reader)?)?.input(seed, index);
            std::io::stdout().write_all(&input)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Page { folder } => {
            let path = folder.join(NUMBERS);
            let numbers = std::fs::read_to_string(&path);
            let numbers = numbers.with_context(|| path.display().to_string())?;
            let campaign: Campaign =
                serde_json::from_str(&numbers).with_context(|| path.display().to_string())?;
            std::fs::write(folder.join(PAGE), campaign.markdown())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::List => {
            for reader in readers::ALL {
                println!("{:18} {}", reader.name, reader.what);
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Worker {
            reader,
            seed,
            from,
            to,
            scratch,
        } => {
            let meter = Meter {
                live: || LIVE.load(Relaxed),
                peak: || PEAK.swap(LIVE.load(Relaxed), Relaxed),
            };
            worker::run(named(&reader)?, seed, from..to, &scratch, meter)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn named(name: &str) -> Result<&'static Reader> {
    let found = readers::named(name);
    found.with_context(|| format!("there is no reader `{name}`; `fuzz list` shows them"))
}

fn campaign(
    names: &[String],
    executions: u64,
    seed: u64,
    commit: String,
    out: Option<PathBuf>,
) -> Result<ExitCode> {
    let chosen: Vec<&'static Reader> = match names {
        [] => readers::ALL.to_vec(),
        names => names
            .iter()
            .map(|name| named(name))
            .collect::<Result<_>>()?,
    };
    if executions == 0 {
        bail!("--executions is 0");
    }
    let program = std::env::current_exe()?;
    let start = Instant::now();
    let mut campaign = Campaign {
        seed,
        commit,
        seconds: 0.0,
        tallies: Vec::new(),
    };
    let terminal = std::io::stderr().is_terminal();
    for reader in chosen {
        let begun = Instant::now();
        let tally = supervisor::run(&program, reader, seed, executions, |done| {
            if terminal && done % 500 == 0 {
                let left =
                    begun.elapsed().as_secs_f64() / (done + 1) as f64 * (executions - done) as f64;
                eprint!(
                    "\r{:18} {done}/{executions}, {left:.0} s left   ",
                    reader.name
                );
            }
        })?;
        if terminal {
            eprint!("\r{:60}\r", "");
        }
        campaign.tallies.push(tally);
    }
    campaign.seconds = start.elapsed().as_secs_f64();
    print!("{}", campaign.markdown());
    if let Some(out) = out {
        write(&campaign, &out).with_context(|| out.display().to_string())?;
    }
    Ok(match campaign.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn write(campaign: &Campaign, out: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    let json = serde_json::to_string_pretty(campaign)?;
    std::fs::write(out.join(NUMBERS), json + "\n")?;
    std::fs::write(out.join(PAGE), campaign.markdown())?;
    for tally in &campaign.tallies {
        let corpus = Corpus::of(named(&tally.reader)?)?;
        for failure in &tally.failures {
            let name = format!("{}-{}-{}", tally.reader, campaign.seed, failure.index);
            std::fs::write(out.join(name), corpus.input(campaign.seed, failure.index))?;
        }
    }
    Ok(())
}

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// An allocator that counts bytes and refuses more than twice [`MOST_MEMORY`], so that an input
/// which asks for gigabytes ends this process and not the machine.
struct Counting;

impl Counting {
    fn grow(size: usize) -> bool {
        let live = LIVE.fetch_add(size, Relaxed) + size;
        PEAK.fetch_max(live, Relaxed);
        if live > 2 * MOST_MEMORY {
            LIVE.fetch_sub(size, Relaxed);
            return false;
        }
        true
    }
}

// SAFETY: every call is passed on to the system allocator unchanged, or answered with null, which
// stands for memory that has run out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !Self::grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
