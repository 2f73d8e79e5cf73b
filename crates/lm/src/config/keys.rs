//! The keys of a JSON file, read by name, and the detection of keys that were never read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::LmError;

/// Largest width, count or number of positions. Products of two of them fit into 64 bits, and
/// tables of that many entries into memory.
pub(super) const MOST: usize = 1 << 24;

/// Largest length of a value in a message, in characters.
const MOST_SHOWN: usize = 60;

/// A type of value that a key may have.
pub(super) trait Wanted: DeserializeOwned {
    /// Description of the type that follows "must be".
    const WORDS: &'static str;
}

macro_rules! wanted {
    ($($wanted:ty: $words:literal,)+) => {
        $(impl Wanted for $wanted {
            const WORDS: &'static str = $words;
        })+
    };
}

wanted! {
    bool: "true or false",
    usize: "a whole number, 0 or more",
    i64: "a whole number",
    f64: "a number",
    String: "a text",
    Value: "anything",
    Vec<String>: "a list of texts",
    Vec<f64>: "a list of numbers",
    Vec<usize>: "a list of whole numbers, 0 or more",
}

/// One object of a configuration file.
pub(super) struct Keys<'a> {
    path: &'a Path,
    /// Dotted name of the object with a dot after it, or empty.
    prefix: String,
    object: &'a Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(path: &'a Path, prefix: &str, object: &'a Map<String, Value>) -> Self {
        Self {
            path,
            prefix: prefix.to_owned(),
            object,
            read: RefCell::default(),
        }
    }

    /// The keys of `object`, which stands under `key` of this object or replaces it.
    pub(super) fn inside<'b>(&self, key: &str, object: &'b Map<String, Value>) -> Keys<'b>
    where
        'a: 'b,
    {
        Keys::new(self.path, &format!("{}{key}.", self.prefix), object)
    }

    /// An error about a key of this object.
    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> LmError {
        LmError::Config {
            path: self.path.to_owned(),
            key: format!("{}{key}", self.prefix),
            message: message.into(),
        }
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// True if a key is present, even as null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// The value of a key; `None` if it is absent or null.
    pub(super) fn get<T: Wanted>(&self, key: &str) -> Result<Option<T>, LmError> {
        let read = self.value(key).map(|value| {
            T::deserialize(value).map_err(|_| {
                let shown: String = value.to_string().chars().take(MOST_SHOWN).collect();
                self.error(key, format!("must be {}, not {shown}", T::WORDS))
            })
        });
        read.transpose()
    }

    /// The value of a required key.
    pub(super) fn need<T: Wanted>(&self, key: &str) -> Result<T, LmError> {
        let found = self.get(key)?;
        found.ok_or_else(|| self.error(key, "is missing"))
    }

    /// A count, at least 1 and at most [`MOST`].
    pub(super) fn count(&self, key: &str, default: Option<usize>) -> Result<usize, LmError> {
        let found = match default {
            Some(default) => self.get(key)?.unwrap_or(default),
            None => self.need(key)?,
        };
        match found {
            0 => Err(self.error(key, "must be at least 1")),
            found if found > MOST => Err(self.error(
                key,
                format!("{found} is more than {MOST}, which no model has"),
            )),
            found => Ok(found),
        }
    }

    /// A number above zero.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>, LmError> {
        match self.get::<f64>(key)? {
            Some(x) if !(x.is_finite() && x > 0.0) => {
                Err(self.error(key, format!("{x} is not a number above 0")))
            }
            found => Ok(found),
        }
    }

    /// An object inside this one.
    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, LmError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let object = value.as_object();
        let object = object.ok_or_else(|| self.error(key, "must be an object"))?;
        Ok(Some(self.inside(key, object)))
    }

    /// Refuses keys that were never read and that `harmless` does not contain, because such a key
    /// may change what the model computes. A value that switches something off is allowed, and so
    /// is a key that begins with `_`.
    pub(super) fn finish(&self, harmless: &[&str]) -> Result<(), LmError> {
        let read = self.read.borrow();
        let open = self.object.iter().find(|(key, value)| {
            let known = read.contains(*key) || harmless.contains(&key.as_str());
            !known && !key.starts_with('_') && !is_inert(value)
        });
        match open {
            None => Ok(()),
            Some((key, value)) => Err(self.error(
                key,
                format!("is not understood (its value is {value}) and may change what the model computes"),
            )),
        }
    }
}

/// True if a value switches something off: null, false, zero, or an empty list, object or text.
pub fn is_inert(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Keys that do not affect what a model computes from tokens: its origin, its training, settings of
/// generation.
pub(super) const HARMLESS: &[&str] = &[
    "architectures",
    "attention_bias_qkv",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "loss_type",
    "max_length",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "model_type",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "tokenizer_padding_side",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
];
