//! The generation settings recommended by a model's owner: the keys of `generation_config.json`,
//! which transformers applies by default. Here the user chooses the sampling, so that a key is
//! either used, or without effect, or set by a flag, or reported.

use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::error::{ModelsError, Result};

/// File of a model folder with recommended generation settings.
pub(crate) const GENERATION_CONFIG: &str = "generation_config.json";
/// File from which transformers takes these keys in folders without the other one.
const CONFIG: &str = "config.json";
/// Maximum length of a displayed value, in characters.
const MOST_SHOWN: usize = 60;

/// Keys that are used elsewhere or do not change an answer: ids, further outputs, memory
/// management, and settings of searches over several answers.
const HARMLESS: &[&str] = &[
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "continuous_batching_config",
    "decoder_start_token_id",
    "disable_compile",
    "early_stopping",
    "eos_token_id",
    "is_assistant",
    "length_penalty",
    "low_memory",
    "max_cache_len",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "return_dict_in_generate",
    "speculation_type",
    "target_lookbehind",
    "transformers_version",
    "trust_remote_code",
    "use_cache",
    "use_mtp",
];

/// Keys that the user sets by a flag, each with its neutral number.
const BY_FLAG: &[(&str, &str, f64)] = &[
    ("do_sample", "--temperature", 0.0),
    ("max_length", "--max-tokens", 20.0),
    ("max_new_tokens", "--max-tokens", 0.0),
    ("min_p", "--min-p", 0.0),
    ("num_return_sequences", "--n", 1.0),
    ("temperature", "--temperature", 1.0),
    ("top_k", "--top-k", 0.0),
    ("top_p", "--top-p", 1.0),
];

/// Keys that change the distribution of tokens and that no flag sets, each with its neutral number;
/// `None` if no number is neutral.
const LEFT_OUT: &[(&str, Option<f64>)] = &[
    ("bad_words_ids", None),
    ("begin_suppress_tokens", None),
    ("constraints", None),
    ("diversity_penalty", Some(0.0)),
    ("dola_layers", None),
    ("encoder_no_repeat_ngram_size", Some(0.0)),
    ("encoder_repetition_penalty", Some(1.0)),
    ("epsilon_cutoff", Some(0.0)),
    ("eta_cutoff", Some(0.0)),
    ("exponential_decay_length_penalty", None),
    ("force_words_ids", None),
    ("forced_bos_token_id", None),
    ("forced_decoder_ids", None),
    ("forced_eos_token_id", None),
    ("guidance_scale", Some(1.0)),
    ("max_time", None),
    ("min_length", Some(0.0)),
    ("min_new_tokens", Some(0.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("num_beam_groups", Some(1.0)),
    ("num_beams", Some(1.0)),
    ("penalty_alpha", Some(0.0)),
    ("repetition_penalty", Some(1.0)),
    ("sequence_bias", None),
    ("stop_strings", None),
    ("suppress_tokens", None),
    ("token_healing", Some(0.0)),
    ("top_h", None),
    ("typical_p", Some(1.0)),
    ("watermarking_config", None),
];

/// A key with a value that is not neutral.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The flag that sets it here, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<&'static str>,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value.to_string();
        let short: String = value.chars().take(MOST_SHOWN).collect();
        let more = if short.len() < value.len() { "..." } else { "" };
        write!(f, "{} {short}{more}", self.key)
    }
}

/// The generation settings of a model's owner that are not applied here.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Generation {
    /// The file that they are from.
    pub file: &'static str,
    /// Settings that the user makes by a flag or by a field of a request; the values in the file
    /// are not used.
    pub by_flag: Vec<Setting>,
    /// Settings that are not supported and would change answers.
    pub left_out: Vec<Setting>,
    /// Unknown keys.
    pub unknown: Vec<String>,
    /// Stop tokens.
    #[serde(skip)]
    pub(crate) ends: Vec<u32>,
}

impl Generation {
    /// Reads the settings of a model folder: those of `generation_config.json`, or, if there is no
    /// such file, those among the keys of `config.json`; empty without either.
    ///
    /// # Errors
    /// A `generation_config.json` that cannot be read or is not an object, or whose `eos_token_id`
    /// is not an id.
    pub fn read(folder: &Path) -> Result<Self> {
        if let Some(keys) = object(&folder.join(GENERATION_CONFIG))? {
            let mut found = Self::of(GENERATION_CONFIG, &keys);
            found.ends = ends(&folder.join(GENERATION_CONFIG), &keys["eos_token_id"])?;
            return Ok(found);
        }
        // Errors of config.json are reported by its own reader; keys that do not concern generation
        // are ignored here.
        let keys = object(&folder.join(CONFIG)).ok().flatten();
        let Some(Value::Object(mut keys)) = keys else {
            return Ok(Self::default());
        };
        if let Some(Value::Object(inner)) = keys.get("text_config").cloned() {
            for (key, value) in inner {
                keys.entry(key).or_insert(value);
            }
        }
        let mut found = Self::of(CONFIG, &Value::Object(keys));
        found.unknown.clear();
        Ok(found)
    }

    fn of(file: &'static str, keys: &Value) -> Self {
        let mut found = Self {
            file,
            ..Self::default()
        };
        for (key, value) in keys.as_object().into_iter().flatten() {
            let setting = |flag| Setting {
                key: key.clone(),
                value: value.clone(),
                flag,
            };
            if let Some((_, flag, neutral)) = BY_FLAG.iter().find(|(name, ..)| name == key) {
                if asks(value, Some(*neutral)) {
                    found.by_flag.push(setting(Some(flag)));
                }
            } else if let Some((_, neutral)) = LEFT_OUT.iter().find(|(name, _)| name == key) {
                if asks(value, *neutral) {
                    found.left_out.push(setting(None));
                }
            } else if !HARMLESS.contains(&key.as_str()) && !key.starts_with('_') {
                found.unknown.push(key.clone());
            }
        }
        found
    }

    /// Description of the settings that are left out and would change answers, except those that a
    /// user has set; `None` if there are none.
    pub fn note(&self, set: &[&str]) -> Option<String> {
        let left_out = self.left_out.iter();
        let left_out = left_out.filter(|setting| !set.contains(&setting.key.as_str()));
        let words: Vec<String> = left_out.map(Setting::to_string).collect();
        let them = if words.len() == 1 { "it" } else { "them" };
        (!words.is_empty()).then(|| {
            format!(
                "{} asks for {}, which is not done: answers are the model's own without {them}",
                self.file,
                words.join(", ")
            )
        })
    }
}

/// True for a value with an effect; `neutral` is a number without one. True and false count as 1
/// and 0.
fn asks(value: &Value, neutral: Option<f64>) -> bool {
    let is = |number: f64| neutral != Some(number);
    match value {
        Value::Bool(on) => is(f64::from(u8::from(*on))),
        Value::Number(number) => number.as_f64().is_none_or(is),
        other => !lm::is_inert(other),
    }
}

/// The stop tokens that a folder's `config.json` names, of the text model if it has several parts;
/// none if there is no such file.
pub(crate) fn configured_ends(folder: &Path) -> Result<Vec<u32>> {
    let path = folder.join(CONFIG);
    let Some(keys) = object(&path)? else {
        return Ok(Vec::new());
    };
    let ids = match &keys["text_config"]["eos_token_id"] {
        Value::Null => &keys["eos_token_id"],
        inner => inner,
    };
    ends(&path, ids)
}

/// The JSON object in a file; `None` if there is no such file.
fn object(path: &Path) -> Result<Option<Value>> {
    match optional_json(path)? {
        Some(value) if !value.is_object() => {
            let message = format!("{}: must be an object", path.display());
            Err(ModelsError::Refused(message))
        }
        found => Ok(found),
    }
}

/// The value in a JSON file; `None` if there is no such file.
pub(crate) fn optional_json(path: &Path) -> Result<Option<Value>> {
    match read_json(path) {
        Ok(value) => Ok(Some(value)),
        Err(ModelsError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value in a JSON file.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).map_err(|source| ModelsError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_slice(vocab_align::without_mark(&bytes)).map_err(|source| ModelsError::Json {
        path: path.to_owned(),
        source,
    })
}

/// The ids of `eos_token_id`, one or several.
fn ends(path: &Path, value: &Value) -> Result<Vec<u32>> {
    let ids = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(ids) => ids.as_slice(),
        id => std::slice::from_ref(id),
    };
    let mut found = Vec::new();
    for id in ids {
        let Some(number) = id.as_i64() else {
            let path = path.display();
            let message = format!("{path}: key `eos_token_id`: {id} is no token id");
            return Err(ModelsError::Refused(message));
        };
        // -1 means no token.
        found.extend(u32::try_from(number).ok());
    }
    Ok(found)
}
