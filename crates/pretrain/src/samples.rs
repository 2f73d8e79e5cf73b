//! `samples.md`, with greedy answers of a finished model, and the statistics of its answers for its
//! card.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use indicatif::ProgressBar;
use models::{ModelFolder, Rendered};
use spec_decode::{PlainConfig, Sampling};
use streams::{DataSource, MiniTask, Prompt, Split};
use vocab_align::{TargetId, TokenId};

use crate::answers::answer;
use crate::card;
use crate::error::{PretrainError, Result};
use crate::train::progress_bar;
use crate::{CorpusSource, Recipe};

/// Name of the file.
pub const FILE: &str = "samples.md";

/// Number of prompts of each embedded stream.
const PER_TASK: usize = 3;

/// Largest number of tokens of a sample.
const MAX_TOKENS: usize = 80;

/// Number of held-out prompts per task for the statistics of a card.
const ANSWERED: usize = 100;

/// Largest number of tokens of an answer to these.
const ANSWER_TOKENS: usize = 128;

/// Temperatures at which a card reports statistics.
const TEMPERATURES: [f64; 2] = [0.0, 0.7];

/// Seed of the answers at a temperature above 0.
const SEED: u64 = 1;

/// Answers the first held-out prompts of the embedded streams, which no model was trained on, and
/// writes the answers beside the weights. Then answers held-out prompts of the tasks in the
/// folder's recipe, and writes the share of looping tokens and of distinct answers into the card.
///
/// # Errors
/// A folder that cannot be loaded or written; a task without a test split in `data`.
pub fn write(out: &Path, data: &DataSource, progress: bool) -> Result<()> {
    let folder: ModelFolder<TargetId> = ModelFolder::load(out)?;
    let mut text = format!(
        "# Samples\n\nGreedy answers of at most {MAX_TOKENS} tokens to the first {PER_TASK} held-out prompts of each embedded stream.\n"
    );
    for task in MiniTask::ALL {
        let _ = writeln!(text, "\n## {}", task.name());
        let mut prompts = DataSource::embedded().load(task.name(), Split::Test)?;
        prompts.truncate(PER_TASK);
        let bar = ProgressBar::hidden();
        let asked = fitted(&folder, &prompts)?;
        let answers = answers(&folder, &asked, 0.0, MAX_TOKENS, &bar)?;
        for (asked, answer) in asked.iter().zip(answers) {
            let ids: Vec<_> = answer.into_iter().map(TargetId::new).collect();
            let answer = folder.vocabulary.decode_lossy(&ids);
            let _ = write!(
                text,
                "\nPrompt:\n\n{}\n\nAnswer:\n\n{}\n",
                indented(asked.body()),
                indented(&answer)
            );
        }
    }
    let path = out.join(FILE);
    std::fs::write(&path, text).map_err(PretrainError::io(&path))?;
    card::add_habits(out, &habits(&folder, out, data, progress)?)
}

fn habits(
    folder: &ModelFolder<TargetId>,
    out: &Path,
    data: &DataSource,
    progress: bool,
) -> Result<String> {
    let recipe = Recipe::load(&out.join("recipe.toml"))?;
    let tasks: BTreeSet<&str> = recipe
        .data
        .sources
        .iter()
        .filter_map(|source| match source {
            CorpusSource::Task(task) => Some(task.as_str()),
            CorpusSource::Text(_) | CorpusSource::Trace(_) => None,
        })
        .collect();
    let mut loaded = Vec::new();
    for task in tasks {
        let mut prompts = data.load(task, Split::Test)?;
        prompts.truncate(ANSWERED);
        loaded.push((
            task,
            fitted(folder, &prompts)?,
            published(folder, &prompts)?,
        ));
    }
    let count: usize = loaded.iter().map(|(_, prompts, _)| prompts.len()).sum();
    let all = (count * TEMPERATURES.len()) as u64;
    let bar = progress_bar(("answers", "prompts"), 0, all, progress);
    let mut rows = String::new();
    for (task, prompts, published) in &loaded {
        for temperature in TEMPERATURES {
            let answers = answers(folder, prompts, temperature, ANSWER_TOKENS, &bar)?;
            rows += &card::habits(task, &temperature.to_string(), &answers);
        }
        rows += &card::habits(task, "published", published);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// The published answers, cut to the length of the model's own.
fn published(folder: &ModelFolder<TargetId>, prompts: &[Prompt]) -> Result<Vec<Vec<u32>>> {
    let ids = |prompt: &Prompt| {
        let ids = folder.vocabulary.encode(&prompt.reference)?.into_iter();
        Ok(ids.map(TokenId::get).take(ANSWER_TOKENS).collect())
    };
    prompts.iter().map(ids).collect()
}

/// Prompts in the model's template, shortened as at run time.
fn fitted(folder: &ModelFolder<TargetId>, prompts: &[Prompt]) -> Result<Vec<Rendered>> {
    let fit = |prompt: &Prompt| {
        let count = |rendered: &Rendered| folder.count(rendered);
        Ok(folder.template.fit(&prompt.prompt, count)?.rendered)
    };
    prompts.iter().map(fit).collect()
}

fn answers(
    folder: &ModelFolder<TargetId>,
    prompts: &[Rendered],
    temperature: f64,
    tokens: usize,
    bar: &ProgressBar,
) -> Result<Vec<Vec<u32>>> {
    let mut asked = Vec::new();
    for prompt in prompts {
        let ids = folder.encode(prompt)?;
        asked.push(ids.into_iter().map(TokenId::get).collect::<Vec<u32>>());
    }
    let asked: Vec<&[u32]> = asked.iter().map(Vec::as_slice).collect();
    let config = PlainConfig {
        sampling: Sampling::new(temperature)?,
        max_new_tokens: tokens,
        stop: folder.stop_tokens(),
    };
    let context = folder.context_for(tokens);
    answer(folder.weights(), &asked, &config, context, SEED, bar)
}

/// The text as a literal block of Markdown.
fn indented(text: &str) -> String {
    let lines = text.trim_end().lines();
    lines
        .map(|line| format!("    {line}").trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}
