//! `omnidraft trace verify`: a check of every row of a trace.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ::trace::{Law, Record, TraceFile, Traces, file_sha256};
use anyhow::{Result, bail};
use clap::Args;
use lm::{EngineSettings, KvType, WeightType};
use models::{ModelFolder, ModelText};
use vocab_align::{TargetId, TokenId};

use super::prompts::template_of;
use crate::cli::{bar, print};
use bench::args::ThreadArgs;

/// Maximum difference of two log-probabilities that were rounded to 16 bits from nearly the same
/// value: two steps of the format, relative and near 0.
const RELATIVE: f32 = 2.0 / 2048.0;
const ABSOLUTE: f32 = 1e-4;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft trace verify traces/L-gsm8k-test.parquet
  omnidraft trace verify traces/L-gsm8k-test.parquet --tokenizer models/L
  omnidraft trace verify traces/L-gsm8k-test.parquet --target models/L --prompts 20

Reads every row and compares it with its checksum. With --tokenizer, prompts are spelled again; with
--target, some are answered again: the tokens must be the same, the log-probabilities within what
16 bits hold, logits bit for bit.")]
pub struct VerifyArgs {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The tokenizer for replay: tokenizer.json, its folder, or hf:owner/name.
    #[arg(long, value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Model folder for repeating some answers.
    #[arg(long, value_name = "DIR")]
    target: Option<PathBuf>,
    /// With --target: number of prompts, evenly spread.
    #[arg(long, default_value_t = 8, value_name = "N")]
    prompts: usize,
    /// Weight format while decoding.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    /// Format of keys and values: f32 or f16.
    #[arg(long, default_value_t = KvType::F32)]
    kv: KvType,
    #[command(flatten)]
    threads: ThreadArgs,
}

impl VerifyArgs {
    pub(super) fn execute(self, progress: bool) -> Result<()> {
        let mut file = TraceFile::open(&self.file)?;
        let bar = bar(file.entries().len(), "prompts", progress);
        for row in 0..file.entries().len() {
            file.record(row)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let rows = file.entries().len();
        let mut report = format!("{}: {rows} rows are whole\n", self.file.display());
        if let Some(tokenizer) = self.tokenizer.as_ref().or(self.target.as_ref()) {
            let same = self.spelled(&mut file, tokenizer)?;
            report += &format!(
                "{same} prompts are spelled as {} does\n",
                tokenizer.display()
            );
        }
        if let Some(target) = &self.target {
            report += &self.answered(&mut file, target)?;
        }
        print(&report)
    }

    /// Tokenises the prompts again. Returns their number.
    fn spelled(&self, file: &mut TraceFile, tokenizer: &Path) -> Result<usize> {
        let text = ModelText::<TargetId>::of_tokenizer(tokenizer, usize::MAX)?;
        let read = Path::new(text.vocabulary.file());
        let traces = Traces::open(std::slice::from_ref(&self.file))?;
        traces.check(read, &file_sha256(read)?, 1)?;
        if template_of(&text) != file.info().template {
            bail!(
                "{}: recorded with a {:?} template, {} has a {:?} one",
                self.file.display(),
                file.info().template,
                tokenizer.display(),
                template_of(&text)
            );
        }
        let rows = file.entries().len();
        for row in 0..rows {
            let record = file.record(row)?;
            let ids = match text.template.is_chat() {
                true => text.vocabulary.encode_with_specials(&record.prompt)?,
                false => text.vocabulary.encode_whole(&record.prompt)?,
            };
            if !ids
                .iter()
                .map(|id| id.get())
                .eq(record.prompt_ids.iter().copied())
            {
                bail!(
                    "{}: row {} (prompt `{}`): its text is spelled otherwise by {}",
                    self.file.display(),
                    row + 1,
                    record.id,
                    tokenizer.display()
                );
            }
        }
        Ok(rows)
    }

    /// Repeats some answers and compares them.
    fn answered(&self, file: &mut TraceFile, target: &Path) -> Result<String> {
        let model: ModelFolder<TargetId> = ModelFolder::load(target)?;
        let info = file.info().clone();
        if model.config().vocab_size != info.vocab_size {
            bail!(
                "{}: {} tokens, but {} has {}",
                self.file.display(),
                info.vocab_size,
                target.display(),
                model.config().vocab_size
            );
        }
        let settings = EngineSettings {
            kv: self.kv,
            context: Some(model.context_for(info.max_tokens + info.tail)),
            ..EngineSettings::new(self.weights, self.threads.count())
        };
        let mut engine = model.engine(settings)?;
        let rows = file.entries().len();
        let count = self.prompts.clamp(1, rows);
        let mut largest = 0.0_f32;
        for i in 0..count {
            let record = file.record(i * rows / count)?;
            let asked = (&*record.id, &*record.prompt, &*record.prompt_ids);
            let again = ::trace::answer(&mut engine, asked, &info)?;
            match difference(&record, &again) {
                Ok(most) => largest = largest.max(most),
                Err(what) => bail!(
                    "{}: prompt `{}`: {} {what}",
                    self.file.display(),
                    record.id,
                    target.display()
                ),
            }
        }
        Ok(format!(
            "{count} prompts answered again by {}: same tokens, values at most {largest:.1e} apart\n",
            target.display()
        ))
    }
}

/// The largest difference of recorded values, or the description of one that is too large.
fn difference(old: &Record, new: &Record) -> Result<f32, String> {
    if !old.path().eq(new.path()) || old.answer.len() != new.answer.len() {
        let at = old.path().zip(new.path()).position(|(a, b)| a != b);
        return Err(match at {
            Some(at) => format!("says another token at position {at}"),
            None => "answers at another length".to_owned(),
        });
    }
    let mut most = 0.0_f32;
    for position in 0..old.law.len() {
        let fresh = new.law.entries(position);
        // A token that only one of them lists was hardly less probable than the last one of the
        // other.
        let least = fresh.last().map_or(f32::NEG_INFINITY, |(_, value)| *value);
        let fresh: HashMap<u32, f32> = fresh.into_iter().collect();
        for (token, x) in old.law.entries(position) {
            let y = fresh.get(&token).copied().unwrap_or(least);
            let allowed = match old.law {
                Law::Full { .. } => 0.0,
                Law::Top { .. } => ABSOLUTE + RELATIVE * x.abs(),
            };
            if x != y && (x - y).abs() > allowed {
                return Err(format!(
                    "gives token {token} {y} for {x} at position {position}"
                ));
            }
            most = most.max(if x == y { 0.0 } else { (x - y).abs() });
        }
    }
    Ok(most)
}
