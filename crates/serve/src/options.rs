//! What a server is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use experiment::{DirectName, LearnConfig, LoraSettings, ObjectiveName};
use lm::{EngineSettings, LmConfig, WeightType};
use serde::{Deserialize, Serialize};

/// Everything that decides how answers are made, apart from the requests.
#[derive(Debug, Clone)]
pub struct Options {
    /// Targets: the name that requests call one by, and its model folder (or `hf:owner/name`). The
    /// first one answers requests that name none.
    pub targets: Vec<(String, PathBuf)>,
    /// Model folder of the drafter.
    pub drafter: PathBuf,
    /// Storage of weights, keys and values, threads, and most tokens of prompt and answer.
    pub engine: EngineSettings,
    /// Storage of the drafter's weights; `None` for that of `engine`.
    pub draft_weights: Option<WeightType>,
    /// Draft tokens a round, at least 1; the most, where lengths are adapted.
    pub draft_length: usize,
    /// Whether drafts end where a further token is not worth its time, by what is learnt of each
    /// target: an acceptance head, how often tokens that it gives which chance are accepted, and what
    /// rounds cost.
    pub adapt_length: bool,
    /// Whether seconds decide if the drafter drafts, by which weights, and if it learns
    /// ([`adaptive_draft::Controller`]): for targets decoded here, by answers that were made alone.
    pub controller: bool,
    /// Whether drafts may begin with text looked up in prompt and answer.
    pub lookup: bool,
    /// Sequences decoded at once, at least 1.
    pub parallel: usize,
    /// Requests that may wait for a place.
    pub queue: usize,
    /// Most tokens of an answer, and what one gets that names no number.
    pub max_tokens: usize,
    /// Seconds after which an answer is given up, waiting included.
    pub timeout: Duration,
    /// Most bytes that keys, values and activations of all sequences may take; `None` for no limit.
    pub memory: Option<usize>,
    /// Most bytes of the n-gram cache of a pair of vocabularies.
    pub ngram_bytes: usize,
    /// Most bytes of the examples that wait to be learnt from and, for each learner, of those that it
    /// replays.
    pub example_bytes: usize,
    /// What the drafter learns; `None` where it does not.
    pub learn: Option<LearnOptions>,
    /// Folder in which what was learnt is kept; `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// Time between two savings of the state.
    pub save_every: Duration,
    /// Most bytes of a saved state; a larger one is not written.
    pub state_bytes: u64,
    /// How targets elsewhere are asked.
    pub remote: RemoteOptions,
    /// Whether drafts made elsewhere are judged here, and for how many; `None` where they are not.
    pub expose: Option<Expose>,
}

impl Options {
    /// How the drafter is decoded.
    pub fn drafter_engine(&self) -> EngineSettings {
        EngineSettings {
            weights: self.draft_weights.unwrap_or(self.engine.weights),
            ..self.engine
        }
    }
}

/// How targets elsewhere are asked: those whose model folder is an `http://` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Their API key.
    pub key: Option<String>,
    /// Most probable draft tokens that drafts are drawn from, at least 1.
    pub draft_top: usize,
    /// Most probable tokens of the target's law that come back for each token, to be learnt from.
    pub law_top: usize,
    /// Time to wait for an answer.
    pub patience: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            key: None,
            draft_top: 16,
            law_top: 64,
            patience: Duration::from_secs(60),
        }
    }
}

/// For whom drafts are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expose {
    /// KV caches for drafts from elsewhere, at least 1.
    pub sessions: usize,
    /// Time after which one that is not used is freed.
    pub idle: Duration,
}

/// How a drafter learns while it serves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnOptions {
    /// Answers an update learns from, at least 1.
    pub every: usize,
    /// Learning rate of AdamW; `None` for one that suits the drafter's size.
    pub rate: Option<f64>,
    /// Rank of low-rank adapters; 0 trains weights.
    pub rank: usize,
    /// Last blocks of the drafter that learn, or have adapters; 0 for all of them, `None` for what suits
    /// the drafter's size.
    pub blocks: Option<usize>,
    /// Most updates a minute; `None` for as many as there are answers for.
    pub updates_per_minute: Option<u32>,
    /// Who has weights of its own.
    pub scope: LearnScope,
}

/// What of a drafter learns: one state holds one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cut {
    /// Rank of its adapters, 0 for weights.
    pub(crate) rank: usize,
    /// Last blocks that learn, 0 for all.
    #[serde(default)]
    pub(crate) blocks: usize,
}

impl std::fmt::Display for Cut {
    /// As the arguments of a server that ask for it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.rank, self.blocks) {
            (0, blocks) => write!(f, "--learn-blocks {blocks}"),
            (rank, 0) => write!(f, "--adapter-rank {rank}"),
            (rank, blocks) => write!(f, "--adapter-rank {rank} --learn-blocks {blocks}"),
        }
    }
}

/// Who has drafter weights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnScope {
    /// Every target.
    Target,
    /// Every user of every target, by the field `user` of requests; needs adapters.
    User,
}

/// Most users that get an adapter of their own; later ones learn into their target's.
pub(crate) const MOST_ADAPTERS: usize = 256;

/// Parameters from which on a drafter learns as a large one does: in its last blocks, in smaller
/// steps, and from every answer once. All of it would take longer than it saves.
const LARGE: usize = 50_000_000;

impl LearnOptions {
    /// With what was left open filled in, for a drafter of this shape whose states are kept or not.
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

    /// The settings of a learner of a drafter of this shape.
    pub(crate) fn config(&self, drafter: &LmConfig) -> LearnConfig {
        let large = drafter.num_params() >= LARGE;
        let defaults = LearnConfig::default();
        LearnConfig {
            objective: ObjectiveName::Hybrid,
            direct: DirectName::ForwardKl,
            every: self.every,
            lr: self.rate.unwrap_or(defaults.lr),
            replay: if large { 0 } else { 16 },
            replay_window: 256,
            ema: if large { 0.0 } else { 0.9 },
            likely: if large { 1e-4 } else { 0.0 },
            blocks: self.cut().blocks,
            lora: LoraSettings {
                rank: self.rank,
                ..LoraSettings::default()
            },
            ..defaults
        }
    }

    /// What of the drafter learns.
    pub(crate) fn cut(&self) -> Cut {
        Cut {
            rank: self.rank,
            blocks: self.blocks.unwrap_or(0),
        }
    }

    /// What drafts for this target and user.
    pub(crate) fn adapter(&self, target: &str, user: &str) -> String {
        match self.scope {
            LearnScope::User if !user.is_empty() => format!("{target}/{user}"),
            _ => target.to_owned(),
        }
    }
}
