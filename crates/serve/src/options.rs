//! Options of a server, fixed when it starts.

use std::path::PathBuf;
use std::time::Duration;

use distill_loss::DirectLoss;
use experiment::{LearnConfig, LoraSettings, ObjectiveName};
use lm::{EngineSettings, LmConfig, WeightType};
use models::TorchSettings;
use ngram_cache::{CacheConfig, Eviction};
use online::LearntPart;

/// The options that decide how answers are made, apart from the requests.
#[derive(Debug, Clone)]
pub struct Options {
    /// Targets: each with the name that requests use and its model folder (or `hf:owner/name`). The
    /// first one answers requests that name none.
    pub targets: Vec<(String, PathBuf)>,
    /// Model folder of the drafter.
    pub drafter: PathBuf,
    /// Formats of weights, keys and values, number of threads, and maximum tokens of prompt and
    /// answer.
    pub engine: EngineSettings,
    /// Format of the drafter's weights; `None` for that of `engine`.
    pub draft_weights: Option<WeightType>,
    /// Draft length k, at least 1; the maximum if lengths are adapted.
    pub draft_length: usize,
    /// True if a draft ends where a further token is not worth its time, by statistics of each
    /// target: an acceptance head, the acceptance rate at each predicted probability, and the
    /// measured costs of rounds.
    pub adapt_length: bool,
    /// Maximum tokens that the target scores along with a draft, in place of its tokens or after it
    /// ([`SessionConfig::alternatives`](spec_decode::SessionConfig)), while one answer is decoded.
    pub alternatives: usize,
    /// True if measured seconds decide whether the drafter drafts, with which weights, and whether
    /// it learns ([`adaptive_draft::Controller`]). Only for local targets, measured on answers that
    /// were decoded alone.
    pub controller: bool,
    /// Texts that drafts may begin with; `None` if nothing is looked up.
    pub lookup: Option<LookupScope>,
    /// Maximum bytes of the texts of earlier answers that are looked up.
    pub lookup_bytes: usize,
    /// Number of sequences decoded at once, at least 1.
    pub parallel: usize,
    /// Number of requests that may wait for a slot.
    pub queue: usize,
    /// Maximum number of tokens of an answer, which is also the default.
    pub max_tokens: usize,
    /// Time after which an answer is given up, waiting included.
    pub timeout: Duration,
    /// Maximum bytes of keys, values and activations of all sequences; `None` for no limit.
    pub memory: Option<usize>,
    /// Maximum bytes of the n-gram cache of a pair of vocabularies.
    pub ngram_bytes: usize,
    /// Maximum bytes of the examples that wait to be learnt from and, for each learner, of those
    /// that it replays.
    pub example_bytes: usize,
    /// Learning options; `None` if the drafter does not learn.
    pub learn: Option<LearnOptions>,
    /// Folder in which the learnt state is kept; `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// Time between two savings of the state.
    pub save_every: Duration,
    /// Maximum bytes of a saved state; a larger one is not written.
    pub state_bytes: u64,
    /// Workers of targets `torch:DIR`.
    pub torch: TorchSettings,
    /// Options for remote targets.
    pub remote: RemoteOptions,
    /// Capacity for verifying drafts of other servers; `None` if none are verified.
    pub expose: Option<Expose>,
}

impl Options {
    /// One target, by the name that requests use, and a drafter. Nothing is learnt or kept, a round
    /// drafts four tokens, and four sequences are decoded at once, on one thread.
    pub fn new(
        name: impl Into<String>,
        target: impl Into<PathBuf>,
        drafter: impl Into<PathBuf>,
    ) -> Self {
        Self {
            targets: vec![(name.into(), target.into())],
            drafter: drafter.into(),
            engine: EngineSettings::new(WeightType::F32, 1),
            draft_weights: None,
            draft_length: 4,
            adapt_length: false,
            alternatives: 0,
            controller: false,
            lookup: None,
            lookup_bytes: 64 << 20,
            parallel: 4,
            queue: 64,
            max_tokens: 1024,
            timeout: Duration::from_secs(600),
            memory: None,
            ngram_bytes: 64 << 20,
            example_bytes: 256 << 20,
            learn: None,
            state: None,
            save_every: Duration::from_secs(300),
            state_bytes: 1 << 30,
            torch: TorchSettings::default(),
            remote: RemoteOptions::default(),
            expose: None,
        }
    }

    /// True if users share nothing of their texts: neither copies nor a KV cache.
    pub(crate) fn keeps_users_apart(&self) -> bool {
        let own = self
            .learn
            .is_some_and(|learn| learn.scope == LearnScope::User);
        own || self.lookup == Some(LookupScope::User)
    }

    /// Engine settings of the drafter.
    pub fn drafter_engine(&self) -> EngineSettings {
        EngineSettings {
            weights: self.draft_weights.unwrap_or(self.engine.weights),
            ..self.engine
        }
        .drafting()
    }

    /// Bounds of an n-gram cache.
    pub(crate) fn cache_config(&self) -> CacheConfig {
        CacheConfig {
            eviction: Eviction::Lru,
            max_entries: None,
            max_bytes: Some(self.ngram_bytes),
        }
    }
}

/// Options for remote targets, which are those whose model folder is an `http://` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// API key of their servers.
    pub key: Option<String>,
    /// Number of most probable draft tokens that drafts are drawn from, at least 1.
    pub draft_top: usize,
    /// Number of most probable tokens of the target's distribution that come back for each token,
    /// to be learnt from.
    pub law_top: usize,
    /// Time to wait for a reply.
    pub timeout: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            key: None,
            draft_top: 16,
            law_top: 64,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Capacity for verifying drafts of other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expose {
    /// Number of KV caches for such drafts, at least 1.
    pub sessions: usize,
    /// Time after which an unused one is freed.
    pub idle: Duration,
}

/// Options of a drafter that learns while it serves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnOptions {
    /// Number of answers per update, at least 1.
    pub every: usize,
    /// Learning rate of AdamW; `None` for one that suits the drafter's size.
    pub rate: Option<f64>,
    /// Rank of low-rank adapters; 0 trains weights.
    pub rank: usize,
    /// Number of last blocks that learn, or have adapters; 0 for all of them, `None` for a number
    /// that suits the drafter's size.
    pub blocks: Option<usize>,
    /// Maximum updates a minute; `None` for as many as there are answers for.
    pub updates_per_minute: Option<u32>,
    /// Granularity at which the drafter has weights of its own.
    pub scope: LearnScope,
}

impl Default for LearnOptions {
    /// One update of weights for every four answers of a target, with rate and blocks that suit the
    /// drafter's size. Each target has weights of its own.
    fn default() -> Self {
        Self {
            every: 4,
            rate: None,
            rank: 0,
            blocks: None,
            updates_per_minute: None,
            scope: LearnScope::Target,
        }
    }
}

/// The texts that an answer may copy from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupScope {
    /// Its own prompt and answer.
    Own,
    /// Its own, and earlier prompts and answers of its user, by the field `user` of requests.
    User,
    /// Its own, and earlier prompts and answers of all users.
    Shared,
}

/// Granularity at which a drafter has weights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnScope {
    /// One set of weights for each target.
    Target,
    /// One adapter for each user of each target, by the field `user` of requests; needs adapters.
    User,
}

/// Maximum number of adapters, those of targets included; later users train their target's.
pub(crate) const MAX_ADAPTERS: usize = 256;

/// Number of parameters from which a drafter learns in its last blocks only, in smaller steps, and
/// from every answer once. Training all of it would take longer than it saves.
const LARGE: usize = 50_000_000;

impl LearnOptions {
    /// Options with defaults filled in for a drafter of this shape. `keeps_states` is true if its
    /// engine can keep the states that enter its last blocks.
    pub(crate) fn suited(self, drafter: &LmConfig, keeps_states: bool) -> Self {
        let large = drafter.num_params() >= LARGE;
        let blocks = self.blocks.unwrap_or(match large && keeps_states {
            true => drafter.num_layers.min(2),
            false => 0,
        });
        let rate = self.rate.unwrap_or(match (large, blocks) {
            (false, _) => 2e-3,
            (true, 0) => 2e-4,
            (true, _) => 5e-4,
        });
        Self {
            rate: Some(rate),
            blocks: Some(blocks),
            ..self
        }
    }

    /// Settings of the learner for a drafter of this shape.
    pub(crate) fn config(&self, drafter: &LmConfig) -> LearnConfig {
        let large = drafter.num_params() >= LARGE;
        let defaults = LearnConfig::default();
        LearnConfig {
            objective: ObjectiveName::Hybrid,
            direct: Some(DirectLoss::ForwardKl),
            every: self.every,
            lr: self.rate.unwrap_or(defaults.lr),
            replay: if large { 0 } else { 16 },
            replay_window: 256,
            // A running mean is a whole model in f32, which every adapter would have in memory and
            // on disk.
            ema: if large || self.rank > 0 { 0.0 } else { 0.9 },
            likely: if large { 1e-4 } else { 0.0 },
            blocks: self.part().blocks,
            lora: LoraSettings {
                rank: self.rank,
                ..LoraSettings::default()
            },
            ..defaults
        }
    }

    /// The trainable part of the drafter.
    pub(crate) fn part(&self) -> LearntPart {
        LearntPart {
            rank: self.rank,
            blocks: self.blocks.unwrap_or(0),
        }
    }

    /// Name of the adapter that drafts for this target and user.
    pub(crate) fn adapter(&self, target: &str, user: &str) -> String {
        match self.scope {
            LearnScope::User if !user.is_empty() => format!("{target}/{user}"),
            _ => target.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn adapters_have_no_running_mean() {
        let drafter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/D/config.json");
        let drafter = LmConfig::from_file(&drafter).unwrap();
        let ema = |rank| {
            let learn = LearnOptions {
                rank,
                ..LearnOptions::default()
            };
            learn.config(&drafter).ema
        };
        assert_eq!([ema(0), ema(4)], [0.9, 0.0]);
    }
}
