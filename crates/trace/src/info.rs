//! Metadata of a trace, stored as JSON under the key [`INFO_KEY`] of the parquet file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::TraceError;

/// Key of the parquet metadata.
pub const INFO_KEY: &str = "omnidraft.trace";

/// Version of the file format.
pub const FORMAT: u32 = 1;

/// Default number of tokens recorded after an answer that the limit cut. It is as large as the
/// longest draft of a round: 64 looked-up tokens and some drafted ones.
pub const DEFAULT_TAIL: usize = 72;

/// Largest vocabulary size and largest text length. A file that claims more is damaged.
const MOST: usize = 1 << 24;

/// Everything about a trace but its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInfo {
    /// Version of the format: [`FORMAT`].
    pub format: u32,
    /// Origin of the answers.
    pub source: Source,
    /// Task, as in a data directory.
    pub task: String,
    /// `train` or `test`.
    pub split: String,
    /// SHA-256 of `tokenizer.json`, hexadecimal.
    pub tokenizer_sha256: String,
    /// Template that prompts were put into.
    pub template: Template,
    /// Largest number of tokens of a prompt, template included.
    pub max_prompt_tokens: usize,
    /// Vocabulary size: rows of the target's head.
    pub vocab_size: usize,
    /// Largest number of tokens in the target's context.
    pub context: usize,
    /// Tokens that end an answer.
    pub stop: Vec<u32>,
    /// Largest number of tokens of an answer.
    pub max_tokens: usize,
    /// Largest number of tokens recorded after a cut answer.
    pub tail: usize,
    /// K: number of tokens recorded at each position.
    pub top: usize,
    /// Form of the recorded values.
    pub values: Values,
    /// Temperature, always 0: at any other there is no single answer to replay.
    pub temperature: f64,
    /// Program and version that recorded it.
    pub program: String,
}

/// Origin of the answers of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A model's greedy answers.
    Model {
        /// Folder or name of the model.
        name: String,
        /// SHA-256 over its weight files, hexadecimal; empty if they were out of reach (a server).
        sha256: String,
        /// Storage type of weights during the recording, then that of keys and values if not f32.
        weights: String,
    },
    /// Published answers, with a distribution that is built for them. No model is involved.
    ReferenceText {
        /// Field of the records that holds the answer.
        field: String,
        /// Probability of all tokens but the text's own, in `[0, 0.5)`.
        smooth: f64,
        /// Order of the n-gram model over which that probability is spread.
        order: usize,
    },
}

impl Source {
    /// One line for tables: the model's name, or `reference text, no model`.
    pub fn describe(&self) -> String {
        match self {
            Self::Model { name, .. } => name.clone(),
            Self::ReferenceText { .. } => "reference text, no model".to_owned(),
        }
    }
}

/// Template of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// No template: the prompt, with the special tokens that the tokenizer adds.
    Plain,
    /// The tokenizer's chat template.
    Chat,
}

/// Form of the recorded values of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Log-probabilities of the K most probable tokens in f16, and the mass of the others in f32.
    LogProbs,
    /// The logits of the whole vocabulary in f32, exactly as the model gave them.
    Logits,
}

impl TraceInfo {
    /// Checks the metadata without the rows; errors name `path`.
    ///
    /// # Errors
    /// [`TraceError::Metadata`], [`TraceError::Top`].
    pub fn check(&self, path: &Path) -> Result<(), TraceError> {
        let wrong = |message: String| {
            Err(TraceError::Metadata {
                path: path.to_owned(),
                message,
            })
        };
        if self.format != FORMAT {
            let format = self.format;
            return wrong(format!(
                "a trace of format {format}; this program reads {FORMAT}"
            ));
        }
        if self.temperature != 0.0 {
            return wrong(format!(
                "recorded at temperature {}: above 0 an answer is one of many, and which one a drafter meets \
                 depends on what it drafts, so only greedy answers can be replayed",
                self.temperature
            ));
        }
        let bounded = [
            ("vocab_size", self.vocab_size, 1),
            ("top", self.top, 1),
            ("max_prompt_tokens", self.max_prompt_tokens, 1),
            ("max_tokens", self.max_tokens, 1),
            ("tail", self.tail, 0),
        ];
        for (key, value, least) in bounded {
            if !(least..=MOST).contains(&value) {
                return wrong(format!("{key} = {value} is outside {least}..={MOST}"));
            }
        }
        if self.top > self.vocab_size {
            return Err(TraceError::Top {
                top: self.top,
                vocab: self.vocab_size,
            });
        }
        if self.values == Values::Logits && self.top != self.vocab_size {
            return wrong("logits are recorded for the whole vocabulary only".to_owned());
        }
        if let Some(id) = self.stop.iter().find(|id| **id as usize >= self.vocab_size) {
            let vocab = self.vocab_size;
            return wrong(format!(
                "stop token {id} is outside the vocabulary of {vocab}"
            ));
        }
        Ok(())
    }

    /// The first setting in which `other` differs, for a message.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let fields = |info: &Self| match serde_json::to_value(info) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (own, theirs) = (fields(self), fields(other));
        own.iter()
            .find(|(key, value)| theirs.get(*key) != Some(*value))
            .map(|(key, value)| {
                let there = theirs.get(key).cloned().unwrap_or_default();
                format!("{key} was {there} and is {value}")
            })
    }
}
