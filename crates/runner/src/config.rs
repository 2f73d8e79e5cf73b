//! The configuration of a run: one TOML file a table or figure, plus `--set key=value`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use lm::WeightType;
use ngram_cache::{CacheConfig, Eviction};
use serde::{Deserialize, Serialize};
use spec_decode::{Sampling, SamplingError, SamplingOptions};

use crate::arm::{Arm, ArmSpec};
use crate::learn::LearnConfig;
use crate::results::Phase;

mod model;
mod policy;

pub use model::{Idle, ModelConfig};
pub use policy::{
    CostsConfig, DraftKeys, HeadOptions, HeadTraining, PolicyFault, PolicyName, ScoreName,
};

/// Everything that determines a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Short name, used for the results folder and in titles.
    pub name: String,
    /// Root seeds; every seed is a full repetition.
    #[serde(default = "default_seeds")]
    pub seeds: Vec<u64>,
    /// Whether every segment starts from fresh arms or the arms live on (drift).
    #[serde(default)]
    pub streams: StreamMode,
    /// Which arms answer the streamed prompts; all of them answer the held-out ones.
    #[serde(default)]
    pub on_stream: OnStream,
    /// Methods to compare, by preset name or as tables.
    pub arms: Vec<ArmSpec>,
    /// Model folders.
    pub models: ModelsConfig,
    /// What is streamed, in order.
    pub segments: Vec<SegmentConfig>,
    /// Decoding.
    #[serde(default)]
    pub decode: DecodeConfig,
    /// Learning.
    #[serde(default)]
    pub learn: LearnConfig,
    /// The n-gram cache.
    #[serde(default)]
    pub cache: CacheOptions,
    /// Acceptance heads.
    #[serde(default)]
    pub head: HeadOptions,
    /// What arms learnt, across runs.
    #[serde(default)]
    pub state: StateConfig,
}

/// What arms learnt: drafters or adapters with their optimisers, n-gram caches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// Whether it is written to `state/` of the results folder, by seed and arm and, where segments
    /// are independent, by task and target.
    pub save: bool,
    /// The `state/` of another run, from which the arms and seeds of the same names go on.
    pub load: Option<PathBuf>,
}

fn default_seeds() -> Vec<u64> {
    vec![1]
}

/// How segments relate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamMode {
    /// Fresh drafter and cache for every segment (Table 1).
    #[default]
    Independent,
    /// One drafter lives through all segments (Figures 5 and 6).
    Continual,
}

/// Who answers streamed prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStream {
    /// Every arm, plain decoding included: speedups are measured on the stream too.
    #[default]
    All,
    /// Only arms that change while they stream, because they learn or cache: what the others would
    /// do there, they do on the held-out prompts.
    Learning,
}

/// Model folders, relative to the working directory, or `hf:owner/name[@revision]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// The drafter. Padding costs on held-out prompts, as that of targets does, and elsewhere with
    /// `pad_stream`.
    pub drafter: ModelConfig,
    /// Targets by the name tables show.
    pub targets: BTreeMap<String, ModelConfig>,
    /// Whether padding costs on the stream too: what is measured there, the share of learning among
    /// it, is then that of models of that size, but for updates, which learn no padding.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pad_stream: bool,
}

/// One stretch of the stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentConfig {
    /// Task name: a folder of the data directory, or a mini stream.
    pub task: String,
    /// Target by name; may be left out where there is one.
    #[serde(default)]
    pub target: Option<String>,
    /// Prompts streamed for learning; all of the task's by default.
    #[serde(default)]
    pub train: Option<usize>,
    /// Held-out prompts measured after the stream; all by default, 0 for none.
    #[serde(default)]
    pub test: Option<usize>,
    /// Replaces `decode.gamma` here.
    #[serde(default)]
    pub gamma: Option<f64>,
}

/// Decoding options.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeConfig {
    /// Draft tokens a round.
    pub k: usize,
    /// How the draft length follows acceptance; `k` is the start, the longest, or the constant.
    pub policy: PolicyName,
    /// `confidence` stops a draft whose joint probability under the drafter falls below this,
    /// `entropy` one with a token of which 1 - sqrt(entropy_scale H(q)) does.
    pub threshold: f64,
    /// `head` stops where 1 - prod P(accept_i) exceeds this (Eq. 5).
    pub gamma: f64,
    /// Scale of the drafter's entropy in `entropy`.
    pub entropy_scale: f64,
    /// What `throughput` predicts acceptance from: `head`, `confidence` or `position`.
    pub score: ScoreName,
    /// Whether `head` and `throughput` never stop inside a cached n-gram that the draft could
    /// still complete.
    pub hold_ngrams: bool,
    /// On the stream, the first of this many rounds of `throughput` drafts k tokens whatever it
    /// predicts, so that it learns of them; 0 for none.
    pub explore: usize,
    /// What `throughput` weighs.
    pub costs: CostsConfig,
    /// Sampling temperature of both models; 0 is greedy.
    pub temperature: f64,
    /// Keeps the k most probable tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most probable tokens up to this share; 1 keeps all.
    pub top_p: f64,
    /// Keeps tokens at least this probable relative to the most probable one; 0 keeps all.
    pub min_p: f64,
    /// Makes tokens that prompt or response hold less probable; 1 changes nothing.
    pub repetition_penalty: f64,
    /// Longest response, in target tokens.
    pub max_new_tokens: usize,
    /// Weight storage of the decode engine: `f32`, `bf16`, `int8` or `int4`.
    pub weights: WeightFormat,
    /// Threads of the decode engine.
    pub threads: usize,
}

impl Default for DecodeConfig {
    fn default() -> Self {
        Self {
            k: 4,
            policy: PolicyName::Constant,
            threshold: 0.3,
            gamma: 0.5,
            entropy_scale: 0.2,
            score: ScoreName::Head,
            hold_ngrams: true,
            explore: 8,
            costs: CostsConfig::default(),
            temperature: 0.01,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_new_tokens: 64,
            weights: WeightFormat::F32,
            threads: 1,
        }
    }
}

impl DecodeConfig {
    /// How tokens are drawn.
    ///
    /// # Errors
    /// The first option outside its range.
    pub fn sampling(&self) -> Result<Sampling, SamplingError> {
        Sampling::with_options(SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
        })
    }
}

/// Weight storage by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    /// Four bytes.
    F32,
    /// Two bytes.
    Bf16,
    /// One byte.
    Int8,
    /// Half a byte.
    Int4,
}

impl From<WeightFormat> for WeightType {
    fn from(format: WeightFormat) -> Self {
        match format {
            WeightFormat::F32 => Self::F32,
            WeightFormat::Bf16 => Self::Bf16,
            WeightFormat::Int8 => Self::Int8,
            WeightFormat::Int4 => Self::Int4,
        }
    }
}

/// Bounds of the n-gram cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// What leaves a full cache.
    pub eviction: EvictionName,
    /// Most n-grams; unbounded by default.
    pub max_entries: Option<usize>,
}

/// Eviction policies by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionName {
    /// A full cache takes no more.
    #[default]
    None,
    /// The least recently used leaves.
    Lru,
    /// The least frequently used leaves.
    Lfu,
}

impl From<CacheOptions> for CacheConfig {
    fn from(options: CacheOptions) -> Self {
        let eviction = match options.eviction {
            EvictionName::None => Eviction::None,
            EvictionName::Lru => Eviction::Lru,
            EvictionName::Lfu => Eviction::Lfu,
        };
        Self {
            eviction,
            max_entries: options.max_entries,
        }
    }
}

impl RunConfig {
    /// Reads the file, applies `key=value` overrides (dotted keys, TOML values) and checks the
    /// whole.
    ///
    /// # Errors
    /// Names the file with the line, or the dotted key.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{}: cannot be read", path.display()))?;
        let parsed: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let config = if overrides.is_empty() {
            parsed
        } else {
            apply(&text, overrides)?
        };
        config
            .validate()
            .with_context(|| path.display().to_string())?;
        Ok(config)
    }

    /// Whether prompts of this phase are answered by padded models.
    pub fn pads(&self, phase: Phase) -> bool {
        phase == Phase::Test || self.models.pad_stream
    }

    /// The target of a segment.
    ///
    /// # Errors
    /// No such target, or none named although there are several.
    pub fn target_of<'a>(&'a self, segment: &'a SegmentConfig) -> Result<&'a str> {
        let targets = &self.models.targets;
        match &segment.target {
            Some(name) if targets.contains_key(name) => Ok(name),
            Some(name) => {
                let known: Vec<&str> = targets.keys().map(String::as_str).collect();
                bail!(
                    "segments: target `{name}` is not in models.targets ({})",
                    known.join(", ")
                )
            }
            None => match targets.keys().next() {
                Some(only) if targets.len() == 1 => Ok(only),
                _ => bail!(
                    "segments: task `{}` must name its target: there are several",
                    segment.task
                ),
            },
        }
    }

    /// The arms, presets resolved, each with a policy of its own.
    pub fn arms(&self) -> Result<Vec<Arm>> {
        let own = |spec: &ArmSpec| {
            let mut arm = spec.resolve()?;
            arm.draft.policy.get_or_insert(self.decode.policy);
            Ok(arm)
        };
        self.arms.iter().map(own).collect()
    }

    fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, message: String| {
            if !ok {
                faults.push(message);
            }
        };
        check(
            !self.seeds.is_empty(),
            "seeds: at least one is needed".into(),
        );
        check(
            !self.segments.is_empty(),
            "segments: at least one is needed".into(),
        );
        check(
            !self.models.targets.is_empty(),
            "models.targets: at least one is needed".into(),
        );
        let d = &self.decode;
        if let Err(e) = d.sampling() {
            check(false, format!("decode.{e}"));
        }
        check(
            d.max_new_tokens > 0,
            "decode.max_new_tokens must be at least 1".into(),
        );
        check(d.threads > 0, "decode.threads must be at least 1".into());
        let state = self.state.save || self.state.load.is_some();
        let kept: BTreeSet<_> = self.segments.iter().map(|s| (&s.task, &s.target)).collect();
        check(
            !state || self.streams == StreamMode::Continual || kept.len() == self.segments.len(),
            "state: independent segments are kept by task and target, which must differ".into(),
        );
        faults.extend(d.policy_faults());
        faults.extend(self.learn.faults());
        faults.extend(self.head.faults());
        for segment in &self.segments {
            if let Some(gamma) = segment.gamma.filter(|gamma| !(0.0..=1.0).contains(gamma)) {
                faults.push(format!("segments: gamma = {gamma} is outside 0..=1"));
            }
            if let Err(e) = self.target_of(segment) {
                faults.push(e.to_string());
            }
        }
        match self.arms() {
            Ok(arms) => {
                let mut names = BTreeSet::new();
                for arm in &arms {
                    if !names.insert(arm.name.clone()) {
                        faults.push(format!("arms: `{}` appears twice", arm.name));
                    }
                    let mut wrong = arm.faults(&arms, self);
                    wrong.retain(|fault| !faults.contains(fault));
                    let of_arm = |fault| format!("arms: `{}`: {fault}", arm.name);
                    faults.extend(wrong.into_iter().map(of_arm));
                }
                if arms.is_empty() {
                    faults.push("arms: at least one is needed".into());
                }
            }
            Err(e) => faults.push(e.to_string()),
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(anyhow!(faults.join("\n  ")))
        }
    }
}

fn apply(text: &str, overrides: &[String]) -> Result<RunConfig> {
    let mut root: toml::Table = toml::from_str(text)?;
    for item in overrides {
        let (key, value) = item
            .split_once('=')
            .ok_or_else(|| anyhow!("--set {item}: expected key=value, for example decode.k=3"))?;
        // Bare words are strings, so that `--set decode.weights=bf16` needs no quotes.
        let value = match toml::from_str::<toml::Table>(&format!("v = {value}")) {
            Ok(mut table) => table.remove("v").unwrap_or_else(|| value.into()),
            Err(_) => value.into(),
        };
        let mut parts: Vec<&str> = key.trim().split('.').collect();
        let last = parts.pop().unwrap_or_default();
        let mut table = &mut root;
        for part in parts {
            table = table
                .entry(part)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()))
                .as_table_mut()
                .ok_or_else(|| anyhow!("--set {item}: `{part}` is not a table"))?;
        }
        table.insert(last.to_owned(), value);
    }
    serde_path_to_error::deserialize(toml::Value::Table(root))
        .map_err(|e| anyhow!("--set: `{}`: {}", e.path(), e.inner()))
}
