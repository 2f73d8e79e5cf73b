//! `[cache]`: the n-gram cache.

use ngram_cache::{CacheConfig, Eviction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The n-gram cache: target tokens that several draft tokens spell, merged in translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// Whether n-grams are cached and merged, and where they come from. Only `verify = "paper"` and
    /// `"exact"` merge.
    #[serde(rename = "use")]
    pub source: CacheUse,
    /// What leaves a full cache.
    pub eviction: Eviction,
    /// Most n-grams held; left out, there is no limit.
    pub max_entries: Option<usize>,
    /// Most bytes of memory; left out, there is no limit.
    pub max_bytes: Option<usize>,
    /// Whether the n-grams of two vocabularies wait while a target with another vocabulary answers;
    /// if not, they are gone when theirs comes back.
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

/// Where n-grams come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheUse {
    /// There are none.
    #[default]
    None,
    /// From accepted tokens, while they stream (Algorithm 1).
    Online,
    /// From the vocabularies: the canonical spelling of every target token, computed when the models
    /// are loaded; nothing is added later.
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
