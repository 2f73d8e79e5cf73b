//! `omnidraft run` and `omnidraft report`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::{DataArgs, print};
use crate::config::RunConfig;
use crate::online::{self, RunOptions};
use crate::report;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft run experiments/quickstart.toml
  omnidraft run experiments/quickstart.toml --set decode.k=3 --set decode.temperature=0 --out runs/greedy
  omnidraft run experiments/table1-L.toml --data-dir ~/data --set seeds=[1,2,3]
  omnidraft run experiments/table1-L.toml --data-dir hub
  omnidraft run experiments/table1-L.toml --data-dir hub --resume    # after an interruption")]
pub struct RunArgs {
    /// The experiment.
    config: PathBuf,
    /// Override a key of the configuration, for example decode.k=3; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Results folder; must be new or empty, but for --resume [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the unfinished run in the results folder.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    data: DataArgs,
}

impl RunArgs {
    /// Runs the experiment and writes its report.
    pub fn execute(self, progress: bool) -> Result<()> {
        let config = RunConfig::load(&self.config, &self.overrides)?;
        let out = self
            .out
            .unwrap_or_else(|| PathBuf::from("runs").join(&config.name));
        let options = RunOptions {
            argv: std::env::args().skip(1).collect(),
            progress,
            resume: self.resume,
        };
        online::run(&config, &self.data.source()?, &out, options)?;
        let summary = report::write_report(&out)?;
        print(&summary.markdown)?;
        eprintln!("results: {}", out.display());
        Ok(())
    }
}

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft report runs/quickstart
  omnidraft report results/table1 | less
  omnidraft report runs/figure5 > drift.md")]
pub struct ReportArgs {
    /// A results folder written by `omnidraft run`.
    folder: PathBuf,
}

impl ReportArgs {
    /// Rebuilds the report.
    pub fn execute(self) -> Result<()> {
        if !self.folder.is_dir() {
            bail!("{}: no such results folder", self.folder.display());
        }
        let summary = report::write_report(&self.folder)?;
        print(&summary.markdown)?;
        for file in &summary.files {
            eprintln!("wrote {}", file.display());
        }
        Ok(())
    }
}
