//! `[head]`: acceptance heads.

use std::path::PathBuf;

use adaptive_draft::HeadConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Scope, Wrong, wrong};

/// The acceptance head: predicts whether a draft token will be accepted (Eq. 5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeadOptions {
    /// How it comes about. It is trained whether `decode.policy` reads it or not.
    pub training: HeadTraining,
    /// What has a head of its own.
    pub per: Scope,
    /// By which drafter its examples are made: labels min(1, p / q') and features.
    pub labels: HeadLabels,
    /// Steps of every turn of training, at least 1.
    pub steps: usize,
    /// Whether proposals after the first rejected one are examples too.
    pub unjudged: bool,
    /// A head trained before (`omnidraft head`), to start from; relative to the working directory.
    pub path: Option<PathBuf>,
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self {
            training: HeadTraining::None,
            per: Scope::Target,
            labels: HeadLabels::Current,
            steps: HeadConfig::default().steps,
            unjudged: false,
            path: None,
        }
    }
}

/// How an acceptance head comes about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeadTraining {
    /// There is none.
    #[default]
    None,
    /// With every distillation step, on what came in since the last one (Algorithm 3); every
    /// `learn.every` prompts where the drafter does not learn ("adapt only").
    Joint,
    /// After every prompt without a distillation step, on a batch from the buffer R (Algorithm 4).
    Interleaved,
    /// As `head.path` holds it.
    Offline,
}

/// By which drafter a head's examples are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeadLabels {
    /// By the drafter as it is when the head is trained (Algorithms 3 and 4), which reads every
    /// draft of the batch again.
    #[default]
    Current,
    /// By the drafter that drafted.
    Recorded,
}

impl HeadTraining {
    /// Whether the stream trains it.
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

    /// The faults of these keys.
    pub(crate) fn wrongs(&self) -> Vec<Wrong> {
        let none = (self.steps == 0).then(|| wrong("head.steps", "must be at least 1"));
        none.into_iter().collect()
    }
}
