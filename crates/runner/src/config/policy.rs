//! How long to draft, as data: policies, their keys, costs, the acceptance head.

use std::path::PathBuf;
use std::sync::Arc;

use adaptive_draft::{
    AcceptanceStop, Confidence, Costs, EntropyBound, Head, HeadConfig, Heuristic, Plan,
    PolicyError, Score, Throughput,
};
use serde::{Deserialize, Serialize};
use spec_decode::{ConstantLength, DraftPolicy};

use super::DecodeConfig;

/// Draft length policies by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Always k, as in the paper's Table 1.
    #[default]
    Constant,
    /// Two more after full acceptance, one less otherwise, between 1 and 2k.
    Heuristic,
    /// At most k, ended early by the drafter's own probability.
    Confidence,
    /// At most k, ended early by the drafter's entropy (AdaEDL).
    Entropy,
    /// At most k, ended early by an acceptance head (Eq. 5).
    Head,
    /// At most k, as long as one more token raises the expected tokens per second.
    Throughput,
}

/// What `policy = "throughput"` predicts acceptance from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreName {
    /// An acceptance head.
    #[default]
    Head,
    /// The drafter's own probability.
    Confidence,
    /// The position in the draft.
    Position,
}

impl From<ScoreName> for Score {
    fn from(name: ScoreName) -> Self {
        match name {
            ScoreName::Head => Self::Head,
            ScoreName::Confidence => Self::Confidence,
            ScoreName::Position => Self::Position,
        }
    }
}

/// How an arm's acceptance head comes about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadTraining {
    /// There is none.
    #[default]
    None,
    /// With every distillation step, on what came in since the last one (Algorithm 3); every
    /// `learn.every` prompts where the arm does not learn ("adapt only").
    Joint,
    /// After every prompt without a distillation step, on a batch from the buffer R (Algorithm 4).
    Interleaved,
    /// As `head.path` holds it.
    Offline,
}

impl HeadTraining {
    /// Whether the stream trains it.
    pub fn is_online(self) -> bool {
        matches!(self, Self::Joint | Self::Interleaved)
    }
}

/// Keys of `[decode]` that an arm may set for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DraftKeys {
    /// Replaces `decode.k`.
    pub k: Option<usize>,
    /// Replaces `decode.policy`.
    pub policy: Option<PolicyName>,
    /// Replaces `decode.threshold`.
    pub threshold: Option<f64>,
    /// Replaces `decode.gamma` and that of the segment.
    pub gamma: Option<f64>,
    /// Replaces `decode.score`.
    pub score: Option<ScoreName>,
}

/// `[decode.costs]`: what parts of a round cost, in steps of the target. `omnidraft costs` measures
/// them; the default is the paper's A100 (Table 8), more positions free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CostsConfig {
    /// A draft of 1, 2, 3, ... tokens; longer ones follow the last two in a line.
    pub draft: Vec<f64>,
    /// Target forward over 1, 2, 3, ... positions; longer ones follow the last two in a line.
    pub verify: Vec<f64>,
    /// Every round besides.
    pub round: f64,
}

impl Default for CostsConfig {
    fn default() -> Self {
        let Costs {
            draft,
            verify,
            round,
        } = Costs::default();
        Self {
            draft,
            verify,
            round,
        }
    }
}

impl From<&CostsConfig> for Costs {
    fn from(config: &CostsConfig) -> Self {
        Self {
            draft: config.draft.clone(),
            verify: config.verify.clone(),
            round: config.round,
        }
    }
}

/// `[head]`: shape and training of acceptance heads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadOptions {
    /// Units of the hidden layer; 0 is linear.
    pub hidden: usize,
    /// Constant learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Weight of rejections in the cross-entropy (Eq. 6-7).
    pub reject_weight: f64,
    /// N, most examples of the buffer R.
    pub buffer: usize,
    /// Examples of a step of interleaved training.
    pub batch: usize,
    /// Steps of every turn of training.
    pub steps: usize,
    /// Whether proposals behind the first rejected one are examples too.
    pub unjudged: bool,
    /// A head trained before (`omnidraft head`), to start from.
    pub path: Option<PathBuf>,
}

impl Default for HeadOptions {
    fn default() -> Self {
        let config = HeadConfig::default();
        Self {
            hidden: config.hidden,
            lr: config.lr,
            weight_decay: config.weight_decay,
            reject_weight: config.reject_weight,
            buffer: config.buffer,
            batch: config.batch,
            steps: 1,
            unjudged: false,
            path: None,
        }
    }
}

impl HeadOptions {
    /// The training's settings.
    pub fn training(&self) -> HeadConfig {
        HeadConfig {
            hidden: self.hidden,
            lr: self.lr,
            weight_decay: self.weight_decay,
            reject_weight: self.reject_weight,
            buffer: self.buffer,
            batch: self.batch,
            steps: self.steps,
        }
    }

    /// What is wrong, by key.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (key, value, least) in [
            ("lr", self.lr, 0.0),
            ("weight_decay", self.weight_decay, 0.0),
            ("reject_weight", self.reject_weight, f64::MIN_POSITIVE),
        ] {
            if !(value.is_finite() && value >= least) {
                faults.push(format!("head.{key} = {value} is out of range"));
            }
        }
        if self.buffer == 0 || self.batch == 0 || self.steps == 0 {
            faults.push("head.buffer, head.batch and head.steps must be at least 1".into());
        }
        faults
    }
}

impl DecodeConfig {
    /// These settings with what an arm and, for gamma, a segment changes.
    pub fn for_arm(&self, arm: &DraftKeys, segment_gamma: Option<f64>) -> Self {
        let mut own = self.clone();
        own.k = arm.k.unwrap_or(own.k);
        own.policy = arm.policy.unwrap_or(own.policy);
        own.threshold = arm.threshold.unwrap_or(own.threshold);
        own.gamma = arm.gamma.or(segment_gamma).unwrap_or(own.gamma);
        own.score = arm.score.unwrap_or(own.score);
        own
    }

    /// Whether its policy reads an acceptance head.
    pub fn reads_head(&self) -> bool {
        match self.policy {
            PolicyName::Head => true,
            PolicyName::Throughput => self.score == ScoreName::Head,
            _ => false,
        }
    }

    /// A fresh policy, as every response starts with. `head` and `plan` are what the policies of
    /// that name follow; `explore` is whether it may draft to learn.
    ///
    /// # Errors
    /// Keys out of range; [`MissingPart`](PolicyFault::MissingPart) without the head or the plan.
    pub fn draft_policy<'a>(
        &self,
        head: Option<&'a Head>,
        plan: Option<Arc<Plan>>,
        explore: bool,
    ) -> Result<Box<dyn DraftPolicy + 'a>, PolicyFault> {
        let k = self.k;
        Ok(match self.policy {
            PolicyName::Constant => Box::new(ConstantLength(k)),
            PolicyName::Heuristic => Box::new(Heuristic::new(k, 1..=2 * k)?),
            PolicyName::Confidence => Box::new(Confidence::new(k, self.threshold)?),
            PolicyName::Entropy => {
                let scale = self.entropy_scale;
                Box::new(EntropyBound::new(k, scale, self.threshold)?)
            }
            PolicyName::Head => {
                let head = head.ok_or(PolicyFault::MissingPart("an acceptance head"))?;
                Box::new(AcceptanceStop::new(head, k, self.gamma, self.hold_ngrams)?)
            }
            PolicyName::Throughput => {
                let plan = plan.ok_or(PolicyFault::MissingPart("a plan"))?;
                let explore = (explore && self.explore > 0).then_some(self.explore);
                Box::new(Throughput::new(plan, head, self.hold_ngrams, explore))
            }
        })
    }

    /// What is wrong with the keys of the policies.
    pub(crate) fn policy_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !(1..=64).contains(&self.k) {
            faults.push(format!("decode.k = {} is outside 1..=64", self.k));
        }
        for (key, value) in [("threshold", self.threshold), ("gamma", self.gamma)] {
            if !(0.0..=1.0).contains(&value) {
                faults.push(format!("decode.{key} = {value} is outside 0..=1"));
            }
        }
        if !(self.entropy_scale > 0.0 && self.entropy_scale.is_finite()) {
            let scale = self.entropy_scale;
            faults.push(format!("decode.entropy_scale = {scale} must be positive"));
        }
        if let Err(fault) = Costs::from(&self.costs).check() {
            faults.push(format!("decode.{fault}"));
        }
        faults
    }
}

/// A policy that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFault {
    /// Keys out of range.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// What it follows is not there.
    #[error("the draft policy needs {0}, and there is none")]
    MissingPart(&'static str),
}
