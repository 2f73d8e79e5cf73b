//! `[learn.lora]`: adapters instead of weights.

use lm::Projections;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Wrong, wrong};

/// Low-rank adaptation (LoRA) of the drafter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraSettings {
    /// Rank of the adapters, which `learn.blocks` restricts to the last blocks; 0 trains weights.
    pub rank: usize,
    /// Adapters are scaled by `alpha / rank`; above 0.
    pub alpha: f64,
    /// Adapted projections: `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj`,
    /// `down_proj`.
    #[schemars(with = "Vec<String>")]
    pub projections: Projections,
    /// Granularity of the adapters.
    pub per: Scope,
}

impl Default for LoraSettings {
    fn default() -> Self {
        Self {
            rank: 0,
            alpha: 32.0,
            projections: Projections::ALL,
            per: Scope::Target,
        }
    }
}

/// Granularity of adapters or acceptance heads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One for the whole run.
    Run,
    /// One for each target, as in the paper.
    #[default]
    Target,
    /// One for each task of each target.
    Task,
}

impl Scope {
    /// Name of the adapter or head for `target` and prompts of `task`.
    pub fn key(self, target: &str, task: &str) -> String {
        match self {
            Self::Run => String::new(),
            Self::Target => target.to_owned(),
            Self::Task => format!("{target}/{task}"),
        }
    }
}

impl LoraSettings {
    /// Name of the adapter for `target` and prompts of `task`.
    pub fn key(&self, target: &str, task: &str) -> String {
        match self.rank {
            0 => String::new(),
            _ => self.per.key(target, task),
        }
    }

    pub(super) fn wrongs(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            let message = format!("{} must be positive", self.alpha);
            wrongs.push(wrong("learn.lora.alpha", message));
        }
        if self.rank > 0 && self.projections.is_empty() {
            wrongs.push(wrong("learn.lora.projections", "names none"));
        }
        wrongs
    }
}
