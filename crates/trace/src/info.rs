//! What a trace says of itself, as JSON under the key [`INFO_KEY`] of the parquet file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::TraceError;

/// Key of the parquet metadata.
pub const INFO_KEY: &str = "omnidraft.trace";

/// Version of the layout.
pub const FORMAT: u32 = 1;

/// Tokens recorded behind an answer that the limit cut: as many as a round may propose (64 looked-up
/// tokens and some drafted ones).
pub const DEFAULT_TAIL: usize = 72;

/// Most tokens of a vocabulary, and of a text. A file that says more is damaged.
const MOST: usize = 1 << 24;

/// Everything about a trace but its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInfo {
    /// [`FORMAT`].
    pub format: u32,
    /// Whose answers these are.
    pub source: Source,
    /// Task, as in a data directory.
    pub task: String,
    /// `train` or `test`.
    pub split: String,
    /// SHA-256 of `tokenizer.json`, hexadecimal.
    pub tokenizer_sha256: String,
    /// The words around a prompt.
    pub template: Template,
    /// Most tokens of a prompt, template included.
    pub max_prompt_tokens: usize,
    /// Rows of the target's head.
    pub vocab_size: usize,
    /// Most tokens that the target reads.
    pub context: usize,
    /// Tokens that end an answer.
    pub stop: Vec<u32>,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Most tokens recorded behind a cut answer.
    pub tail: usize,
    /// K: tokens recorded at each position.
    pub top: usize,
    /// What is recorded of them.
    pub values: Values,
    /// 0: anything else has no single answer to replay.
    pub temperature: f64,
    /// Program and version that recorded it.
    pub program: String,
}

/// Whose answers a trace holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A model.
    Model {
        /// Folder or name.
        name: String,
        /// SHA-256 over its weight files, hexadecimal; empty where they were out of reach (a server).
        sha256: String,
        /// Storage of its weights while it was recorded.
        weights: String,
    },
    /// Answers that people wrote, with a law made for them: no model.
    ReferenceText {
        /// Field of the records.
        field: String,
        /// Probability that is not on the token of the text.
        smooth: f64,
        /// Order of the n-gram model it is given to.
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

/// The words around a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// None: the prompt, with what the tokenizer adds.
    Plain,
    /// The tokenizer's chat template.
    Chat,
}

/// What is recorded of a position's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Log-probabilities of the K most probable tokens in f16, and the mass of the others in f32.
    LogProbs,
    /// The logits of the whole vocabulary in f32, as the model gave them.
    Logits,
}

impl TraceInfo {
    /// Checks what does not depend on rows; `path` is named in errors.
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
            ("vocab_size", self.vocab_size),
            ("top", self.top),
            ("max_prompt_tokens", self.max_prompt_tokens),
            ("max_tokens", self.max_tokens),
        ];
        for (key, value) in bounded {
            if value == 0 || value > MOST {
                return wrong(format!("{key} = {value} is outside 1..={MOST}"));
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
