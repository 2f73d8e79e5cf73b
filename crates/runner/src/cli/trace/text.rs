//! `omnidraft trace text`: a trace of a task's reference answers, without a target's model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ::trace::{
    DEFAULT_TAIL, FORMAT, Law, NgramModel, Record, Source, TextLaw, TraceInfo, Values, file_sha256,
};
use anyhow::{Context, Result, bail};
use clap::Args;
use models::{Exchange, ModelText};
use streams::{DataSource, Prompt, Split, load_texts};
use vocab_align::{SpecialRole, TargetId, TokenId, special_names};

use super::progress::Recording;
use super::prompts::{PromptArgs, program, spell, template_of};
use crate::cli::DataArgs;

/// Context length for a text, which no model reads.
const MOST_CONTEXT: usize = 1 << 24;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft trace text --tokenizer models/L --task mini-math --out traces/text-mini-math.parquet
  omnidraft trace text --tokenizer llama-3 --task gsm8k --data-dir DATA --smooth 0.3 --order 3 --out traces/llama3-gsm8k-train.parquet
  omnidraft trace text --tokenizer llama-3 --task gsm8k --data-dir DATA --split test --out traces/llama3-gsm8k-test.parquet

Reference answers stand in for a target's: no model is asked, and everything that shows such numbers
says so. The law puts 1 - smooth on the token of the text and gives the rest to an interpolated
n-gram model of the task's training references, in target tokens. A call that was interrupted goes
on when it is typed again.")]
pub struct TextArgs {
    /// The target's tokenizer.json, its folder (with a chat template, if there is one), or
    /// hf:owner/name.
    #[arg(long, value_name = "PATH")]
    tokenizer: PathBuf,
    #[command(flatten)]
    prompts: PromptArgs,
    /// Field of the records that holds the answer.
    #[arg(long, default_value = "reference")]
    field: String,
    /// Probability that is not on the token of the text: at least 0, below 0.5.
    #[arg(long, default_value_t = 0.3)]
    smooth: f64,
    /// Order of the n-gram model, 1 to 5.
    #[arg(long, default_value_t = 3)]
    order: usize,
    /// K: tokens recorded at each position.
    #[arg(long, default_value_t = 64)]
    top: usize,
    /// Maximum tokens of an answer.
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    /// Tokens recorded after an answer that is cut: as many as a round may propose there.
    #[arg(long, default_value_t = DEFAULT_TAIL)]
    tail: usize,
    /// Maximum tokens of a prompt, template included.
    #[arg(long, default_value_t = 1024)]
    max_prompt_tokens: usize,
    /// File to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Stop after this many prompts; the next call goes on there.
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
    #[command(flatten)]
    data: DataArgs,
}

impl TextArgs {
    pub(super) fn execute(self, progress: bool) -> Result<()> {
        let data = self.data.source()?;
        let text = ModelText::<TargetId>::of_tokenizer(&self.tokenizer, MOST_CONTEXT)?;
        let stop = text.stop_tokens();
        let text = text.with_ends(stop, self.max_prompt_tokens);
        let info = self.info(&text)?;
        info.check(&self.out)?;
        let answers = self.answers(&data, self.prompts.split.into())?;
        let prompts = self.prompts.load(&data)?;
        let end = end_token(&text)?;
        // Before the file is created, so that impossible settings leave no file.
        let law = self.law(&data, &text, end)?;
        let mut recording =
            Recording::open(&self.out, &info, prompts.len(), self.stop_after, progress)?;
        let mut empty = 0;
        let mut said: Vec<Exchange> = Vec::new();
        for prompt in &prompts {
            if recording.is_full() {
                break;
            }
            let answer = answers.get(&prompt.id).map_or("", String::as_str);
            said.truncate(prompt.earlier.len());
            // A conversation goes on as far as it has answers.
            if answer.trim().is_empty() || said.len() < prompt.earlier.len() {
                empty += 1;
                continue;
            }
            let (rendered, prompt_ids) = spell(&text, &said, &prompt.prompt)
                .with_context(|| format!("prompt `{}`", prompt.id))?;
            said.push(Exchange {
                asked: prompt.prompt.clone(),
                answered: answer.to_owned(),
            });
            if !recording.wants(&prompt.id, &prompt_ids) {
                continue;
            }
            let ids = text.vocabulary.encode(answer)?;
            let ids: Vec<u32> = ids.iter().map(|id| id.get()).chain([end]).collect();
            let record = record(&info, &law, prompt, rendered, prompt_ids, ids, end);
            recording.push(&record)?;
        }
        if empty > 0 {
            eprintln!("{empty} records have no `{}` and are left out", self.field);
        }
        recording.finish()
    }

    fn info(&self, text: &ModelText<TargetId>) -> Result<TraceInfo> {
        Ok(TraceInfo {
            format: FORMAT,
            source: Source::ReferenceText {
                field: self.field.clone(),
                smooth: self.smooth,
                order: self.order,
            },
            task: self.prompts.task.clone(),
            split: Split::from(self.prompts.split).name().to_owned(),
            tokenizer_sha256: file_sha256(Path::new(text.vocabulary.file()))?,
            template: template_of(text),
            max_prompt_tokens: text.template.max_prompt_tokens(),
            vocab_size: text.vocabulary.len(),
            context: MOST_CONTEXT,
            stop: text.stop_tokens().iter().map(|id| id.get()).collect(),
            max_tokens: self.max_tokens,
            tail: self.tail,
            top: self.top,
            values: Values::LogProbs,
            temperature: 0.0,
            program: program(),
        })
    }

    /// The distributions, from the task's training references for either split.
    fn law(&self, data: &DataSource, text: &ModelText<TargetId>, end: u32) -> Result<TextLaw> {
        let answers = self.answers(data, Split::Train)?;
        let mut texts = Vec::with_capacity(answers.len());
        for answer in answers.values().filter(|answer| !answer.trim().is_empty()) {
            let ids = text.vocabulary.encode(answer)?;
            texts.push(
                ids.iter()
                    .map(|id| id.get())
                    .chain([end])
                    .collect::<Vec<_>>(),
            );
        }
        let texts = texts.iter().map(Vec::as_slice);
        let model = NgramModel::new(texts, self.order, text.vocabulary.len())?;
        Ok(TextLaw::new(model, self.smooth, self.top)?)
    }

    /// The answers of a split by id.
    fn answers(&self, data: &DataSource, split: Split) -> Result<HashMap<String, String>> {
        let task = &self.prompts.task;
        let prompts = data.load(task, split)?;
        if self.field == "reference" {
            let answers = prompts.into_iter().map(|p| (p.id, p.reference));
            return Ok(answers.collect());
        }
        let Some(file) = data.file(task, split)? else {
            bail!(
                "--field {}: {task} is embedded; fields are read from the files of --data-dir",
                self.field
            );
        };
        let texts = load_texts(&file, &self.field)?.into_iter();
        let mut texts: HashMap<String, String> = texts.map(|t| (t.id, t.text)).collect();
        Ok(prompts
            .into_iter()
            .filter_map(|p| texts.remove_entry(&p.id))
            .collect())
    }
}

/// The token that ends an answer: the end of a turn if the target has a chat template. Of several
/// it is the one that the tokenizer's files name, else the one with the lowest id.
fn end_token(text: &ModelText<TargetId>) -> Result<u32> {
    let roles = match text.template.is_chat() {
        true => [SpecialRole::EndOfTurn, SpecialRole::Eos],
        false => [SpecialRole::Eos, SpecialRole::EndOfTurn],
    };
    let named = special_names(&text.path)?.remove("eos_token");
    let named = named.and_then(|name| text.vocabulary.find_content(&name));
    let mut ends = roles.into_iter().filter_map(|role| {
        let specials = text.vocabulary.specials();
        let of_role = specials.filter(|(_, own)| *own == role);
        of_role
            .map(|(id, _)| id)
            .min_by_key(|id| Some(*id) != named)
    });
    match ends.next() {
        Some(end) => Ok(end.get()),
        None => bail!("{}: no token ends an answer", text.vocabulary.file()),
    }
}

/// A reference with its distributions. `ids` are those of the reference and the end.
fn record(
    info: &TraceInfo,
    law: &TextLaw,
    prompt: &Prompt,
    text: String,
    prompt_ids: Vec<u32>,
    mut ids: Vec<u32>,
    end: u32,
) -> Record {
    let kept = info.max_tokens.min(ids.len());
    ids.truncate(info.max_tokens + info.tail);
    if ids.last() == Some(&end) {
        // One row after the end is verified as well.
        ids.push(end);
    }
    let mut rows = Law::new(info);
    for (i, token) in ids.iter().enumerate() {
        rows.push_top(&law.at(&ids[..i], *token));
    }
    let tail = ids.split_off(kept);
    Record {
        id: prompt.id.clone(),
        prompt: text,
        prompt_ids,
        answer: ids,
        tail,
        law: rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_ends_the_named_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        let tokenizer = r#"{
            "added_tokens": [
                {"id": 2, "content": "<|eot_id|>", "special": true},
                {"id": 3, "content": "<|im_end|>", "special": true},
                {"id": 4, "content": "</s>", "special": true}
            ],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
        }"#;
        write("tokenizer.json", tokenizer);
        let end = |named: &str| {
            let config = format!(r#"{{"eos_token": "{named}"}}"#);
            write("tokenizer_config.json", &config);
            end_token(&ModelText::of_tokenizer(folder.path(), 64).unwrap()).unwrap()
        };
        assert_eq!(end("<|im_end|>"), 4, "without a template texts end");
        let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
        write("chat_template.jinja", template);
        assert_eq!(end("<|im_end|>"), 3);
        assert_eq!(end("<|eot_id|>"), 2);
        assert_eq!(end("</s>"), 2, "with a template turns end");
    }
}
