//! The methods a run compares.

use anyhow::{Result, anyhow, bail};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use spec_decode::VerifyMode;

use crate::config::{CacheOptions, DraftKeys, HeadTraining, PolicyName, RunConfig, ScoreName};
use crate::learn::{LearnName, LearnSpec, ObjectiveName};

/// Names the drafter without a model, among the names of verification modes.
const LOOKUP: &str = "prompt-lookup";

/// A verification mode by name, and whether drafts are looked up instead of drafted by a model.
///
/// # Errors
/// An unknown name, with the known ones.
pub fn parse_verify(name: &str) -> Result<(VerifyMode, bool)> {
    if name == LOOKUP {
        return Ok((VerifyMode::Tli, true));
    }
    match name.parse() {
        Ok(mode) => Ok((mode, false)),
        Err(_) => {
            let modes = VerifyMode::ALL.map(VerifyMode::name).join(", ");
            bail!("unknown verification mode `{name}` (one of {modes}, {LOOKUP})")
        }
    }
}

/// An arm in a configuration: a preset's name, or its parts.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum ArmSpec {
    /// A preset.
    Preset(String),
    /// Parts spelled out.
    Custom(Box<CustomArm>),
}

/// By hand, because an untagged enum forgets what was wrong with a table.
impl<'de> Deserialize<'de> for ArmSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ArmSpec;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of an arm or a table of its parts")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<ArmSpec, E> {
                Ok(ArmSpec::Preset(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ArmSpec, A::Error> {
                let arm = CustomArm::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ArmSpec::Custom(Box::new(arm)))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// An arm by its parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomArm {
    /// Label in tables and figures.
    pub name: String,
    /// How drafts are verified: `paper`, `tli`, `exact` or `slem`; or `prompt-lookup`, which drafts
    /// from the context instead of by the drafter.
    pub verify: String,
    /// Whether n-grams are cached and merged; a table of keys of `cache` bounds this arm's.
    #[serde(default)]
    pub cache: CacheSpec,
    /// Whether the drafter learns, and from which terms.
    #[serde(default)]
    pub learn: LearnSpec,
    /// Held-out prompts are answered with the drafter, the n-grams and the acceptance head of this
    /// arm, by name; the stream is left to it.
    #[serde(default)]
    pub learnt_by: Option<String>,
    /// Replaces `decode.k`.
    #[serde(default)]
    pub k: Option<usize>,
    /// Replaces `decode.policy`.
    #[serde(default)]
    pub policy: Option<PolicyName>,
    /// Replaces `decode.threshold`.
    #[serde(default)]
    pub threshold: Option<f64>,
    /// Replaces `decode.gamma` and that of the segment.
    #[serde(default)]
    pub gamma: Option<f64>,
    /// Replaces `decode.score`.
    #[serde(default)]
    pub score: Option<ScoreName>,
    /// How its acceptance head is trained: `none`, `joint`, `interleaved` or `offline`. It is
    /// trained whether the policy reads it or not.
    #[serde(default)]
    pub head: HeadTraining,
}

/// The n-gram cache of an arm: whether there is one, or its limits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CacheSpec {
    /// As `[cache]` says, or none.
    Used(bool),
    /// With limits of its own.
    Bounded(CacheOptions),
}

impl Default for CacheSpec {
    fn default() -> Self {
        Self::Used(false)
    }
}

/// By hand, because an untagged enum forgets what was wrong with a table.
impl<'de> Deserialize<'de> for CacheSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = CacheSpec;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or a table of keys of `cache`")
            }

            fn visit_bool<E: serde::de::Error>(self, used: bool) -> Result<CacheSpec, E> {
                Ok(CacheSpec::Used(used))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CacheSpec, A::Error> {
                let options = CacheOptions::deserialize(MapAccessDeserializer::new(map))?;
                Ok(CacheSpec::Bounded(options))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// One method.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Label in tables and figures.
    pub name: String,
    /// How drafts are verified; `None` is plain decoding without a drafter.
    pub verify: Option<VerifyMode>,
    /// Whether drafts are looked up in the context, in the target's own tokens, without the drafter.
    pub lookup: bool,
    /// Whether n-grams are cached and merged.
    pub cache: bool,
    /// Replaces the limits of `[cache]`.
    pub bounds: Option<CacheOptions>,
    /// What it learns, if it does.
    pub learn: Option<LearnSpec>,
    /// The arm whose drafter, n-grams and head it uses on held-out prompts, instead of its own.
    pub learnt_by: Option<String>,
    /// How long it drafts.
    pub draft: DraftKeys,
    /// How its acceptance head is trained.
    pub head: HeadTraining,
}

impl Arm {
    /// Whether answering a streamed prompt leaves a trace in the arm.
    pub fn changes(&self) -> bool {
        let estimates = self.draft.policy == Some(PolicyName::Throughput);
        let adapts = self.head.is_online() || estimates;
        self.learnt_by.is_none() && (self.cache || self.learn.is_some() || adapts)
    }

    /// What is wrong with it beside the other arms of a run.
    pub fn faults(&self, all: &[Arm], config: &RunConfig) -> Vec<String> {
        let mut faults = self.draft_faults(all, config);
        if let Some(spec) = self.learn {
            let learn = config.learn.for_arm(spec);
            faults.extend(learn.faults());
            faults.extend(learn.terms().err().map(|e| e.to_string()));
            if self.lookup {
                faults.push("prompt-lookup has no drafter that could learn".into());
            }
            if self.verify == Some(VerifyMode::Slem) && learn.objective != ObjectiveName::Alm {
                faults.push("slem has no direct positions to learn from".into());
            }
        }
        if let Some(name) = &self.learnt_by {
            match all.iter().find(|arm| arm.name == *name) {
                None => faults.push(format!("learnt_by: there is no arm `{name}`")),
                Some(lender) if !lender.changes() => {
                    faults.push(format!("learnt_by: `{name}` neither learns nor caches"));
                }
                Some(lender) if self.cache && !lender.cache => {
                    faults.push(format!(
                        "learnt_by: `{name}` has no n-grams; cache must be false"
                    ));
                }
                Some(_) => {}
            }
            if self.learn.is_some() || self.lookup {
                faults.push("learnt_by: it neither learns nor looks up itself".into());
            }
            if self.head != HeadTraining::None {
                faults.push("learnt_by: the head is that of the other arm; leave out head".into());
            }
        }
        faults
    }

    /// What is wrong with how long it drafts.
    fn draft_faults(&self, all: &[Arm], config: &RunConfig) -> Vec<String> {
        let decode = config.decode.for_arm(&self.draft, None);
        let mut faults = decode.policy_faults();
        let lender = self.learnt_by.as_ref();
        let lender = lender.and_then(|name| all.iter().find(|arm| arm.name == *name));
        let head = lender.map_or(self.head, |arm| arm.head);
        if self.verify.is_some() && decode.reads_head() && head == HeadTraining::None {
            faults.push("its policy reads an acceptance head, and head = \"none\"".into());
        }
        if head == HeadTraining::Offline && config.head.path.is_none() {
            faults.push("head = \"offline\" needs head.path".into());
        }
        if self.head == HeadTraining::Interleaved && self.learn.is_some() && config.learn.every < 2
        {
            faults.push("head = \"interleaved\" needs learn.every = 2 or more".into());
        }
        let reads = matches!(decode.policy, PolicyName::Head | PolicyName::Throughput);
        if self.lookup && (self.head != HeadTraining::None || reads) {
            faults.push("prompt-lookup has no drafter whose state a policy could read".into());
        }
        faults
    }
}

/// Presets: the name in configurations, then the arm.
fn presets() -> [(&'static str, Arm); 6] {
    let arm = |name: &str, verify, cache, learn| Arm {
        name: name.to_owned(),
        verify,
        lookup: false,
        cache,
        bounds: None,
        learn,
        learnt_by: None,
        draft: DraftKeys::default(),
        head: HeadTraining::None,
    };
    let lookup = Arm {
        lookup: true,
        ..arm(LOOKUP, Some(VerifyMode::Tli), false, None)
    };
    let (tli, paper) = (Some(VerifyMode::Tli), Some(VerifyMode::Paper));
    [
        ("autoregressive", arm("autoregressive", None, false, None)),
        (LOOKUP, lookup),
        ("SpD_DM", arm("SpD_DM", tli, false, None)),
        ("N-gram_pp", arm("+ N-gram_pp", paper, true, None)),
        (
            "L_DM",
            arm(
                "L_DM",
                tli,
                false,
                Some(LearnSpec::Named(LearnName::Direct)),
            ),
        ),
        (
            "L_DM+L_N-gram",
            arm(
                "L_DM + λ L_N-gram",
                paper,
                true,
                Some(LearnSpec::Named(LearnName::Hybrid)),
            ),
        ),
    ]
}

impl ArmSpec {
    /// Looks up the preset or checks the parts.
    ///
    /// # Errors
    /// Names that do not exist, with those that do.
    pub fn resolve(&self) -> Result<Arm> {
        match self {
            Self::Preset(name) => {
                let known = presets();
                let names = known.each_ref().map(|(preset, _)| *preset).join(", ");
                match known.into_iter().find(|(preset, _)| preset == name) {
                    Some((_, arm)) => Ok(arm),
                    None => bail!("arms: there is no preset `{name}` ({names})"),
                }
            }
            Self::Custom(parts) => {
                let (verify, lookup) = parse_verify(&parts.verify)
                    .map_err(|e| anyhow!("arms: `{}`: verify: {e}", parts.name))?;
                let (cache, bounds) = match parts.cache {
                    CacheSpec::Used(cache) => (cache, None),
                    CacheSpec::Bounded(bounds) => (true, Some(bounds)),
                };
                if cache && !verify.uses_cache() {
                    bail!(
                        "arms: `{}`: verify = \"{}\" does not merge n-grams; cache must be false",
                        parts.name,
                        parts.verify
                    );
                }
                let learn =
                    (parts.learn != LearnSpec::Named(LearnName::None)).then_some(parts.learn);
                Ok(Arm {
                    name: parts.name.clone(),
                    verify: Some(verify),
                    lookup,
                    cache,
                    bounds,
                    learn,
                    learnt_by: parts.learnt_by.clone(),
                    draft: DraftKeys {
                        k: parts.k,
                        policy: parts.policy,
                        threshold: parts.threshold,
                        gamma: parts.gamma,
                        score: parts.score,
                    },
                    head: parts.head,
                })
            }
        }
    }
}
