//! `omnidraft bench logits`: the decode engine's logits, for a comparison with other engines.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use cpu_engine::{CpuEngine, EngineOptions};
use lm::{LanguageModel, StoredCheckpoint, TensorSource, WeightType};

use super::{LONGEST_CALL, token_ids};
use crate::args::ThreadArgs;
use hub::local_folder;

/// Arguments of `logits`.
#[derive(Debug, Args)]
pub struct LogitsArgs {
    /// Model folder (config.json and weights), or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Weight format.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Tokens before the first one with logits.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// File to write: 16 rows of vocabulary-many little-endian f32.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl LogitsArgs {
    /// Computes and writes.
    pub fn execute(self) -> Result<()> {
        if self.context == 0 {
            bail!("--context must be at least 1");
        }
        let options = EngineOptions {
            weights: self.weights,
            threads: self.threads.count(),
            max_len: self.context.saturating_add(LONGEST_CALL),
            ..EngineOptions::default()
        };
        let model = StoredCheckpoint::open(&local_folder(&self.model)?)?;
        let most = model.config().max_position_embeddings;
        if options.max_len > most {
            bail!(
                "--context {}: with {LONGEST_CALL} tokens after it, {} are needed, and the model holds {most}",
                self.context,
                options.max_len
            );
        }
        let mut engine = CpuEngine::new(&model, options)?;
        let ids = token_ids(self.context + LONGEST_CALL, engine.vocab_size());
        let (before, call) = ids.split_at(self.context);
        let mut logits = vec![0.0f32; call.len() * engine.vocab_size()];
        engine.prefill(before)?;
        engine.forward(call, &mut logits)?;
        let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(&self.out, bytes).with_context(|| self.out.display().to_string())
    }
}
