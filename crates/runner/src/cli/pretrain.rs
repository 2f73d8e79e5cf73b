//! `omnidraft pretrain`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use models::tokenizer_file;
use trainer::Device;

use super::DataArgs;

/// Device of the forward and backward pass.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum DeviceName {
    /// This processor.
    Cpu,
    /// The first GPU, through WebGPU (builds with the feature `wgpu`).
    #[cfg(feature = "wgpu")]
    Wgpu,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft pretrain experiments/recipes/D.toml --data-dir ~/data --out models/D
  omnidraft pretrain experiments/recipes/L.toml --stop-after 100   # resumes when called again")]
pub struct PretrainArgs {
    /// The recipe.
    recipe: PathBuf,
    /// Folder to write; an interrupted run resumes from it [default: runs/pretrain/RECIPE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop after this many steps; the next call continues from there.
    #[arg(long, value_name = "STEPS")]
    stop_after: Option<u64>,
    /// A tokenizer.json, the folder of one, or hf:owner/name, in place of the recipe's tokenizer.
    #[arg(long, value_name = "T")]
    tokenizer: Option<PathBuf>,
    /// Only rewrite the samples of the finished model in --out, and the part of its card about
    /// answers.
    #[arg(long)]
    samples: bool,
    /// Device.
    #[arg(long, value_enum, default_value_t = DeviceName::Cpu)]
    device: DeviceName,
    #[command(flatten)]
    data: DataArgs,
}

impl PretrainArgs {
    pub fn execute(self, progress: bool) -> Result<()> {
        let name = self
            .recipe
            .file_stem()
            .map(PathBuf::from)
            .unwrap_or_default();
        let out = self
            .out
            .unwrap_or_else(|| PathBuf::from("runs/pretrain").join(name));
        if self.samples {
            pretrain::write_samples(&out, &self.data.source()?, progress)?;
            return Ok(());
        }
        let device = match self.device {
            DeviceName::Cpu => Device::Cpu,
            #[cfg(feature = "wgpu")]
            DeviceName::Wgpu => Device::Wgpu,
        };
        let request = pretrain::Request {
            recipe: self.recipe,
            tokenizer: self.tokenizer.as_deref().map(tokenizer_file).transpose()?,
            data: self.data.source()?,
            out: out.clone(),
            device,
            stop_after: self.stop_after,
            progress,
        };
        let state = if pretrain::run(&request)? {
            "finished"
        } else {
            "stopped; call again to go on"
        };
        eprintln!("{}: {state}", out.display());
        Ok(())
    }
}
