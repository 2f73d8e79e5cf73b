//! `[cache]`: the n-gram cache.

use ngram_cache::{CacheConfig, Eviction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The n-gram cache. An n-gram is a target token that several draft tokens spell; translation
/// merges those draft tokens into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// Source of the cached n-grams; `"none"` disables the cache. Only `verify = "paper"` and
    /// `"exact"` merge n-grams.
    #[serde(rename = "use")]
    pub source: CacheUse,
    /// Eviction policy of a full cache.
    pub eviction: Eviction,
    /// Maximum number of n-grams; left out, there is no limit.
    pub max_entries: Option<usize>,
    /// Maximum memory in bytes; left out, there is no limit.
    pub max_bytes: Option<usize>,
    /// Keeps the n-grams of a pair of vocabularies while a target with another vocabulary answers;
    /// if false, they are dropped at the switch.
    pub keep: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            source: CacheUse::None,
            eviction: Eviction::None,
            max_entries: None,
            max_bytes: None,
            keep: true,
        }
    }
}

/// A source of n-grams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheUse {
    /// No n-grams.
    #[default]
    None,
    /// Accepted tokens, as they stream (Algorithm 1).
    Online,
    /// The vocabularies: the canonical spelling of every target token, computed when the models are
    /// loaded; nothing is added later.
    Static,
}

impl From<CacheOptions> for CacheConfig {
    fn from(options: CacheOptions) -> Self {
        Self {
            eviction: options.eviction,
            max_entries: options.max_entries,
            max_bytes: options.max_bytes,
        }
    }
}
