//! `[decode]`: how tokens are drafted, checked and drawn.

use std::fmt;
use std::str::FromStr;

use lm::{EngineSettings, KvType, WeightType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec_decode::{Acceptance, Sampling, SamplingError, SamplingOptions, VerifyMode};

use super::{CostsConfig, PolicyName, ScoreName, Wrong, wrong};

/// MiB of texts to copy from, if nothing else is said.
const LOOKUP_MB: usize = 64;

/// How tokens are drafted, checked and drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeConfig {
    /// How the target checks a draft.
    pub verify: Verify,
    /// Where drafts come from.
    pub draft: DraftSource,
    /// Where text is looked up that a draft may begin with, in front of the drafter's own tokens or
    /// in their place, as pays by `costs`. Needs no model and costs nothing; the output's law stays.
    pub lookup: Lookup,
    /// For `lookup = "automaton"`: most MiB of the texts of a target's vocabulary, 1 to 16384; the oldest
    /// leave first.
    #[serde(skip_serializing_if = "is_lookup_mb")]
    #[schemars(extend("default" = LOOKUP_MB))]
    pub lookup_mb: usize,
    /// Whether the tokens of a draft are judged one by one or all together, above temperature 0.
    pub acceptance: AcceptanceName,
    /// Draft tokens a round, 1 to 64: the constant length, the first one or the longest, as `policy`
    /// says.
    pub k: usize,
    /// How the draft length follows acceptance.
    pub policy: PolicyName,
    /// For `policy = "confidence"` and `"entropy"`, 0 to 1: a draft stops where its joint probability
    /// under the drafter, or 1 - sqrt(entropy_scale H(q)) of its last token, falls below this.
    pub threshold: f64,
    /// For `policy = "head"`, 0 to 1: a draft stops where the probability that some token of it is
    /// rejected (Eq. 6) exceeds this (Eq. 7). The paper takes 0.7 for GSM8K and MBPP+HumanEval, 0.3
    /// for Alpaca and XSum.
    pub gamma: f64,
    /// For `policy = "entropy"`, above 0: scale of the drafter's entropy H(q) in nats.
    pub entropy_scale: f64,
    /// For `policy = "throughput"`: what acceptance is predicted from.
    pub score: ScoreName,
    /// For `policy = "head"`: on the stream, never stop inside a cached n-gram that the draft could
    /// still complete. Drafters taught so are the faster ones afterwards; answers themselves are not.
    pub hold_ngrams: bool,
    /// For `policy = "throughput"` and `lookup`: on the stream, one of this many rounds drafts
    /// whatever is predicted (`k` tokens; of the rounds that `lookup` would not draft in), so that
    /// the rule learns of it; 0 for none.
    pub explore: usize,
    /// For `policy = "throughput"` and `lookup`: what they weigh.
    pub costs: CostsConfig,
    /// Whether seconds decide, while it runs, if the drafter drafts, by which weights, and if it learns:
    /// where plain decoding is faster the drafter rests, and learning rests where it costs more than it
    /// saves. For stages with `exclusive = true`, whose seconds count. Such runs do not repeat.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub controller: bool,
    /// Sampling temperature of both models: 0 is greedy, else 1e-6 to 1e6.
    pub temperature: f64,
    /// Keep the most probable tokens, this many; 0 keeps all.
    pub top_k: usize,
    /// Keep the most probable tokens up to this share, above 0 and at most 1; 1 keeps all.
    pub top_p: f64,
    /// Keep tokens at least this probable relative to the most probable one, 0 to 1; 0 keeps all.
    pub min_p: f64,
    /// Make tokens that the prompt or the response holds less probable, 0.001 to 1000; 1 changes
    /// nothing.
    pub repetition_penalty: f64,
    /// Longest response, in target tokens, at least 1.
    pub max_new_tokens: usize,
    /// Go on after tokens that end a response, until `max_new_tokens`: how rounds fare in long answers
    /// of a target whose own are short. Not for recorded targets.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub ignore_eos: bool,
    /// How the decode engine stores weights.
    pub weights: WeightFormat,
    /// How it stores those of the drafter; left out, as `weights` says. A narrower drafter costs less a
    /// token and drafts a little worse; what the target answers is as with any other drafter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_weights: Option<WeightFormat>,
    /// How the decode engine stores keys and values.
    #[serde(skip_serializing_if = "KvFormat::is_f32")]
    #[schemars(extend("default" = "f32"))]
    pub kv: KvFormat,
    /// Most tokens of prompt and answer that the target holds; longer prompts are shortened as text.
    /// 0 for the model's prompt budget, `max_new_tokens` and room for a draft. Memory is taken as tokens
    /// come, not for all of them; the drafter holds the same text in its own tokens.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = 0))]
    pub context: usize,
    /// Threads of the decode engine, at least 1.
    pub threads: usize,
}

impl Default for DecodeConfig {
    fn default() -> Self {
        Self {
            verify: Verify::Tli,
            draft: DraftSource::Model,
            lookup: Lookup::Off,
            lookup_mb: LOOKUP_MB,
            acceptance: AcceptanceName::Token,
            k: 4,
            policy: PolicyName::Constant,
            threshold: 0.3,
            gamma: 0.5,
            entropy_scale: 0.2,
            score: ScoreName::Head,
            hold_ngrams: true,
            explore: 8,
            costs: CostsConfig::default(),
            controller: false,
            temperature: 0.01,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_new_tokens: 64,
            ignore_eos: false,
            weights: WeightFormat::F32,
            draft_weights: None,
            kv: KvFormat::F32,
            context: 0,
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

    /// How the decode engine of a target is built, the context left to the model.
    pub fn engine(&self) -> EngineSettings {
        self.stored(self.weights)
    }

    /// How the decode engine of a drafter is built, the context left to the model.
    pub fn drafter_engine(&self) -> EngineSettings {
        self.stored(self.drafts_in())
    }

    /// How the drafter's weights are stored.
    pub fn drafts_in(&self) -> WeightFormat {
        self.draft_weights.unwrap_or(self.weights)
    }

    fn stored(&self, weights: WeightFormat) -> EngineSettings {
        EngineSettings {
            kv: self.kv.into(),
            ..EngineSettings::new(weights.into(), self.threads)
        }
    }

    /// Most tokens of a prompt that `context` leaves room for; nothing where it is left to the model.
    pub fn prompt_room(&self) -> Option<usize> {
        let taken = self.max_new_tokens + self.k;
        (self.context > 0).then(|| self.context.saturating_sub(taken))
    }

    /// What is wrong, by key.
    pub(crate) fn wrongs(&self) -> Vec<Wrong> {
        let mut wrongs = self.policy_wrongs();
        if let Err(e) = self.sampling() {
            let message = format!("{} is outside {}", e.value, e.range);
            wrongs.push(wrong(&format!("decode.{}", e.option), message));
        }
        if !(1..=16384).contains(&self.lookup_mb) {
            let message = format!("{} is outside 1 to 16384", self.lookup_mb);
            wrongs.push(wrong("decode.lookup_mb", message));
        }
        if self.prompt_room() == Some(0) {
            let message = format!(
                "{} tokens leave no room for a prompt beside max_new_tokens = {} and k = {}",
                self.context, self.max_new_tokens, self.k
            );
            wrongs.push(wrong("decode.context", message));
        }
        for (key, value) in [
            ("max_new_tokens", self.max_new_tokens),
            ("threads", self.threads),
        ] {
            if value == 0 {
                wrongs.push(wrong(&format!("decode.{key}"), "must be at least 1"));
            }
        }
        wrongs
    }
}

/// How the target checks a draft.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// There is no draft: plain decoding with the target, the reference of every speedup.
    None,
    /// Algorithm 1 with Eq. 1-2. Makes the paper's tables; at temperatures well above 0 the output
    /// only approximates the target's distribution once n-grams are merged.
    Paper,
    /// Directly mapped tokens only (the paper's SpD_DM): the target's distribution exactly.
    #[default]
    Tli,
    /// Direct tokens and n-grams, merged so that the target's distribution is met exactly.
    Exact,
    /// Drafts are compared as text, whatever tokens spell them: exact as well.
    Slem,
}

impl Verify {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Paper, Self::Tli, Self::Exact, Self::Slem];

    /// Name in files and on the command line.
    pub fn name(self) -> &'static str {
        self.mode().map_or("none", VerifyMode::name)
    }

    /// The rule by which drafts are judged; `None` for plain decoding.
    pub fn mode(self) -> Option<VerifyMode> {
        match self {
            Self::None => None,
            Self::Paper => Some(VerifyMode::Paper),
            Self::Tli => Some(VerifyMode::Tli),
            Self::Exact => Some(VerifyMode::Exact),
            Self::Slem => Some(VerifyMode::Slem),
        }
    }
}

/// Where drafts come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftSource {
    /// The draft model.
    #[default]
    Model,
    /// What followed the same words earlier in prompt and response; no model, nothing to learn. With
    /// `lookup`, drafts are what it finds and nothing else, as long as pays.
    PromptLookup,
}

/// Where text is looked up that drafts may begin with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lookup {
    /// Nowhere.
    #[default]
    Off,
    /// In prompt and response.
    Prompt,
    /// In prompt and response and in what was asked and answered before on the stream: what followed a
    /// run of at most four tokens the last time.
    Stream,
    /// In the same texts, as many as `lookup_mb` holds, by a suffix automaton: what followed the longest
    /// match most often.
    Automaton,
}

/// How the tokens of a draft are judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AcceptanceName {
    /// One by one, up to the first that is rejected (Algorithm 1).
    #[default]
    Token,
    /// All together, never fewer accepted in expectation (Sun et al. 2024); `verify = "tli"` and
    /// `"exact"`, the others go token by token.
    Block,
}

impl AcceptanceName {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Token, Self::Block];
}

impl fmt::Display for AcceptanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Acceptance::from(*self).fmt(f)
    }
}

impl FromStr for AcceptanceName {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        by_name(&Self::ALL, name)
    }
}

impl From<AcceptanceName> for Acceptance {
    fn from(name: AcceptanceName) -> Self {
        match name {
            AcceptanceName::Token => Self::Token,
            AcceptanceName::Block => Self::Block,
        }
    }
}

/// How the decode engine stores weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    /// Four bytes each, exact.
    #[default]
    F32,
    /// Two bytes each, rounded to half precision: exact for f16 checkpoints.
    F16,
    /// Two bytes each, rounded to bf16, and what they are multiplied with too.
    Bf16,
    /// About one byte each, with a scale per 64.
    Int8,
    /// About half a byte each, with a scale per 32.
    Int4,
}

impl WeightFormat {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Int8, Self::Int4];
}

/// How the decode engine stores keys and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvFormat {
    /// Four bytes each, as computed.
    #[default]
    F32,
    /// Two bytes each, rounded.
    F16,
}

impl KvFormat {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::F32, Self::F16];

    fn is_f32(&self) -> bool {
        *self == Self::F32
    }
}

impl From<KvFormat> for KvType {
    fn from(format: KvFormat) -> Self {
        match format {
            KvFormat::F32 => Self::F32,
            KvFormat::F16 => Self::F16,
        }
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        KvType::from(*self).fmt(f)
    }
}

impl FromStr for KvFormat {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        by_name(&Self::ALL, name)
    }
}

fn is_false(switch: &bool) -> bool {
    !switch
}

fn is_lookup_mb(number: &usize) -> bool {
    *number == LOOKUP_MB
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl From<WeightFormat> for WeightType {
    fn from(format: WeightFormat) -> Self {
        match format {
            WeightFormat::F32 => Self::F32,
            WeightFormat::F16 => Self::F16,
            WeightFormat::Bf16 => Self::Bf16,
            WeightFormat::Int8 => Self::Int8,
            WeightFormat::Int4 => Self::Int4,
        }
    }
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        WeightType::from(*self).fmt(f)
    }
}

impl FromStr for Verify {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        by_name(&Self::ALL, name)
    }
}

impl FromStr for WeightFormat {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        by_name(&Self::ALL, name)
    }
}

/// A name that is none of the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown name `{name}` (one of {known})")]
pub struct UnknownName {
    name: String,
    known: String,
}

fn by_name<T: Copy + fmt::Display>(all: &[T], name: &str) -> Result<T, UnknownName> {
    let found = all.iter().copied().find(|one| one.to_string() == name);
    found.ok_or_else(|| UnknownName {
        name: name.to_owned(),
        known: all.iter().map(T::to_string).collect::<Vec<_>>().join(", "),
    })
}
