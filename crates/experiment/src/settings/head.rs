//! `[head]`: acceptance heads.

use std::path::PathBuf;

use adaptive_draft::HeadConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Scope, Wrong, wrong};

/// The acceptance head, which predicts if a draft token will be accepted (Eq. 5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeadOptions {
    /// Training of the head. It is trained even if `decode.policy` does not read it.
    pub training: HeadTraining,
    /// Granularity of the heads.
    pub per: Scope,
    /// The drafter that makes its examples: labels min(1, p / q') and features.
    pub labels: HeadLabels,
    /// Number of optimizer steps each time the head is trained, at least 1.
    pub steps: usize,
    /// Checkpoint of a trained head (`omnidraft head`) to start from; relative to the working
    /// directory.
    pub path: Option<PathBuf>,
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self {
            training: HeadTraining::None,
            per: Scope::Target,
            labels: HeadLabels::Current,
            steps: HeadConfig::default().steps,
            path: None,
        }
    }
}

/// The training of an acceptance head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeadTraining {
    /// No head.
    #[default]
    None,
    /// Trained with every distillation step, on the examples since the last one (Algorithm 3);
    /// every `learn.every` prompts if the drafter does not learn ("adapt only").
    Joint,
    /// Trained after every prompt without a distillation step, on a batch from the buffer R
    /// (Algorithm 4).
    Interleaved,
    /// Read from `head.path`, and not trained.
    Offline,
}

/// The drafter that makes a head's examples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeadLabels {
    /// The drafter as it is when the head is trained (Algorithms 3 and 4), which runs on every
    /// draft of the batch again.
    #[default]
    Current,
    /// The drafter as it was when it drafted.
    Recorded,
}

impl HeadTraining {
    /// True if the head is trained on the stream.
    pub fn is_online(self) -> bool {
        matches!(self, Self::Joint | Self::Interleaved)
    }
}

impl HeadOptions {
    /// The trainer's settings.
    pub fn settings(&self) -> HeadConfig {
        HeadConfig {
            steps: self.steps,
            ..HeadConfig::default()
        }
    }

    /// The invalid keys, each with its error.
    pub(crate) fn wrongs(&self) -> Vec<Wrong> {
        let none = (self.steps == 0).then(|| wrong("head.steps", "must be at least 1"));
        none.into_iter().collect()
    }
}
