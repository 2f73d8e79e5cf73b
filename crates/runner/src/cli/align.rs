//! `omnidraft align`: the tokens that two vocabularies share.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use models::tokenizer_file;
use vocab_align::{Alignment, DraftId, MappingMode, TargetId, Vocabulary};

use super::print;

/// Mapping rule.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// Tokens with the same bytes.
    Bytes,
    /// The paper's string rule (reproduces its counts; maps some tokens to other bytes).
    Paper,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft align --drafter models/D --target models/L
  omnidraft align --drafter llama-2/tokenizer.json --target llama-3/tokenizer.json --mode paper
  omnidraft align --drafter hf:HuggingFaceTB/SmolLM2-135M-Instruct --target hf:Qwen/Qwen2.5-0.5B-Instruct
  omnidraft align --drafter models/D --target models/L --json | jq .draft_coverage")]
pub struct AlignArgs {
    /// The drafter's tokenizer.json, its folder, or hf:owner/name.
    #[arg(long, alias = "draft", value_name = "PATH")]
    drafter: PathBuf,
    /// The target's tokenizer.json, its folder, or hf:owner/name.
    #[arg(long, value_name = "PATH")]
    target: PathBuf,
    /// Rule by which two tokens are the same.
    #[arg(long, value_enum, default_value_t = Mode::Bytes)]
    mode: Mode,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl AlignArgs {
    /// Aligns and prints the statistics.
    pub fn execute(self) -> Result<()> {
        let draft: Vocabulary<DraftId> = Vocabulary::from_file(&tokenizer_file(&self.drafter)?)?;
        let target: Vocabulary<TargetId> = Vocabulary::from_file(&tokenizer_file(&self.target)?)?;
        let mode = match self.mode {
            Mode::Bytes => MappingMode::Bytes,
            Mode::Paper => MappingMode::Paper,
        };
        let began = Instant::now();
        let alignment = Alignment::build(&draft, &target, mode);
        let build_ms = began.elapsed().as_secs_f64() * 1e3;
        let stats = alignment.stats();
        if self.json {
            let mut json = serde_json::to_value(stats)?;
            json["build_ms"] = build_ms.into();
            return print(&format!("{json:#}\n"));
        }
        print(&format!(
            "draft vocabulary    {:>9}\ntarget vocabulary   {:>9}\ndirect tokens       {:>9}  {:.1}% of the drafter's\n\
             target reached      {:>8.1}%\none-to-one pairs    {:>9}  {} of them special tokens\n\
             byte mismatches     {:>9}\nbuilt in            {:>9.1} ms\n",
            stats.draft_vocab,
            stats.target_vocab,
            stats.direct_tokens,
            100.0 * stats.draft_coverage,
            100.0 * stats.target_coverage,
            stats.pairs,
            stats.special_tokens,
            stats.byte_mismatches,
            build_ms,
        ))
    }
}
