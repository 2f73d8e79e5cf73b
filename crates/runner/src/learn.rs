//! What and how an arm learns: `[learn]` of a run and the `learn` key of an arm.

use anyhow::{Result, bail};
use distill_loss::{DirectLoss, NgramLoss};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

mod lora;

pub use lora::{LoraKeys, LoraSettings, Scope};

/// Online learning (Algorithm 2).
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearnConfig {
    /// Prompts between updates, the paper's I, and the batch size.
    pub every: usize,
    /// Constant learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm.
    pub max_grad_norm: f64,
    /// What arms with `learn = "hybrid"` minimise.
    pub objective: ObjectiveName,
    /// The term at directly mapped tokens.
    pub direct: DirectName,
    /// The term at n-grams.
    pub ngram: NgramName,
    /// Weight of the n-gram term.
    pub lambda: f64,
    /// Share of the target in the mixture of `direct = "jsd"`, in `(0, 1)`.
    pub beta: f64,
    /// Temperature of `objective = "alm"`, positive.
    pub tau: f64,
    /// Earlier lessons that every update learns from once more; 0 for none.
    pub replay: usize,
    /// Latest lessons that `replay` draws from.
    pub replay_window: usize,
    /// Decay of the running mean of weights that decodes, in `0..1`; 0 decodes with the last
    /// weights.
    pub ema: f64,
    /// Whether an update runs on its own thread while decoding goes on with the last weights. From
    /// which prompt on the new weights decode then depends on the machine: such runs do not repeat.
    pub asynchronous: bool,
    /// Adapters instead of weights.
    pub lora: LoraSettings,
}

impl Default for LearnConfig {
    fn default() -> Self {
        Self {
            every: 8,
            lr: 1e-3,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            objective: ObjectiveName::Hybrid,
            direct: DirectName::ReverseKl,
            ngram: NgramName::Nll,
            lambda: distill_loss::PAPER_LAMBDA,
            beta: 0.5,
            tau: 1.0,
            replay: 0,
            replay_window: 64,
            ema: 0.0,
            asynchronous: false,
            lora: LoraSettings::default(),
        }
    }
}

/// Objectives by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveName {
    /// Direct term + lambda n-gram term.
    Hybrid,
    /// Approximate likelihood matching over aligned chunks.
    Alm,
}

/// Direct terms by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectName {
    /// KL(q || p), the paper's.
    ReverseKl,
    /// KL(p || q).
    ForwardKl,
    /// Jensen-Shannon with mixture `beta`.
    Jsd,
    /// Likelihood of the emitted token.
    Nll,
    /// Rejection rate.
    Acceptance,
    /// Negative logarithm of the acceptance rate.
    LogAcceptance,
    /// No direct term.
    None,
}

/// N-gram terms by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NgramName {
    /// Likelihood of the spelling, the paper's.
    Nll,
    /// The same weighted by p(t).
    Pointwise,
    /// KL through Eq. 2.
    ApproximateKl,
    /// No n-gram term.
    None,
}

/// What an arm learns: a name, or overrides of `[learn]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LearnSpec {
    /// By name.
    Named(LearnName),
    /// As `[learn]` says, but for these keys.
    Terms(TermSpec),
}

/// Losses of an arm by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnName {
    /// No learning.
    None,
    /// The direct term alone.
    Direct,
    /// The n-gram term alone.
    Ngram,
    /// What `[learn]` says.
    Hybrid,
    /// Approximate likelihood matching.
    Alm,
}

/// Keys of `[learn]` that an arm may set for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TermSpec {
    /// Replaces `learn.every`.
    pub every: Option<usize>,
    /// Replaces `learn.lr`.
    pub lr: Option<f64>,
    /// Replaces `learn.objective`.
    pub objective: Option<ObjectiveName>,
    /// Replaces `learn.direct`.
    pub direct: Option<DirectName>,
    /// Replaces `learn.ngram`.
    pub ngram: Option<NgramName>,
    /// Replaces `learn.lambda`.
    pub lambda: Option<f64>,
    /// Replaces `learn.beta`.
    pub beta: Option<f64>,
    /// Replaces `learn.tau`.
    pub tau: Option<f64>,
    /// Replaces `learn.replay`.
    pub replay: Option<usize>,
    /// Replaces `learn.replay_window`.
    pub replay_window: Option<usize>,
    /// Replaces `learn.ema`.
    pub ema: Option<f64>,
    /// Replaces `learn.asynchronous`.
    pub asynchronous: Option<bool>,
    /// Replaces keys of `learn.lora`.
    pub lora: LoraKeys,
}

impl Default for LearnSpec {
    fn default() -> Self {
        Self::Named(LearnName::None)
    }
}

/// By hand, because an untagged enum forgets what was wrong with a table.
impl<'de> Deserialize<'de> for LearnSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = LearnSpec;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of a loss or a table of keys of `learn`")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<LearnSpec, E> {
                LearnName::deserialize(StrDeserializer::new(name)).map(LearnSpec::Named)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LearnSpec, A::Error> {
                TermSpec::deserialize(MapAccessDeserializer::new(map)).map(LearnSpec::Terms)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// What a learner minimises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Terms {
    /// `L_DM + lambda L_N-gram`, at least one of them.
    Hybrid {
        /// The direct term.
        direct: Option<DirectLoss>,
        /// The n-gram term.
        ngram: Option<NgramLoss>,
        /// Its weight.
        lambda: f64,
    },
    /// Approximate likelihood matching.
    Alm {
        /// Its temperature.
        tau: f64,
    },
}

impl Terms {
    /// Whether the target's law is wanted where one draft token is one target token.
    pub fn reads_direct_law(self) -> bool {
        matches!(self, Self::Hybrid { direct: Some(direct), .. } if direct.reads_law())
    }

    /// Whether it is wanted where several draft tokens are one target token.
    pub fn reads_ngram_law(self) -> bool {
        matches!(
            self,
            Self::Hybrid {
                ngram: Some(NgramLoss::ApproximateKl),
                ..
            }
        )
    }
}

impl LearnConfig {
    /// These settings with what an arm changes.
    pub fn for_arm(&self, spec: LearnSpec) -> Self {
        let mut own = *self;
        match spec {
            LearnSpec::Named(LearnName::None | LearnName::Hybrid) => {}
            LearnSpec::Named(LearnName::Direct) => {
                (own.objective, own.ngram) = (ObjectiveName::Hybrid, NgramName::None);
            }
            LearnSpec::Named(LearnName::Ngram) => {
                (own.objective, own.direct) = (ObjectiveName::Hybrid, DirectName::None);
            }
            LearnSpec::Named(LearnName::Alm) => own.objective = ObjectiveName::Alm,
            LearnSpec::Terms(keys) => {
                own.every = keys.every.unwrap_or(own.every);
                own.lr = keys.lr.unwrap_or(own.lr);
                own.objective = keys.objective.unwrap_or(own.objective);
                own.direct = keys.direct.unwrap_or(own.direct);
                own.ngram = keys.ngram.unwrap_or(own.ngram);
                own.lambda = keys.lambda.unwrap_or(own.lambda);
                own.beta = keys.beta.unwrap_or(own.beta);
                own.tau = keys.tau.unwrap_or(own.tau);
                own.replay = keys.replay.unwrap_or(own.replay);
                own.replay_window = keys.replay_window.unwrap_or(own.replay_window);
                own.ema = keys.ema.unwrap_or(own.ema);
                own.asynchronous = keys.asynchronous.unwrap_or(own.asynchronous);
                own.lora = own.lora.for_arm(keys.lora);
            }
        }
        own
    }

    /// The losses these settings name.
    ///
    /// # Errors
    /// Neither term is wanted.
    pub fn terms(&self) -> Result<Terms> {
        if self.objective == ObjectiveName::Alm {
            return Ok(Terms::Alm { tau: self.tau });
        }
        let direct = match self.direct {
            DirectName::ReverseKl => Some(DirectLoss::ReverseKl),
            DirectName::ForwardKl => Some(DirectLoss::ForwardKl),
            DirectName::Jsd => Some(DirectLoss::Jsd { beta: self.beta }),
            DirectName::Nll => Some(DirectLoss::Nll),
            DirectName::Acceptance => Some(DirectLoss::Acceptance),
            DirectName::LogAcceptance => Some(DirectLoss::LogAcceptance),
            DirectName::None => None,
        };
        let ngram = match self.ngram {
            NgramName::Nll => Some(NgramLoss::Nll),
            NgramName::Pointwise => Some(NgramLoss::Pointwise),
            NgramName::ApproximateKl => Some(NgramLoss::ApproximateKl),
            NgramName::None => None,
        };
        if direct.is_none() && ngram.is_none() {
            bail!("learn.direct and learn.ngram are both \"none\": nothing to learn from");
        }
        Ok(Terms::Hybrid {
            direct,
            ngram,
            lambda: self.lambda,
        })
    }

    /// What is wrong, by key.
    pub fn faults(&self) -> Vec<String> {
        let numbers = [
            ("lr", self.lr, self.lr >= 0.0, "must be 0 or more"),
            (
                "lambda",
                self.lambda,
                self.lambda >= 0.0,
                "must be 0 or more",
            ),
            (
                "weight_decay",
                self.weight_decay,
                self.weight_decay >= 0.0,
                "must be 0 or more",
            ),
            ("tau", self.tau, self.tau > 0.0, "must be positive"),
            (
                "beta",
                self.beta,
                self.beta > 0.0 && self.beta < 1.0,
                "must be between 0 and 1",
            ),
            (
                "ema",
                self.ema,
                (0.0..1.0).contains(&self.ema),
                "is outside 0..1",
            ),
        ];
        let mut faults: Vec<String> = numbers
            .into_iter()
            .filter(|(_, value, good, _)| !(*good && value.is_finite()))
            .map(|(key, value, _, fault)| format!("learn.{key} = {value} {fault}"))
            .collect();
        faults.extend(self.lora.faults());
        if self.every == 0 {
            faults.push("learn.every must be at least 1".into());
        }
        if self.max_grad_norm.is_nan() || self.max_grad_norm <= 0.0 {
            let norm = self.max_grad_norm;
            faults.push(format!("learn.max_grad_norm = {norm} must be positive"));
        }
        if self.replay > self.replay_window {
            faults.push(format!(
                "learn.replay = {} draws more than learn.replay_window = {} holds",
                self.replay, self.replay_window
            ));
        }
        faults
    }
}
