//! What was learnt, on disk.

use std::path::Path;

use adaptive_draft::{Chain, Example, Head, HeadConfig, HeadTrainer, Score};
use anyhow::Result;
use lm::{AdamW, AdamWConfig, LmConfig, random_checkpoint};
use ngram_cache::{CacheConfig, Eviction, NgramCache};
use vocab_align::{DraftId, TargetId};

use super::{put, written};
use crate::mutate::Shape;
use crate::{Outcome, Reader};

/// A saved n-gram cache.
pub const CACHE: Reader = Reader {
    name: "cache",
    what: "a saved n-gram cache, and lookups in it",
    shape: Shape::Sealed,
    seeds: || {
        let all = [Eviction::None, Eviction::Lru, Eviction::Lfu];
        all.map(|eviction| written("cache", |to| cache(eviction).save(to.join("cache"))))
            .into_iter()
            .collect()
    },
    read: |folder, bytes| {
        let read = || -> Result<()> {
            let mut cache = NgramCache::load(put(folder, "cache", bytes)?)?;
            for ngram in 0..50 {
                cache.insert(&[DraftId(ngram), DraftId(1)], TargetId(ngram));
            }
            cache.memory_bytes();
            Ok(())
        };
        read().into()
    },
};

/// An acceptance head with its training.
pub const HEAD: Reader = Reader {
    name: "head",
    what: "head.safetensors, and a step of training",
    shape: Shape::Safetensors,
    seeds: || {
        let mut trainer = HeadTrainer::new(Head::new(3, 2, 1), head_config(), 1);
        trainer.extend((0..5_u8).map(|i| Example {
            features: vec![f32::from(i), 0.5, -1.0],
            label: f32::from(i % 2),
        }));
        trainer.step_on_buffer()?;
        Ok(vec![written("head", |to| trainer.save(&to.join("head")))?])
    },
    read: |folder, bytes| {
        let read = || -> Result<()> {
            let path = put(folder, "head", bytes)?;
            let _ = Head::load(&path);
            HeadTrainer::load(&path, head_config(), 1)?.step_on_buffer()?;
            Ok(())
        };
        read().into()
    },
};

/// What throughput rules have seen.
pub const CHAINS: Reader = Reader {
    name: "chains",
    what: "chains.txt of throughput rules",
    shape: Shape::Toml,
    seeds: || {
        let chains = [Chain::new(Score::Head), Chain::new(Score::Confidence)];
        let save = |to: &Path| Chain::save(&chains, &to.join("chains.txt"));
        Ok(vec![written("chains.txt", save)?])
    },
    read: |folder, bytes| {
        let path = put(folder, "chains.txt", bytes);
        match path {
            Ok(path) => Chain::load(&path).into(),
            Err(_) => Outcome::Refused,
        }
    },
};

/// The state of an interrupted pretraining.
pub const PRETRAINING: Reader = Reader {
    name: "pretraining",
    what: "state.safetensors of a pretraining",
    shape: Shape::Safetensors,
    seeds: || {
        let checkpoint = random_checkpoint(&small()?, 1);
        let optimizer = AdamW::new(AdamWConfig::default());
        let save = |to: &Path| pretrain::save_state(to, &checkpoint, &optimizer);
        Ok(vec![written("state.safetensors", save)?])
    },
    read: |folder, bytes| {
        let read = || -> Result<()> {
            put(folder, "state.safetensors", bytes)?;
            pretrain::load_state(folder, &small()?)?;
            Ok(())
        };
        read().into()
    },
};

fn small() -> Result<LmConfig> {
    let json = r#"{"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 20}"#;
    Ok(LmConfig::from_json(json, "config.json".as_ref())?)
}

fn head_config() -> HeadConfig {
    HeadConfig {
        hidden: 2,
        buffer: 100,
        batch: 4,
        steps: 1,
        ..HeadConfig::default()
    }
}

fn cache(eviction: Eviction) -> NgramCache {
    let mut cache = NgramCache::new(CacheConfig {
        eviction,
        max_entries: Some(20),
        max_bytes: None,
    });
    for i in 0..30 {
        let ngram = [i, i * 7 % 11, i % 3].map(DraftId);
        cache.insert(&ngram[..2 + (i % 2) as usize], TargetId(i));
    }
    cache
}
