//! `[decode]`: how tokens are drafted, checked and drawn.

use adaptive_draft::Score;
use lm::{EngineSettings, KvType, WeightType};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use spec_decode::{Acceptance, Sampling, SamplingError, SamplingOptions, VerifyMode};

use super::{CostsConfig, PolicyName, Wrong, is_default, or_none, wrong};

/// MiB of texts to copy from, if nothing else is said.
const LOOKUP_MB: usize = 64;

/// How tokens are drafted, checked and drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeConfig {
    /// How the target checks a draft.
    #[serde(with = "or_none")]
    #[schemars(schema_with = "verify_names")]
    pub verify: Option<VerifyMode>,
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
    pub acceptance: Acceptance,
    /// Draft tokens a round, 1 to 64: the constant length, the first one or the longest, as `policy`
    /// says.
    pub k: usize,
    /// How the draft length follows acceptance.
    pub policy: PolicyName,
    /// For `policy = "confidence"` and `"entropy"`, 0 to 1: a draft stops where its joint probability
    /// under the drafter, or 1 - sqrt(0.2 H(q)) of its last token, H(q) in nats, falls below this.
    pub threshold: f64,
    /// For `policy = "head"`, 0 to 1: a draft stops where the probability that some token of it is
    /// rejected (Eq. 6) exceeds this (Eq. 7). The paper takes 0.7 for GSM8K and MBPP+HumanEval, 0.3
    /// for Alpaca and XSum.
    pub gamma: f64,
    /// For `policy = "throughput"`: what acceptance is predicted from.
    pub score: Score,
    /// For `policy = "throughput"` and `lookup`: what they weigh.
    pub costs: CostsConfig,
    /// Whether seconds decide, while it runs, if the drafter drafts, by which weights, and if it learns:
    /// where plain decoding is faster the drafter rests, and learning rests where it costs more than it
    /// saves. For stages with `exclusive = true`, whose seconds count. Such runs do not repeat.
    #[serde(skip_serializing_if = "is_default")]
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
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub ignore_eos: bool,
    /// How the decode engine stores weights.
    pub weights: WeightType,
    /// How it stores those of the drafter; left out, as `weights` says. A narrower drafter costs less a
    /// token and drafts a little worse; what the target answers is as with any other drafter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_weights: Option<WeightType>,
    /// How the decode engine stores keys and values.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "f32"))]
    pub kv: KvType,
    /// Most tokens of prompt and answer that the target holds; longer prompts are shortened as text.
    /// 0 for the model's prompt budget, `max_new_tokens` and room for a draft. Memory is taken as tokens
    /// come, not for all of them; the drafter holds the same text in its own tokens.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub context: usize,
    /// Threads of the decode engine, at least 1.
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
    pub fn drafts_in(&self) -> WeightType {
        self.draft_weights.unwrap_or(self.weights)
    }

    fn stored(&self, weights: WeightType) -> EngineSettings {
        EngineSettings {
            kv: self.kv,
            ..EngineSettings::new(weights, self.threads)
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

fn is_lookup_mb(number: &usize) -> bool {
    *number == LOOKUP_MB
}
