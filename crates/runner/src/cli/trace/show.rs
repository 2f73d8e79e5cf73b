//! `omnidraft trace show`: a description of traces.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ::trace::{Source, TraceFile, TraceInfo};
use anyhow::Result;
use clap::Args;
use results::looping;
use serde::Serialize;

use crate::cli::print;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft trace show traces/L-gsm8k-test.parquet
  omnidraft trace show --json traces/L-gsm8k-train.parquet traces/L-gsm8k-test.parquet")]
pub struct ShowArgs {
    /// The files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Description of a file.
#[derive(Debug, Serialize)]
struct Summary {
    file: PathBuf,
    bytes: u64,
    info: TraceInfo,
    prompts: usize,
    prompt_tokens: usize,
    answer_tokens: usize,
    /// Number of positions of answers and tails.
    positions: usize,
    bytes_per_token: f64,
    /// Number of answers that a stop token ends.
    ended: usize,
    distinct_answers: usize,
    /// Share of answer tokens that end a 4-gram which occurred earlier in the answer.
    looping: f64,
}

impl ShowArgs {
    pub(super) fn execute(self) -> Result<()> {
        let mut summaries = Vec::new();
        for path in &self.files {
            summaries.push(summary(&TraceFile::open(path)?)?);
        }
        if self.json {
            return print(&format!("{:#}\n", serde_json::to_value(&summaries)?));
        }
        let texts: Vec<String> = summaries.iter().map(Summary::text).collect();
        print(&texts.join("\n"))
    }
}

fn summary(file: &TraceFile) -> Result<Summary> {
    let entries = file.entries();
    let answers = || entries.iter().map(|entry| &entry.path[..entry.answer_len]);
    let answer_tokens = answers().map(<[u32]>::len).sum::<usize>();
    let positions = entries.iter().map(|entry| entry.path.len()).sum::<usize>();
    let repeated = answers()
        .map(|answer| looping(answer).iter().filter(|yes| **yes).count())
        .sum::<usize>();
    let bytes = std::fs::metadata(file.path())?.len();
    let stop = &file.info().stop;
    Ok(Summary {
        file: file.path().to_owned(),
        bytes,
        info: file.info().clone(),
        prompts: entries.len(),
        prompt_tokens: entries.iter().map(|e| e.prompt_ids.len()).sum(),
        answer_tokens,
        positions,
        bytes_per_token: bytes as f64 / positions.max(1) as f64,
        ended: answers()
            .filter(|answer| answer.last().is_some_and(|id| stop.contains(id)))
            .count(),
        distinct_answers: answers().collect::<BTreeSet<_>>().len(),
        looping: repeated as f64 / answer_tokens.max(1) as f64,
    })
}

impl Summary {
    fn text(&self) -> String {
        let info = &self.info;
        let source = match &info.source {
            Source::Model {
                name,
                sha256,
                weights,
            } => {
                let hash = match sha256.get(..12) {
                    Some(hash) => format!(", weights sha256 {hash}.."),
                    None => String::new(),
                };
                format!("model {name}{hash}, decoded in {weights}")
            }
            Source::ReferenceText {
                field,
                smooth,
                order,
            } => format!(
                "reference text, no model: field `{field}`, {smooth} of the mass given to an {order}-gram model"
            ),
        };
        format!(
            "{}\n\
             source             {source}\n\
             task               {}, {}\n\
             prompts            {}, {:.1} tokens each, {:?} template, at most {} tokens\n\
             answers            {:.1} tokens each, at most {}; {} ended, {} distinct\n\
             looping            {:.4} of the answers' tokens end a repeated 4-gram\n\
             law                {} of {} tokens a position, {:?}\n\
             tokenizer          sha256 {}\n\
             size               {} bytes, {:.1} a token\n\
             recorded by        {}, temperature {}\n",
            self.file.display(),
            info.task,
            info.split,
            self.prompts,
            self.prompt_tokens as f64 / self.prompts.max(1) as f64,
            info.template,
            info.max_prompt_tokens,
            self.answer_tokens as f64 / self.prompts.max(1) as f64,
            info.max_tokens,
            self.ended,
            self.distinct_answers,
            self.looping,
            info.top,
            info.vocab_size,
            info.values,
            info.tokenizer_sha256,
            self.bytes,
            self.bytes_per_token,
            info.program,
            info.temperature,
        )
    }
}
