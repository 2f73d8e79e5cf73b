//! The model card of a pretrained folder.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use super::answers::unwanted;
use super::config::{Recipe, TokenizerStyle};
use super::error::{PretrainError, Result};
use super::train::Trained;
use crate::CorpusSource;

/// The model card, a short README: shape, data, tokens seen, held-out losses, limits.
pub fn render(recipe: &Recipe, trained: &Trained, tokens_per_epoch: usize) -> String {
    let config = &trained.checkpoint.config;
    let seen = trained.steps * recipe.tokens_per_step();
    let style = match recipe.tokenizer.style {
        TokenizerStyle::ByteLevel => "byte-level BPE",
        TokenizerStyle::Sentencepiece => "BPE over characters with byte fallback",
    };
    let sources: Vec<String> = recipe
        .data
        .sources
        .iter()
        .map(|source| match source {
            CorpusSource::Task(task) => format!("{task} (training split)"),
            CorpusSource::Text(path) => path.display().to_string(),
            CorpusSource::Trace(recorded) => {
                let file = recorded.file.file_name().unwrap_or_default();
                format!(
                    "answers of {} ({})",
                    recorded.name(),
                    file.to_string_lossy()
                )
            }
        })
        .collect();
    let mut card = String::new();
    let mut line = |text: String| {
        let _ = writeln!(card, "{text}");
    };
    line(match &recipe.train.cut {
        Some(cut) => format!(
            "# `{}` cut and healed by `omnidraft pretrain`\n",
            cut.name()
        ),
        None => "# A small decoder trained by `omnidraft pretrain`\n".to_owned(),
    });
    line(format!(
        "{:.2}M parameters: {} blocks x {} wide, MLP {}, {}/{} heads, vocabulary {} ({style}, up to {} digits a token).\n",
        config.num_params() as f64 / 1e6,
        config.num_layers,
        config.hidden_size,
        config.intermediate_size,
        config.num_heads,
        config.num_kv_heads,
        config.vocab_size,
        recipe.tokenizer.digits,
    ));
    line(format!(
        "- Recipe: `recipe.toml` beside this file, seed {}; log: `training.jsonl`.",
        recipe.seed
    ));
    if let Some(from) = &recipe.train.from {
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        line(format!(
            "- It began with the weights of `{name}`, and what follows is what came after them."
        ));
    }
    if let Some(cut) = &recipe.train.cut {
        let blocks = match &cut.blocks {
            Some(blocks) => format!("blocks {blocks:?}"),
            None => format!("{} blocks, the last two among them", config.num_layers),
        };
        line(format!(
            "- It began with {blocks} of `{}`, whose licence is its own, and what follows healed the cut.",
            cut.name()
        ));
    }
    line(format!("- Read: {}.", sources.join(", ")));
    line(format!(
        "- Tokens seen: {seen} ({:.2} passes over {tokens_per_epoch}), {} steps.",
        seen as f64 / tokens_per_epoch as f64,
        trained.steps,
    ));
    if let Some(own) = &recipe.unlikelihood {
        line(format!(
            "- The last {} steps were against loops: beside the text, {} answers of its own a step, in which repeated tokens became less likely.",
            own.steps, own.answers
        ));
    }
    line("- Weights are stored in bf16.\n".into());
    line("| held-out text | nats a token | tokens |\n|---|---|---|".into());
    for row in &trained.held_out {
        line(format!(
            "| {} | {:.3} | {} |",
            row.held_out, row.loss, row.tokens
        ));
    }
    line(
        "\nIt writes text in the genre of what it read and knows nothing: use it to study speculative decoding, not for its answers."
            .into(),
    );
    card
}

/// Heading of the part of a card that is about answers.
const HEADING: &str = "\n## Its answers\n";

/// A row of a card about answers to a task: tokens an answer, share of looping tokens, share of
/// distinct answers. `temperature` is that of the model, or `published`.
pub(crate) fn habits(task: &str, temperature: &str, answers: &[Vec<u32>]) -> String {
    let tokens: usize = answers.iter().map(Vec::len).sum();
    let looping: usize = answers.iter().map(|a| unwanted(a).count()).sum();
    let distinct: HashSet<_> = answers.iter().collect();
    let count = answers.len().max(1) as f64;
    format!(
        "| {task} | {temperature} | {:.0} | {:.1}% | {:.0}% |\n",
        tokens as f64 / count,
        100.0 * (looping as f64 / tokens.max(1) as f64),
        100.0 * (distinct.len() as f64 / count)
    )
}

/// Writes rows about a model's answers at the end of its card, replacing earlier ones.
///
/// # Errors
/// A folder without a card; a card that cannot be written.
pub fn add_habits(out: &Path, rows: &str) -> Result<()> {
    let path = out.join("README.md");
    let old = std::fs::read_to_string(&path).map_err(PretrainError::io(&path))?;
    let mut card = old.split(HEADING).next().unwrap_or_default().to_owned();
    if !rows.is_empty() {
        card.push_str(HEADING);
        card.push_str(
            "\nTo the first 100 test prompts of each task, at most 128 tokens each; beside them the published ones. Looping: the token ends a run of four that the answer already had.\n\n| task | temperature | tokens an answer | looping tokens | distinct answers |\n|---|---|---|---|---|\n",
        );
        card.push_str(rows);
    }
    std::fs::write(&path, card).map_err(PretrainError::io(&path))
}
