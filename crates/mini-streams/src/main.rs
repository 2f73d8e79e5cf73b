//! Draws the embedded streams again.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use mini_streams::{MINI_SEED, write_mini};

/// Write the mini streams of `datasets/` from their generators.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  cargo run --release -p mini-streams -- --out /tmp/mini
  cargo run --release -p mini-streams -- --out /tmp/other --seed 7")]
struct Arguments {
    /// Folder to write, one subfolder per stream.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of the generators; the embedded streams have the default.
    #[arg(long, default_value_t = MINI_SEED)]
    seed: u64,
}

fn main() -> Result<()> {
    let Arguments { out, seed } = Arguments::parse();
    for file in write_mini(&out, seed)? {
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}
