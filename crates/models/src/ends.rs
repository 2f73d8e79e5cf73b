//! Ends of an answer: the tokens that end it, and the file that says so.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lm::LmConfig;
use serde_json::Value;
use vocab_align::{SpecialRole, TokenId, Vocabulary};

/// File of a model folder that says how answers were meant to be generated.
const GENERATION_CONFIG: &str = "generation_config.json";

/// A token that ends an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End<I> {
    /// The token.
    pub id: I,
    /// The file that says so.
    pub from: Vec<&'static str>,
}

/// The tokens that end an answer of the model in `folder`, by ascending id: those that
/// `generation_config.json`, `config.json` (or the keys of a GGUF file) and the tokenizer's files name,
/// and the usual ends of a turn. Ids that are none of the model's end nothing and are left out.
///
/// # Errors
/// A `generation_config.json` that cannot be read, or whose `eos_token_id` is no id.
pub fn ends<I: TokenId>(
    folder: &Path,
    config: &LmConfig,
    vocabulary: &Vocabulary<I>,
) -> Result<Vec<End<I>>> {
    let mut ends: BTreeMap<I, Vec<&'static str>> = BTreeMap::new();
    let mut add = |id: u32, from: &'static str| {
        if (id as usize) < config.vocab_size {
            ends.entry(I::new(id)).or_default().push(from);
        }
    };
    let of_model = match folder.join("config.json").exists() {
        true => "config.json",
        false => "the GGUF file",
    };
    for id in &config.eos_token_ids {
        add(*id, of_model);
    }
    for id in generation_ends(folder)? {
        add(id, GENERATION_CONFIG);
    }
    for (role, from) in roles() {
        if let Some(id) = vocabulary.special(role) {
            add(id.get(), from);
        }
    }
    let each = ends.into_iter().map(|(id, from)| End { id, from });
    Ok(each.collect())
}

/// The ends that a tokenizer without a model has.
pub(crate) fn of_vocabulary<I: TokenId>(vocabulary: &Vocabulary<I>) -> Vec<End<I>> {
    let each = roles().into_iter().filter_map(|(role, from)| {
        let id = vocabulary.special(role)?;
        Some(End {
            id,
            from: vec![from],
        })
    });
    each.collect()
}

fn roles() -> [(SpecialRole, &'static str); 2] {
    [
        (SpecialRole::Eos, "the tokenizer"),
        (SpecialRole::EndOfTurn, "its name"),
    ]
}

/// `eos_token_id` of `generation_config.json`, one or several; none without the file.
fn generation_ends(folder: &Path) -> Result<Vec<u32>> {
    let path = folder.join(GENERATION_CONFIG);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("{}", path.display())),
    };
    let file: Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{}", path.display()))?;
    let ids = match &file["eos_token_id"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(ids) => ids.as_slice(),
        id => std::slice::from_ref(id),
    };
    let mut found = Vec::new();
    for id in ids {
        let Some(number) = id.as_i64() else {
            bail!(
                "{}: key `eos_token_id`: {id} is no token id",
                path.display()
            );
        };
        // -1 stands for none.
        found.extend(u32::try_from(number).ok());
    }
    Ok(found)
}
