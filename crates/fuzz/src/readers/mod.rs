//! All readers of bytes from elsewhere, each with valid files and a call.

mod experiments;
mod models;
mod state;
mod text;
mod weights;

use std::path::Path;

use anyhow::{Context, Result};

use crate::Reader;

/// Every reader, in the order of the report.
pub const ALL: &[&Reader] = &[
    &text::TOKENIZER,
    &text::TEMPLATE,
    &text::TOKENIZER_CONFIG,
    &text::GENERATION,
    &text::SPECIAL_TOKENS,
    &text::PIECES,
    &text::PROMPTS,
    &text::PROMPT_ARRAY,
    &models::CONFIG,
    &models::CHECKPOINT,
    &models::INDEX,
    &weights::TORCH,
    &weights::GGUF,
    &weights::GGUF_MODEL,
    &models::ADAPTER,
    &models::ADAPTER_CONFIG,
    &state::CACHE,
    &state::TEXTS,
    &state::HEAD,
    &state::CHAINS,
    &state::PRETRAINING,
    &state::TRACE,
    &state::PARTIAL_TRACE,
    &experiments::EXPERIMENT,
    &experiments::RECIPE,
    &experiments::PAPER,
    &experiments::MANIFEST,
    &experiments::RECORD,
    &experiments::ROWS,
];

/// The reader of a name.
pub fn named(name: &str) -> Option<&'static Reader> {
    ALL.iter().find(|reader| reader.name == name).copied()
}

/// Writes an input where a reader looks for it.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<std::path::PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The bytes that a writer of the program leaves in a file.
fn written<E: Into<anyhow::Error>>(
    name: &str,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    write(folder.path()).map_err(Into::into)?;
    let path = folder.path().join(name);
    std::fs::read(&path).with_context(|| path.display().to_string())
}
