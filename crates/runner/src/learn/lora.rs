//! `[learn.lora]`: adapters instead of weights.

use lm::{LmConfig, LmError, LoraConfig, Projections};
use serde::{Deserialize, Serialize};

/// Low-rank adaptation of the drafter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoraSettings {
    /// Inner dimension of the adapters; 0 trains all weights.
    pub rank: usize,
    /// Adapters are scaled by `alpha / rank`.
    pub alpha: f64,
    /// Adapted projections: `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj`,
    /// `down_proj`.
    pub projections: Projections,
    /// What has an adapter of its own.
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

/// What has an adapter of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One adapter for everything.
    Run,
    /// Every target, as in the paper.
    Target,
    /// Every task of every target.
    Task,
}

/// Keys of `[learn.lora]` that an arm may set for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoraKeys {
    /// Replaces `learn.lora.rank`.
    pub rank: Option<usize>,
    /// Replaces `learn.lora.alpha`.
    pub alpha: Option<f64>,
    /// Replaces `learn.lora.projections`.
    pub projections: Option<Projections>,
    /// Replaces `learn.lora.per`.
    pub per: Option<Scope>,
}

impl LoraSettings {
    /// These settings with what an arm changes.
    pub fn for_arm(self, keys: LoraKeys) -> Self {
        Self {
            rank: keys.rank.unwrap_or(self.rank),
            alpha: keys.alpha.unwrap_or(self.alpha),
            projections: keys.projections.unwrap_or(self.projections),
            per: keys.per.unwrap_or(self.per),
        }
    }

    /// What the trainer adapts; `None` trains all weights.
    pub fn adapters(&self) -> Option<LoraConfig> {
        (self.rank > 0).then_some(LoraConfig {
            rank: self.rank,
            alpha: self.alpha,
            projections: self.projections,
        })
    }

    /// The adapter in use while `target` is asked prompts of `task`.
    pub fn key(&self, target: &str, task: &str) -> String {
        match (self.rank, self.per) {
            (0, _) | (_, Scope::Run) => String::new(),
            (_, Scope::Target) => target.to_owned(),
            (_, Scope::Task) => format!("{target}/{task}"),
        }
    }

    /// Whether the drafter leaves room for the adapters.
    ///
    /// # Errors
    /// A rank larger than an adapted projection.
    pub fn check(&self, drafter: &LmConfig) -> Result<(), LmError> {
        self.adapters().map_or(Ok(()), |lora| lora.check(drafter))
    }

    /// What is wrong, by key.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            faults.push(format!(
                "learn.lora.alpha = {} must be positive",
                self.alpha
            ));
        }
        if self.rank > 0 && self.projections.is_empty() {
            faults.push("learn.lora.projections names none".into());
        }
        faults
    }
}
