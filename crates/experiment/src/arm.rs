//! One arm of a job: a full configuration with a name.

use serde::{Deserialize, Serialize};

use crate::settings::{
    CacheOptions, CacheUse, DecodeConfig, DraftSource, HeadOptions, LearnConfig, Lookup,
    ObjectiveName, PolicyName,
};

/// One method, with everything that determines what it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmConfig {
    /// Label in tables and figures.
    pub name: String,
    /// How it drafts and decodes.
    pub decode: DecodeConfig,
    /// What its drafter learns.
    pub learn: LearnConfig,
    /// Its n-gram cache.
    pub cache: CacheOptions,
    /// Its acceptance head.
    pub head: HeadOptions,
    /// The arm whose drafter, n-grams and head it uses on held-out prompts, instead of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_by: Option<String>,
    /// Where a sweep made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_from: Option<SweptFrom>,
}

/// What an arm made by a sweep was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweptFrom {
    /// Name of the arm in the file, without the values.
    pub arm: String,
    /// Dotted keys with this arm's values, in the order of the sweep.
    pub values: Vec<(String, serde_json::Value)>,
}

impl ArmConfig {
    /// Whether the target decodes alone.
    pub fn is_plain(&self) -> bool {
        self.decode.verify.is_none()
    }

    /// Whether drafts are looked up in the context, in the target's own tokens, without a drafter.
    pub fn looks_up(&self) -> bool {
        !self.is_plain() && self.decode.draft == DraftSource::PromptLookup
    }

    /// Whether a drafter learns.
    pub fn learns(&self) -> bool {
        !self.is_plain() && self.learn.objective != ObjectiveName::None
    }

    /// Whether n-grams are merged.
    pub fn uses_cache(&self) -> bool {
        !self.is_plain() && self.cache.source != CacheUse::None
    }

    /// Whether streamed prompts leave n-grams in its cache.
    pub fn inserts_ngrams(&self) -> bool {
        !self.is_plain() && self.cache.source == CacheUse::Online
    }

    /// Whether answering a streamed prompt leaves a trace in the arm.
    pub fn changes(&self) -> bool {
        let decode = &self.decode;
        let estimates = decode.policy == PolicyName::Throughput || decode.lookup != Lookup::Off;
        let adapts = self.head.training.is_online() || estimates || decode.controller;
        let own = !self.is_plain() && self.learnt_by.is_none();
        own && (self.inserts_ngrams() || self.learns() || adapts)
    }

    /// Name of the arm in the file: its own, or what a sweep made it from.
    pub fn family(&self) -> &str {
        self.swept_from
            .as_ref()
            .map_or(&self.name, |from| &from.arm)
    }
}
