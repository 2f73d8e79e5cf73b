//! `[decode]`: drafting, verification and sampling.

use adaptive_draft::Score;
use lm::{Device, EngineSettings, KvType, WeightType};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use spec_decode::{Acceptance, Sampling, SamplingError, SamplingOptions, VerifyMode};

use super::{CostsConfig, PolicyName, Wrong, is_default, or_none, wrong};

/// Default size of the texts for copies, in MiB.
const LOOKUP_MB: usize = 64;

/// Drafting, verification and sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeConfig {
    /// Algorithm by which the target verifies a draft.
    #[serde(with = "or_none")]
    #[schemars(schema_with = "verify_names")]
    pub verify: Option<VerifyMode>,
    /// Source of the drafts.
    pub draft: DraftSource,
    /// Text in which continuations are looked up that begin a draft or replace it, whichever
    /// `costs` predicts to be faster. Needs no model and costs nothing; the output distribution
    /// does not change.
    pub lookup: Lookup,
    /// Maximum MiB of the texts of a target's vocabulary with `lookup = "automaton"`, 1 to 16384; the
    /// oldest are dropped first.
    #[serde(skip_serializing_if = "is_lookup_mb")]
    #[schemars(extend("default" = LOOKUP_MB))]
    pub lookup_mb: usize,
    /// Acceptance of the tokens of a draft one by one or jointly, above temperature 0.
    pub acceptance: Acceptance,
    /// Number of draft tokens per round, 1 to 64: the constant, the initial or the maximum length,
    /// depending on `policy`. Up to 2 more complete an n-gram that the draft has begun.
    pub k: usize,
    /// Maximum number of tokens that the target scores along with a draft, in place of its tokens or
    /// after it, 0 to 16: second choices of the drafter, and with `lookup` text that goes on in
    /// another way than the draft. As far as the target goes on so, the round gives more tokens. With
    /// `policy = "throughput"`, only those worth a position of the target's forward. For targets on
    /// the processor; others, `verify = "slem"` and rounds that propose looked-up tokens have none.
    /// Exact modes stay exact; `verify = "paper"` comes nearer to the target's distribution.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub alternatives: usize,
    /// Policy by which the draft length follows acceptance.
    pub policy: PolicyName,
    /// Threshold of `policy = "confidence"` and `"entropy"`, 0 to 1: a draft stops where its joint
    /// probability under the drafter, or 1 - sqrt(0.2 H(q)) of its last token with H(q) in nats,
    /// falls below it.
    pub threshold: f64,
    /// Threshold of `policy = "head"`, 0 to 1: a draft stops where the probability that some token
    /// of it is rejected (Eq. 6) exceeds it (Eq. 7). The paper takes 0.7 for GSM8K and
    /// MBPP+HumanEval, 0.3 for Alpaca and XSum.
    pub gamma: f64,
    /// Predictor of acceptance with `policy = "throughput"`.
    pub score: Score,
    /// Costs that `policy = "throughput"` and `lookup` use.
    pub costs: CostsConfig,
    /// Decides from measured times, during the run, if the drafter drafts, with which weights, and
    /// if it learns: drafting pauses where plain decoding is faster, and learning pauses where it
    /// costs more than it saves. For stages with `exclusive = true`, whose times are valid. Such
    /// runs cannot be reproduced exactly.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub controller: bool,
    /// Sampling temperature of both models: 0 is greedy, otherwise 1e-6 to 1e6.
    pub temperature: f64,
    /// Number of most probable tokens to sample from; 0 keeps all.
    pub top_k: usize,
    /// Cumulative probability of the most probable tokens to sample from, above 0 and at most 1; 1
    /// keeps all.
    pub top_p: f64,
    /// Minimum probability of a token relative to the most probable one, 0 to 1; 0 keeps all.
    pub min_p: f64,
    /// Penalty on tokens that occur in the prompt or the response, 0.001 to 1000; 1 changes
    /// nothing.
    pub repetition_penalty: f64,
    /// Maximum number of target tokens per response, at least 1.
    pub max_new_tokens: usize,
    /// Continues after end-of-sequence tokens, until `max_new_tokens`: measures rounds of long
    /// answers with a target whose own answers are short. Not for recorded targets.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub ignore_eos: bool,
    /// Number format of the weights in the decode engine.
    pub weights: WeightType,
    /// Number format of the drafter's weights; left out, that of `weights`. A narrower format makes
    /// drafting cheaper and acceptance a little lower; the output distribution does not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_weights: Option<WeightType>,
    /// Number format of the keys and values in the decode engine. A drafter with integer weights keeps
    /// them in f16.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "f32"))]
    pub kv: KvType,
    /// Maximum number of tokens of prompt and answer in the target's context; longer prompts are
    /// truncated as text. 0 for the model's prompt budget plus `max_new_tokens` plus room for a
    /// draft. Memory is allocated as tokens arrive; the drafter's context holds the same text in
    /// its own tokens.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub context: usize,
    /// Number of threads of the decode engine, at least 1.
    pub threads: usize,
}

fn verify_names(generator: &mut SchemaGenerator) -> Schema {
    let none = "There is no draft: plain decoding with the target, the reference of every speedup.";
    or_none::schema::<VerifyMode>(generator, none)
}

impl Default for DecodeConfig {
    fn default() -> Self {
        Self {
            verify: Some(VerifyMode::Tli),
            draft: DraftSource::Model,
            lookup: Lookup::Off,
            lookup_mb: LOOKUP_MB,
            acceptance: Acceptance::Token,
            k: 4,
            alternatives: 0,
            policy: PolicyName::Constant,
            threshold: 0.3,
            gamma: 0.5,
            score: Score::Head,
            costs: CostsConfig::default(),
            controller: false,
            temperature: 0.01,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_new_tokens: 64,
            ignore_eos: false,
            weights: WeightType::F32,
            draft_weights: None,
            kv: KvType::F32,
            context: 0,
            threads: 1,
        }
    }
}

impl DecodeConfig {
    /// The sampler's settings.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn sampling(&self) -> Result<Sampling, SamplingError> {
        Sampling::with_options(SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
        })
    }

    /// The engine settings of a target, without the context length, which depends on the model.
    pub fn engine(&self) -> EngineSettings {
        self.stored(self.weights)
    }

    /// The engine settings of a drafter on a device, without the context length, which depends on the
    /// model.
    pub fn drafter_engine(&self, device: Device) -> EngineSettings {
        self.stored(self.drafts_in()).on(device).drafting()
    }

    /// The number format of the drafter's weights.
    pub fn drafts_in(&self) -> WeightType {
        self.draft_weights.unwrap_or(self.weights)
    }

    fn stored(&self, weights: WeightType) -> EngineSettings {
        EngineSettings {
            kv: self.kv,
            ..EngineSettings::new(weights, self.threads)
        }
    }

    /// Maximum number of prompt tokens within `context`; `None` if it depends on the model.
    pub fn prompt_room(&self) -> Option<usize> {
        let taken = self.max_new_tokens + self.k;
        (self.context > 0).then(|| self.context.saturating_sub(taken))
    }

    /// The invalid keys, each with its error.
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
        if self.alternatives > 16 {
            let message = format!("{} is outside 0 to 16", self.alternatives);
            wrongs.push(wrong("decode.alternatives", message));
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

/// A source of drafts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DraftSource {
    /// The draft model.
    #[default]
    Model,
    /// The continuation of the same words earlier in prompt and response; no model, nothing to
    /// learn. With `lookup`, drafts consist of looked-up text alone, of the length that is
    /// predicted to be fastest.
    PromptLookup,
}

/// Text in which continuations are looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lookup {
    /// No text.
    #[default]
    Off,
    /// The prompt and the response.
    Prompt,
    /// The prompt, the response, and the earlier prompts and answers of the stream: the most recent
    /// continuation of a run of at most four tokens.
    Stream,
    /// The same texts, up to `lookup_mb`, in a suffix automaton: the most frequent continuation of
    /// the longest match.
    Automaton,
}

fn is_lookup_mb(number: &usize) -> bool {
    *number == LOOKUP_MB
}
