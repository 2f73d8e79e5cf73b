//! The model card of a pretrained folder.

use std::fmt::Write;

use super::config::{Recipe, TokenizerStyle};
use super::train::Trained;
use crate::CorpusSource;

/// A short README: shape, data, tokens seen, held-out losses, limits.
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
        })
        .collect();
    let mut card = String::new();
    let mut line = |text: String| {
        let _ = writeln!(card, "{text}");
    };
    line("# A small decoder trained by `omnidraft pretrain`\n".into());
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
    line(format!("- Read: {}.", sources.join(", ")));
    line(format!(
        "- Tokens seen: {seen} ({:.2} passes over {tokens_per_epoch}), {} steps.",
        seen as f64 / tokens_per_epoch as f64,
        trained.steps,
    ));
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
