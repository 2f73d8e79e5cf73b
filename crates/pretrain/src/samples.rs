//! `samples.md`: what a finished model answers, greedily.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use spec_decode::{NoSink, PlainConfig, Sampling, StreamName, decode_plain};
use vocab_align::TargetId;

use lm::{EngineSettings, WeightType};
use models::ModelFolder;
use streams::MiniTask;
use streams::{DataSource, Split};

/// Name of the file.
pub const FILE: &str = "samples.md";

/// Prompts of each embedded stream.
const PER_TASK: usize = 3;

/// Most tokens of an answer.
const MAX_TOKENS: usize = 80;

/// Answers the first held-out prompts of the embedded streams, which no model has read, and writes
/// them beside the weights.
///
/// # Errors
/// A folder that cannot be loaded or written.
pub fn write(out: &Path) -> Result<()> {
    let folder: ModelFolder<TargetId> = ModelFolder::load(out)?;
    let mut engine = folder.engine(EngineSettings::new(WeightType::F32, 1))?;
    let config = PlainConfig {
        sampling: Sampling::new(0.0)?,
        max_new_tokens: MAX_TOKENS,
        stop: folder.stop_tokens(),
    };
    let mut text = format!(
        "# Samples\n\nGreedy answers of at most {MAX_TOKENS} tokens to the first {PER_TASK} held-out prompts of each embedded stream.\n"
    );
    for task in MiniTask::ALL {
        let _ = writeln!(text, "\n## {}", task.name());
        let prompts = DataSource::embedded().load(task.name(), Split::Test)?;
        for prompt in prompts.iter().take(PER_TASK) {
            let fitted = folder.template.fit(&prompt.prompt, |rendered| {
                folder.encode(rendered).map(|ids| ids.len())
            })?;
            let ids = folder.encode(&fitted.rendered)?;
            let name = StreamName::new(0, 0);
            let done = decode_plain(&mut engine, &ids, &config, name, &mut NoSink)?;
            let answer = folder.vocabulary.decode_lossy(&done.tokens);
            let _ = write!(
                text,
                "\nPrompt:\n\n{}\n\nAnswer:\n\n{}\n",
                indented(&fitted.rendered.body),
                indented(&answer)
            );
        }
    }
    let path = out.join(FILE);
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

/// As a block of literal text in Markdown.
fn indented(text: &str) -> String {
    let lines = text.trim_end().lines();
    lines
        .map(|line| format!("    {line}").trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}
