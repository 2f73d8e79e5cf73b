//! Draft length: policies, their keys and the costs they weigh.

use std::sync::Arc;

use adaptive_draft::{
    AcceptanceStop, Confidence, Costs, EntropyBound, Head, Heuristic, Plan, PolicyError, Score,
    Throughput,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec_decode::{ConstantLength, DraftPolicy};

use super::{DecodeConfig, Wrong, wrong};

/// How the draft length follows acceptance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Always `k`, as in the paper's Table 1.
    #[default]
    Constant,
    /// Two more after a draft accepted whole, one less otherwise, between 1 and 2 `k`.
    Heuristic,
    /// At most `k`, ended early by the drafter's own probability.
    Confidence,
    /// At most `k`, ended early by the drafter's entropy (AdaEDL).
    Entropy,
    /// At most `k`, ended early by an acceptance head (Eq. 5-7).
    Head,
    /// At most `k`, as long as one more token raises the expected tokens per second.
    Throughput,
}

/// What the parts of a round cost, in steps of the target.
///
/// `omnidraft costs` measures them; the defaults are those of this repository's padded models on a
/// processor with two threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CostsConfig {
    /// A draft of 1, 2, 3, ... tokens, none less than the one before; longer drafts follow the last
    /// two in a line.
    pub draft: Vec<f64>,
    /// One target forward over 1, 2, 3, ... positions, the first above 0 and none less than the one
    /// before; longer ones follow the last two in a line.
    pub verify: Vec<f64>,
    /// Every round besides, 0 or more.
    pub round: f64,
    /// Whether to go over to what rounds are found to take while running. Such a run follows the
    /// machine: it cannot be repeated to the token, but at temperature 0.
    pub measured: bool,
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
            measured: false,
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

/// Scale of the drafter's entropy, in nats, under `policy = "entropy"`.
const ENTROPY_SCALE: f64 = 0.2;
/// On the stream, one of this many rounds of `policy = "throughput"` and of lookups drafts whatever is predicted, so
/// that the rule learns of it.
pub const EXPLORE: usize = 8;

impl DecodeConfig {
    /// Tokens of the longest draft that the policy may make.
    pub fn longest(&self) -> usize {
        match self.policy {
            PolicyName::Heuristic => 2 * self.k,
            _ => self.k,
        }
    }

    /// Whether the policy reads an acceptance head.
    pub fn reads_head(&self) -> bool {
        match self.policy {
            PolicyName::Head => true,
            PolicyName::Throughput => self.score == Score::Head,
            _ => false,
        }
    }

    /// A fresh policy, as every response starts with. `head` and `plan` are what the policies of
    /// that name follow; `streamed` is whether something is learnt from the response.
    ///
    /// # Errors
    /// Keys out of range; [`MissingPart`](PolicyFault::MissingPart) without the head or the plan.
    pub fn draft_policy<'a>(
        &self,
        head: Option<&'a Head>,
        plan: Option<Arc<Plan>>,
        streamed: bool,
    ) -> Result<Box<dyn DraftPolicy + 'a>, PolicyFault> {
        let k = self.k;
        Ok(match self.policy {
            PolicyName::Constant => Box::new(ConstantLength(k)),
            PolicyName::Heuristic => Box::new(Heuristic::new(k, 1..=self.longest())?),
            PolicyName::Confidence => Box::new(Confidence::new(k, self.threshold)?),
            PolicyName::Entropy => Box::new(EntropyBound::new(k, ENTROPY_SCALE, self.threshold)?),
            PolicyName::Head => {
                let head = head.ok_or(PolicyFault::MissingPart("an acceptance head"))?;
                // On the stream a draft never stops inside a cached n-gram that it could still complete:
                // drafters taught so are the faster ones afterwards.
                Box::new(AcceptanceStop::new(head, k, self.gamma, streamed)?)
            }
            PolicyName::Throughput => {
                let plan = plan.ok_or(PolicyFault::MissingPart("a plan"))?;
                let explore = streamed.then_some(EXPLORE);
                Box::new(Throughput::new(plan, head, explore))
            }
        })
    }

    /// What is wrong with the keys of the policies.
    pub(crate) fn policy_wrongs(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        if !(1..=64).contains(&self.k) {
            wrongs.push(wrong("decode.k", format!("{} is outside 1..=64", self.k)));
        }
        for (key, value) in [("threshold", self.threshold), ("gamma", self.gamma)] {
            if !(0.0..=1.0).contains(&value) {
                let key = format!("decode.{key}");
                wrongs.push(wrong(&key, format!("{value} is outside 0..=1")));
            }
        }
        if let Err(fault) = Costs::from(&self.costs).check() {
            wrongs.push(wrong("decode.costs", fault.to_string()));
        }
        wrongs
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
