//! `omnidraft streams`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::streams::mini::{MINI_SEED, write_mini};

/// Arguments of `streams`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft streams --out /tmp/mini
  omnidraft streams --out /tmp/other --seed 7")]
pub struct StreamsArgs {
    /// Folder to write, one subfolder per stream.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of the generators; the embedded streams have the default.
    #[arg(long, default_value_t = MINI_SEED)]
    seed: u64,
}

impl StreamsArgs {
    /// Writes the streams.
    pub fn execute(self) -> Result<()> {
        for file in write_mini(&self.out, self.seed)? {
            eprintln!("wrote {}", file.display());
        }
        Ok(())
    }
}
