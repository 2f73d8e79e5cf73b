//! The methods a run compares.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use spec_decode::VerifyMode;

/// An arm in a configuration: a preset's name, or its parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArmSpec {
    /// A preset.
    Preset(String),
    /// Parts spelled out.
    Custom(CustomArm),
}

/// An arm by its parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomArm {
    /// Label in tables and figures.
    pub name: String,
    /// How drafts are verified: `paper`, `tli`, `exact` or `slem`.
    pub verify: String,
    /// Whether n-grams are cached and merged.
    #[serde(default)]
    pub cache: bool,
    /// Whether the drafter learns, and from which terms.
    #[serde(default)]
    pub learn: LearnName,
}

/// Loss by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnName {
    /// No learning.
    #[default]
    None,
    /// L_DM alone.
    Direct,
    /// L_DM + lambda L_N-gram.
    Hybrid,
}

/// What an arm learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// L_DM.
    Direct,
    /// L_DM + lambda L_N-gram.
    Hybrid,
}

/// One method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// Label in tables and figures.
    pub name: String,
    /// How drafts are verified; `None` is plain decoding without a drafter.
    pub verify: Option<VerifyMode>,
    /// Whether n-grams are cached and merged.
    pub cache: bool,
    /// Loss, if the drafter learns.
    pub learn: Option<Loss>,
}

impl Arm {
    /// Whether answering a streamed prompt leaves a trace in the arm.
    pub fn changes(&self) -> bool {
        self.cache || self.learn.is_some()
    }
}

/// Presets: the name in configurations, then the arm.
fn presets() -> [(&'static str, Arm); 5] {
    let arm = |name: &str, verify, cache, learn| Arm {
        name: name.to_owned(),
        verify,
        cache,
        learn,
    };
    let (tli, paper) = (Some(VerifyMode::Tli), Some(VerifyMode::Paper));
    [
        ("autoregressive", arm("autoregressive", None, false, None)),
        ("SpD_DM", arm("SpD_DM", tli, false, None)),
        ("N-gram_pp", arm("+ N-gram_pp", paper, true, None)),
        ("L_DM", arm("L_DM", tli, false, Some(Loss::Direct))),
        (
            "L_DM+L_N-gram",
            arm("L_DM + λ L_N-gram", paper, true, Some(Loss::Hybrid)),
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
                let verify: VerifyMode = parts
                    .verify
                    .parse()
                    .map_err(|e| anyhow::anyhow!("arms: `{}`: verify: {e}", parts.name))?;
                if parts.cache && matches!(verify, VerifyMode::Tli | VerifyMode::Slem) {
                    bail!(
                        "arms: `{}`: verify = \"{verify}\" does not merge n-grams; cache must be false",
                        parts.name
                    );
                }
                let learn = match parts.learn {
                    LearnName::None => None,
                    LearnName::Direct => Some(Loss::Direct),
                    LearnName::Hybrid => Some(Loss::Hybrid),
                };
                Ok(Arm {
                    name: parts.name.clone(),
                    verify: Some(verify),
                    cache: parts.cache,
                    learn,
                })
            }
        }
    }
}
