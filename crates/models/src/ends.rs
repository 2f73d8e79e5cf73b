//! Stop tokens, and the files that name them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vocab_align::{SpecialRole, TokenId, Vocabulary};

use crate::error::Result;
use crate::generation::{GENERATION_CONFIG, Generation};

/// A token that ends an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End<I> {
    /// The token.
    pub id: I,
    /// The files that name it.
    pub from: Vec<&'static str>,
}

/// The stop tokens of the model in `folder`, by ascending id: those that `generation_config.json`
/// and the tokenizer's files name, `configured` ones of `config.json` (or the keys of a GGUF file),
/// and the usual end-of-turn tokens. Ids outside of the `vocab` columns of logits are left out.
///
/// # Errors
/// A `generation_config.json` that cannot be read, or whose `eos_token_id` is no id.
pub fn ends<I: TokenId>(
    folder: &Path,
    configured: &[u32],
    vocab: usize,
    vocabulary: &Vocabulary<I>,
) -> Result<Vec<End<I>>> {
    let mut ends: BTreeMap<I, Vec<&'static str>> = BTreeMap::new();
    let mut add = |id: u32, from: &'static str| {
        if (id as usize) < vocab {
            ends.entry(I::new(id)).or_default().push(from);
        }
    };
    let of_model = match folder.join("config.json").exists() {
        true => "config.json",
        false => "the GGUF file",
    };
    for id in configured {
        add(*id, of_model);
    }
    for id in Generation::read(folder)?.ends {
        add(id, GENERATION_CONFIG);
    }
    for (role, from) in ROLES {
        for (id, _) in vocabulary.specials().filter(|(_, own)| *own == role) {
            add(id.get(), from);
        }
    }
    let each = ends.into_iter().map(|(id, from)| End { id, from });
    Ok(each.collect())
}

/// The stop tokens of a tokenizer without a model.
pub(crate) fn of_vocabulary<I: TokenId>(vocabulary: &Vocabulary<I>) -> BTreeSet<I> {
    let ends = |role: SpecialRole| ROLES.iter().any(|(end, _)| *end == role);
    let found = vocabulary.specials().filter(|(_, role)| ends(*role));
    found.map(|(id, _)| id).collect()
}

/// Roles of stop tokens, and what names them.
const ROLES: [(SpecialRole, &str); 2] = [
    (SpecialRole::Eos, "the tokenizer"),
    (SpecialRole::EndOfTurn, "its name"),
];
