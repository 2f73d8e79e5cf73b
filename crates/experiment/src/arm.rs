//! An arm of a job: a full configuration with a name.

use serde::{Deserialize, Serialize};

use crate::settings::{
    CacheOptions, CacheUse, DecodeConfig, DraftSource, HeadOptions, LearnConfig, Lookup,
    ObjectiveName, PolicyName,
};

/// A method, with all settings that determine its behaviour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmConfig {
    /// Label in tables and figures.
    pub name: String,
    /// Drafting and decoding.
    pub decode: DecodeConfig,
    /// Learning of the drafter.
    pub learn: LearnConfig,
    /// Its n-gram cache.
    pub cache: CacheOptions,
    /// Its acceptance head.
    pub head: HeadOptions,
    /// The arm whose drafter, n-grams and head it uses on held-out prompts instead of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_by: Option<String>,
    /// The sweep that made it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_from: Option<SweptFrom>,
}

/// The origin of an arm made by a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweptFrom {
    /// Name of the arm in the file, without the values.
    pub arm: String,
    /// Dotted keys with this arm's values, in the order of the sweep.
    pub values: Vec<(String, serde_json::Value)>,
}

impl ArmConfig {
    /// True for plain decoding by the target alone.
    pub fn is_plain(&self) -> bool {
        self.decode.verify.is_none()
    }

    /// True if drafts are looked up in the context, in the target's own tokens, without a drafter.
    pub fn looks_up(&self) -> bool {
        !self.is_plain() && self.decode.draft == DraftSource::PromptLookup
    }

    /// True if its drafter learns.
    pub fn learns(&self) -> bool {
        !self.is_plain() && self.learn.objective != ObjectiveName::None
    }

    /// True if n-grams are merged.
    pub fn uses_cache(&self) -> bool {
        !self.is_plain() && self.cache.source != CacheUse::None
    }

    /// True if streamed prompts add n-grams to its cache.
    pub fn inserts_ngrams(&self) -> bool {
        !self.is_plain() && self.cache.source == CacheUse::Online
    }

    /// True if a streamed prompt changes the arm's state.
    pub fn changes(&self) -> bool {
        let decode = &self.decode;
        let estimates = decode.policy == PolicyName::Throughput || decode.lookup != Lookup::Off;
        let adapts = self.head.training.is_online() || estimates || decode.controller;
        let own = !self.is_plain() && self.learnt_by.is_none();
        own && (self.inserts_ngrams() || self.learns() || adapts)
    }
}
