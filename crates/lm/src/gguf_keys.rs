//! The keys of a GGUF file that describe a model's computation: keys that are read, keys that
//! change nothing, and keys that are refused because they may change numbers.

use serde_json::{Value, json};
use weights::{GgufValue, TensorFiles};

use crate::LmError;

/// Keys, without the name of the architecture, that are read.
const READ: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "final_logit_softcapping",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
];

/// Keys, without the name of the architecture, that change nothing.
const HARMLESS: &[&str] = &[
    // The embedding determines it.
    "vocab_size",
    // It belongs to another kind of norm.
    "attention.layer_norm_epsilon",
    // The purpose of the scaling, not the scaling itself.
    "rope.scaling.finetuned",
    "tensor_data_layout",
];

/// Keys, without the name of the architecture, with their neutral value. Zero, false, an empty text
/// and a list of zeros are neutral too, except that attention without `causal` is refused.
const NEUTRAL: &[(&str, f64)] = &[
    ("attention.causal", 1.0),
    ("attention.output_scale", 1.0),
    ("embedding_scale", 1.0),
    ("logit_scale", 1.0),
    ("residual_scale", 1.0),
    ("rope.scaling.yarn_ext_factor", 1.0),
];

/// The keys of one architecture.
pub(super) struct Keys<'a> {
    pub(super) files: &'a TensorFiles,
    /// llama.cpp's name of the architecture.
    pub(super) model: &'static str,
}

impl Keys<'_> {
    /// The full name of a key.
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.model)
    }

    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> LmError {
        fault(self.files, &self.name(key), message)
    }

    /// A number; null if there is none.
    pub(super) fn number(&self, key: &str) -> Value {
        match self.files.keys().get(&self.name(key)) {
            Some(GgufValue::Int(value)) => i64::try_from(*value).map_or(Value::Null, Value::from),
            Some(GgufValue::Float(value)) => Value::from(*value),
            // A list with a number for each layer, all equal.
            Some(GgufValue::Numbers(numbers)) => match uniform(numbers) {
                Some(number) if number.fract() == 0.0 => Value::from(number as i64),
                Some(number) => Value::from(number),
                None => Value::Null,
            },
            _ => Value::Null,
        }
    }

    /// The shortest decimal number that rounds to the stored f32, as it was written.
    pub(super) fn real(&self, key: &str) -> Option<f64> {
        let value = self.number(key).as_f64()?;
        let written = (value as f32).to_string().parse::<f64>().ok();
        written.filter(|written| *written != 0.0).or(Some(value))
    }

    pub(super) fn needed(&self, key: &str) -> Result<Value, LmError> {
        match self.number(key) {
            Value::Null => Err(self.error(key, "is missing")),
            value => Ok(value),
        }
    }

    /// Width of a head: what the file says, else the embedding's width over the heads, whatever a
    /// family's configurations leave out.
    pub(super) fn head_dim(&self) -> Value {
        let written = self.number("attention.key_length");
        let size = |key: &str| self.number(key).as_u64().unwrap_or(0);
        let implied = size("embedding_length").checked_div(size("attention.head_count"));
        match (written, implied) {
            (Value::Null, Some(implied)) => implied.into(),
            (written, _) => written,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.files.keys().get(&self.name(key)) {
            Some(GgufValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Refuses keys that may change numbers and are not read, keys that are read and differ from
    /// layer to layer, files of other things than models, and [heads](Self::check_heads) that are
    /// not supported.
    pub(super) fn check(&self) -> Result<(), LmError> {
        let prefix = self.name("");
        for (name, value) in self.files.keys() {
            let Some(key) = name.strip_prefix(&prefix) else {
                continue;
            };
            let neutral = NEUTRAL.iter().find(|(known, _)| *known == key);
            let nothing = match value {
                GgufValue::Int(0) | GgufValue::Bool(false) => key != "attention.causal",
                GgufValue::Int(value) => neutral.is_some_and(|(_, one)| *value as f64 == *one),
                GgufValue::Float(value) => {
                    *value == 0.0 || neutral.is_some_and(|(_, one)| value == one)
                }
                GgufValue::Bool(true) => neutral.is_some(),
                GgufValue::Text(text) => text.is_empty(),
                GgufValue::Numbers(numbers) => numbers.iter().all(|number| *number == 0.0),
                _ => false,
            };
            let number = match value {
                GgufValue::Int(_) | GgufValue::Float(_) => true,
                GgufValue::Numbers(numbers) => {
                    uniform(numbers).is_some() || key == "attention.sliding_window_pattern"
                }
                GgufValue::Text(_) => key == "rope.scaling.type",
                _ => false,
            };
            if READ.contains(&key) && !number {
                let message = format!(
                    "{} is not read, only one number for all layers",
                    shown(value)
                );
                return Err(fault(self.files, name, message));
            }
            if !READ.contains(&key) && !HARMLESS.contains(&key) && !nothing {
                let message = format!(
                    "is not understood (its value is {}) and may change what the model computes",
                    shown(value)
                );
                return Err(fault(self.files, name, message));
            }
        }
        let kind = match self.files.keys().get("general.type") {
            Some(GgufValue::Text(kind)) => kind.as_str(),
            _ => "model",
        };
        match kind {
            "model" => self.check_heads(),
            other => {
                let message = format!("`{other}`: the file is no model");
                Err(fault(self.files, "general.type", message))
            }
        }
    }

    /// Refuses heads whose values or rotated part are not as wide as their keys, and scores with
    /// another scale than one over the root of that width.
    fn check_heads(&self) -> Result<(), LmError> {
        let count = self.number("attention.head_count").as_u64();
        let width = self.number("embedding_length").as_u64();
        let implied = width.zip(count).and_then(|(w, n)| w.checked_div(n));
        let Some(head) = self.number("attention.key_length").as_u64().or(implied) else {
            // A missing key is reported by its reader.
            return Ok(());
        };
        for key in ["attention.value_length", "rope.dimension_count"] {
            if let Some(found) = self.number(key).as_u64().filter(|found| *found != head) {
                let message = format!("{found} is not the width of a head, which is {head}");
                return Err(self.error(key, message));
            }
        }
        let scale = self.real("attention.scale").filter(|scale| *scale != 0.0);
        if let Some(scale) = scale
            && (scale * (head as f64).sqrt() - 1.0).abs() > 1e-5
        {
            let message = format!("{scale} is not one over the root of a head's width, {head}");
            return Err(self.error("attention.scale", message));
        }
        Ok(())
    }

    /// The scaling of the rotation in the format of `config.json`.
    pub(super) fn scaling(&self) -> Result<Option<Value>, LmError> {
        let factor = self.real("rope.scaling.factor").filter(|x| *x != 0.0);
        let factor = factor.or(self.real("rope.scale_linear").filter(|x| *x != 0.0));
        // Without a type, llama.cpp takes a factor for a linear one.
        let kind = self.text("rope.scaling.type").unwrap_or("linear");
        let attention = ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"]
            .map(|key| self.real(key).filter(|x| *x != 0.0).unwrap_or(1.0));
        let attention = attention[0] * attention[1];
        if kind != "yarn" && attention != 1.0 {
            let message =
                format!("{attention} is read for the scaling yarn only, not for `{kind}`");
            return Err(self.error("rope.scaling.attn_factor", message));
        }
        match (kind, factor) {
            ("none", _) | ("linear", None) => Ok(None),
            ("linear", Some(factor)) => {
                Ok((factor != 1.0).then(|| json!({ "rope_type": "linear", "factor": factor })))
            }
            ("yarn", None) => Err(self.error("rope.scaling.factor", "is missing")),
            ("yarn", Some(factor)) => {
                let mut yarn = json!({
                    "rope_type": "yarn",
                    "factor": factor,
                    "original_max_position_embeddings":
                        self.number("rope.scaling.original_context_length"),
                    "attention_factor": attention * (1.0 + 0.1 * factor.max(1.0).ln()),
                });
                for (key, theirs) in [
                    ("beta_fast", "yarn_beta_fast"),
                    ("beta_slow", "yarn_beta_slow"),
                ] {
                    if let Some(turns) = self.real(&format!("rope.scaling.{theirs}")) {
                        yarn[key] = turns.into();
                    }
                }
                Ok(Some(yarn))
            }
            (other, _) => {
                let message =
                    format!("`{other}` is not read from GGUF (none, linear and yarn are)");
                Err(self.error("rope.scaling.type", message))
            }
        }
    }

    /// Writes the windows of a Gemma 3, their rotation and the soft cap of its logits in the format
    /// of `config.json`. Refuses these keys for other models, except for a window that no context
    /// exceeds.
    pub(super) fn windows(&self, json: &mut Value) -> Result<(), LmError> {
        let context = self.number("context_length").as_u64();
        if self.model != "gemma3" {
            for key in [
                "attention.sliding_window",
                "final_logit_softcapping",
                "rope.freq_base_swa",
            ] {
                let found = self.number(key).as_f64().filter(|x| *x != 0.0);
                let wide = key == "attention.sliding_window"
                    && found.zip(context).is_some_and(|(x, most)| x >= most as f64);
                if let Some(found) = found.filter(|_| !wide) {
                    let message = format!("{found} is not read for `{}`", self.model);
                    return Err(self.error(key, message));
                }
            }
            return Ok(());
        }
        json["sliding_window"] = self.needed("attention.sliding_window")?;
        if let Some(base) = self.real("rope.freq_base_swa") {
            json["rope_local_base_freq"] = base.into();
        }
        if let Some(cap) = self.real("final_logit_softcapping").filter(|x| *x != 0.0) {
            json["final_logit_softcapping"] = cap.into();
        }
        match self
            .files
            .keys()
            .get(&self.name("attention.sliding_window_pattern"))
        {
            None => {}
            Some(GgufValue::Int(period)) => {
                json["sliding_window_pattern"] = i64::try_from(*period).unwrap_or(-1).into();
            }
            Some(GgufValue::Numbers(layers)) => {
                let kind = |windowed: &f64| match *windowed {
                    0.0 => "full_attention",
                    _ => "sliding_attention",
                };
                json["layer_types"] = layers.iter().map(kind).collect();
            }
            Some(other) => {
                let message = format!("{} is no period", shown(other));
                return Err(self.error("attention.sliding_window_pattern", message));
            }
        }
        Ok(())
    }

    /// Tokens that end an answer: ends of a text, of a turn, of a message.
    pub(super) fn ends(&self) -> Value {
        let names = ["eos_token_id", "eot_token_id", "eom_token_id"];
        let ids = names.map(|name| self.token(name));
        ids.into_iter().filter(|id| !id.is_null()).collect()
    }

    /// A token by the name of its key; null if there is none.
    pub(super) fn token(&self, name: &str) -> Value {
        match self.files.keys().get(&format!("tokenizer.ggml.{name}")) {
            Some(GgufValue::Int(id)) => u32::try_from(*id).map_or(Value::Null, Value::from),
            _ => Value::Null,
        }
    }
}

/// The number that all entries of a list have; `None` if they differ.
fn uniform(numbers: &[f64]) -> Option<f64> {
    let first = numbers.first()?;
    numbers.iter().all(|other| other == first).then_some(*first)
}

/// Text of a value, for messages.
fn shown(value: &GgufValue) -> String {
    match value {
        GgufValue::Int(value) => value.to_string(),
        GgufValue::Float(value) => value.to_string(),
        GgufValue::Bool(value) => value.to_string(),
        GgufValue::Text(text) => format!("{:?}", text.chars().take(100).collect::<String>()),
        GgufValue::Numbers(numbers) => format!("a list of {} numbers", numbers.len()),
        _ => "a list of texts".to_owned(),
    }
}

/// An error of a key of the model's first file.
pub(crate) fn fault(files: &TensorFiles, key: &str, message: impl Into<String>) -> LmError {
    LmError::Config {
        path: files.paths().next().unwrap_or("".as_ref()).to_owned(),
        key: key.to_owned(),
        message: message.into(),
    }
}
