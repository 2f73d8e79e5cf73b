//! Training of a tokenizer, written as a Hugging Face `tokenizer.json`.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use super::config::{TokenizerRecipe, TokenizerStyle};
use super::error::{PretrainError, Result};

/// Text of the unknown token. It is never produced, since every byte has a token.
const UNKNOWN: &str = "<unk>";
/// Number of distinct characters in a character-level vocabulary. Others fall back to bytes.
const ALPHABET: usize = 160;
/// Longest token of a character-level vocabulary, in characters. The limit keeps whole phrases out
/// of small vocabularies.
const MAX_TOKEN_CHARS: usize = 16;

/// Trains on `texts` and returns the `tokenizer.json`.
///
/// # Errors
/// Those of the tokenizer library.
pub fn train<'a>(
    recipe: &TokenizerRecipe,
    texts: impl Iterator<Item = &'a str> + Send,
) -> Result<Value> {
    let library = PretrainError::Library;
    let mut tokenizer: Tokenizer = pipeline(recipe).to_string().parse().map_err(library)?;
    let mut trainer = TrainerWrapper::from(trainer(recipe));
    // Character-level training reads line by line. A line break is then no character of the
    // alphabet and falls back to its byte, as in SentencePiece. Byte-level training reads whole
    // texts, so that it learns runs of line breaks.
    match recipe.style {
        TokenizerStyle::Sentencepiece => {
            let lines: Vec<&str> = texts.flat_map(str::lines).collect();
            tokenizer
                .train(&mut trainer, lines.into_iter())
                .map_err(library)?;
        }
        TokenizerStyle::ByteLevel => {
            tokenizer.train(&mut trainer, texts).map_err(library)?;
        }
    }
    let mut json: Value = serde_json::from_str(&tokenizer.to_string(false).map_err(library)?)?;
    if recipe.style == TokenizerStyle::Sentencepiece {
        add_byte_tokens(&mut json, special_names(recipe).len())?;
    }
    Ok(json)
}

fn special_names(recipe: &TokenizerRecipe) -> Vec<&str> {
    let unknown = (recipe.style == TokenizerStyle::Sentencepiece).then_some(UNKNOWN);
    let named = [recipe.bos.as_str(), recipe.eos.as_str()].into_iter();
    unknown
        .into_iter()
        .chain(named)
        .chain(recipe.specials.iter().map(String::as_str))
        .collect()
}

fn trainer(recipe: &TokenizerRecipe) -> BpeTrainer {
    let specials = special_names(recipe)
        .into_iter()
        .map(|name| AddedToken::from(name, true))
        .collect();
    let builder = BpeTrainer::builder()
        .show_progress(false)
        .special_tokens(specials)
        .min_frequency(2);
    match recipe.style {
        TokenizerStyle::ByteLevel => {
            let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
            builder
                .vocab_size(recipe.vocab_size)
                .initial_alphabet(alphabet)
                .build()
        }
        TokenizerStyle::Sentencepiece => builder
            .vocab_size(recipe.vocab_size.saturating_sub(256))
            .limit_alphabet(ALPHABET)
            .max_token_length(Some(MAX_TOKEN_CHARS))
            .build(),
    }
}

fn pipeline(recipe: &TokenizerRecipe) -> Value {
    let digits = recipe.digits;
    let (pre_tokenizers, decoder, unknown) = match recipe.style {
        TokenizerStyle::ByteLevel => {
            let words = format!(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,{digits}}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            );
            let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
            (json!([split(&words), bytes.clone()]), bytes, Value::Null)
        }
        TokenizerStyle::Sentencepiece => {
            let space = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true});
            let decoder = json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ]});
            let numbers = split(&format!(r"\p{{N}}{{1,{digits}}}"));
            (json!([numbers, space]), decoder, Value::from(UNKNOWN))
        }
    };
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": null,
        "decoder": decoder,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true,
            "byte_fallback": recipe.style == TokenizerStyle::Sentencepiece,
            "ignore_merges": false, "vocab": {}, "merges": [],
        },
    })
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

/// Inserts `<0x00>` to `<0xFF>` after the special tokens and shifts all later ids.
fn add_byte_tokens(tokenizer: &mut Value, specials: usize) -> Result<()> {
    let vocab = tokenizer["model"]["vocab"]
        .as_object_mut()
        .ok_or(PretrainError::Internal("the trained vocabulary is no map"))?;
    for id in vocab.values_mut() {
        let old = id
            .as_u64()
            .ok_or(PretrainError::Internal("a trained token has no id"))?;
        *id = if (old as usize) < specials {
            old
        } else {
            old + 256
        }
        .into();
    }
    for byte in 0..256usize {
        vocab.insert(format!("<0x{byte:02X}>"), (specials + byte).into());
    }
    Ok(())
}
