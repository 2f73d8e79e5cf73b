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

/// A policy by which the draft length follows acceptance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Constant `k`, as in the paper's Table 1.
    #[default]
    Constant,
    /// Plus two after a draft that is accepted in full, otherwise minus one; between 1 and 2 `k`.
    Heuristic,
    /// Up to `k`, stopped early by the drafter's own probability.
    Confidence,
    /// Up to `k`, stopped early by the drafter's entropy (AdaEDL).
    Entropy,
    /// Up to `k`, stopped early by an acceptance head (Eq. 5-7).
    Head,
    /// Up to `k`, for as long as one more token raises the expected tokens per second.
    Throughput,
}

/// Costs of the parts of a round, in target steps.
///
/// `omnidraft costs` measures them; the defaults are those of this repository's padded models on a
/// processor with two threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CostsConfig {
    /// Costs of drafts of 1, 2, 3, ... tokens, not decreasing; those of longer drafts are
    /// extrapolated from the last two.
    pub draft: Vec<f64>,
    /// Costs of one target forward over 1, 2, 3, ... positions, the first above 0, not decreasing;
    /// those of more positions are extrapolated from the last two.
    pub verify: Vec<f64>,
    /// Cost of everything else in a round, at least 0.
    pub round: f64,
    /// Replaces these costs by times measured before an arm's first answer, if the target is live,
    /// and during the run. Such a run depends on the machine: it can be reproduced exactly only at
    /// temperature 0.
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
/// On the stream, one of this many rounds of `policy = "throughput"` and of lookups drafts more
/// tokens than is predicted to be fastest, so that the predictor sees their acceptance.
pub const EXPLORE: usize = 8;

impl DecodeConfig {
    /// Maximum number of tokens of a draft under the policy.
    pub fn longest(&self) -> usize {
        match self.policy {
            PolicyName::Heuristic => 2 * self.k,
            _ => self.k,
        }
    }

    /// True if the policy reads an acceptance head.
    pub fn reads_head(&self) -> bool {
        match self.policy {
            PolicyName::Head => true,
            PolicyName::Throughput => self.score == Score::Head,
            _ => false,
        }
    }

    /// A new policy for one response. `head` and `plan` are used by the policies of these names;
    /// `streamed` is true if something is learned from the response.
    ///
    /// # Errors
    /// Keys out of range; [`MissingPart`](PolicyFault::MissingPart) if the head or the plan is
    /// missing.
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
                // On the stream a draft never stops inside a cached n-gram that it could still
                // complete: drafters taught so are the faster ones afterwards.
                Box::new(AcceptanceStop::new(head, k, self.gamma, streamed)?)
            }
            PolicyName::Throughput => {
                let plan = plan.ok_or(PolicyFault::MissingPart("a plan"))?;
                let explore = streamed.then_some(EXPLORE);
                Box::new(Throughput::new(plan, head, explore))
            }
        })
    }

    /// The invalid keys of the policies, each with its error.
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

/// An error of a policy that cannot be constructed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFault {
    /// Keys are out of range.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The head or the plan is missing.
    #[error("the draft policy needs {0}, and there is none")]
    MissingPart(&'static str),
}
