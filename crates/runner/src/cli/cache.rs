//! `omnidraft cache`: n-gram caches, filled from recorded texts.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use models::tokenizer_file;
use ngram_cache::{CacheConfig, replay};
use vocab_align::{DraftId, TargetId, Vocabulary};

use super::print;
use streams::{IdSelector, load_texts};

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Run texts through two tokenizers, without a model, and measure the cache that they fill.
    Replay(ReplayArgs),
}

impl CacheCommand {
    pub fn execute(self) -> Result<()> {
        match self {
            Self::Replay(args) => args.execute(),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft cache replay --drafter models/D --target models/L --data datasets/mini-math/train.jsonl
  omnidraft cache replay --drafter llama-2 --target qwen2 --data gsm8k/train.jsonl --ids paper_split.json:train
  omnidraft cache replay --drafter llama-2 --target qwen2 --data gsm8k/train.jsonl --json --save gsm8k.ngrams")]
pub struct ReplayArgs {
    /// The drafter's tokenizer.json, its folder, or hf:owner/name.
    #[arg(long, alias = "draft", value_name = "PATH")]
    drafter: PathBuf,
    /// The target's tokenizer.json, its folder, or hf:owner/name.
    #[arg(long, value_name = "PATH")]
    target: PathBuf,
    /// JSON lines with an id and texts.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Only the ids of one list of a split file (looked for beside the data first).
    #[arg(long, value_name = "FILE:LIST")]
    ids: Option<IdSelector>,
    /// Field that holds the text.
    #[arg(long, default_value = "reference")]
    field: String,
    /// Save the cache to this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ReplayArgs {
    fn execute(self) -> Result<()> {
        let draft: Vocabulary<DraftId> = Vocabulary::from_file(&tokenizer_file(&self.drafter)?)?;
        let target: Vocabulary<TargetId> = Vocabulary::from_file(&tokenizer_file(&self.target)?)?;
        let mut texts = load_texts(&self.data, &self.field)?;
        if let Some(ids) = &self.ids {
            texts = ids.select_texts(texts, &self.data)?;
        }
        let done = replay(
            texts.iter().map(|text| &text.text),
            &draft,
            &target,
            CacheConfig::default(),
        )?;
        if let Some(path) = &self.save {
            done.cache.save(path)?;
        }
        let report = &done.report;
        if self.json {
            return print(&format!("{:#}\n", serde_json::to_value(report)?));
        }
        let mut text = format!(
            "texts              {:>10}\ntarget tokens      {:>10}\nunique n-grams     {:>10}\noccurrences        {:>10}\n\
             memory             {:>10} bytes, {:.1} an n-gram\n\nlength  n-grams\n",
            report.texts,
            report.target_tokens,
            report.unique_ngrams,
            report.occurrences,
            report.bytes,
            report.bytes_per_ngram
        );
        for (length, count) in &report.lengths {
            text += &format!("{length:>6}  {count:>7}\n");
        }
        text += "\ntimes seen  n-grams\n";
        for (low, high) in [
            (1, 1),
            (2, 3),
            (4, 7),
            (8, 15),
            (16, 63),
            (64, 255),
            (256, u32::MAX),
        ] {
            let count: usize = report.frequencies.range(low..=high).map(|(_, n)| n).sum();
            let label = if low == high {
                low.to_string()
            } else if high == u32::MAX {
                format!("{low}+")
            } else {
                format!("{low}-{high}")
            };
            text += &format!("{label:>10}  {count:>7}\n");
        }
        text += "\ntarget tokens  n-grams  growth rate\n";
        let step = report.growth.len().div_ceil(8).max(1);
        for (tokens, ngrams) in report.growth.iter().skip(step - 1).step_by(step) {
            text += &format!(
                "{tokens:>13}  {ngrams:>7}  {:>11.4}\n",
                *ngrams as f64 / (*tokens).max(1) as f64
            );
        }
        print(&text)
    }
}
