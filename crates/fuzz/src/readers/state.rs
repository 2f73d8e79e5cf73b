//! Learnt states on disk.

use std::path::Path;
use std::sync::{Arc, Mutex};

use adaptive_draft::{Chain, Example, Head, HeadConfig, HeadTrainer, Score};
use anyhow::Result;
use lm::{AdamW, AdamWConfig, LmConfig, random_checkpoint};
use ngram_cache::{CacheConfig, Eviction, NgramCache};
use spec_decode::{SuffixCorpus, SuffixLookup};
use trace::{FORMAT, Law, Record, Source, Template, TraceFile, TraceInfo, TraceWriter, Values};
use vocab_align::{DraftId, TargetId};

use super::{put, written};
use crate::Reader;
use crate::mutate::Shape;

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
        let mut cache = NgramCache::load(put(folder, "cache", bytes)?)?;
        for ngram in 0..50 {
            cache.insert(&[DraftId(ngram), DraftId(1)], TargetId(ngram));
        }
        cache.memory_bytes();
        Ok(())
    },
};

pub const TEXTS: Reader = Reader {
    name: "texts",
    what: "saved texts with a suffix automaton, and look-ups in them",
    shape: Shape::Sealed,
    seeds: || {
        let texts = [10_000, 1 << 20].map(|limit| corpus(limit).to_bytes(7));
        Ok(texts.into_iter().collect())
    },
    read: |folder, bytes| {
        let path = put(folder, "texts", bytes)?;
        let mut corpus = SuffixCorpus::<TargetId>::load(path, 1 << 20, 7)?;
        corpus.absorb(&[1, 2, 3, 1, 2].map(TargetId));
        let mut lookup = SuffixLookup::new(Some(Arc::new(Mutex::new(corpus))));
        lookup.start(&[1, 2].map(TargetId));
        lookup.find(8);
        Ok(())
    },
};

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
        let path = put(folder, "head", bytes)?;
        let _ = Head::load(&path);
        HeadTrainer::load(&path, head_config(), 1)?.step_on_buffer()?;
        Ok(())
    },
};

pub const CHAINS: Reader = Reader {
    name: "chains",
    what: "the observations of throughput rules in state.json",
    shape: Shape::Json,
    seeds: || {
        let chains = [Chain::new(Score::Head), Chain::new(Score::Confidence)];
        Ok(vec![serde_json::to_vec(&chains)?])
    },
    read: |_, bytes| Ok(serde_json::from_slice::<Vec<Chain>>(bytes).map(drop)?),
};

pub const TRACE: Reader = Reader {
    name: "trace",
    what: "a trace (parquet): its prompts, and every row",
    shape: Shape::Bytes,
    seeds: || vec![trace(3), trace(6)].into_iter().collect(),
    read: |folder, bytes| every_record(&put(folder, "trace.parquet", bytes)?),
};

pub const PARTIAL_TRACE: Reader = Reader {
    name: "partial-trace",
    what: "the partial file of a recording, and what is recorded after it",
    shape: Shape::Bytes,
    seeds: || {
        let part = |top| {
            written("trace.parquet.part", |to| -> Result<()> {
                let mut writer = TraceWriter::open(&to.join("trace.parquet"), &info(top))?;
                Ok(records(top).try_for_each(|record| writer.push(&record))?)
            })
        };
        vec![part(3), part(6)].into_iter().collect()
    },
    read: |folder, bytes| {
        let path = folder.join("trace.parquet");
        let _ = std::fs::remove_file(&path);
        // A recording is continued only with its own settings: those of one of the two seeds.
        let open = |top| -> Result<_> {
            put(folder, "trace.parquet.part", bytes)?;
            Ok((top, TraceWriter::open(&path, &info(top))?))
        };
        let (top, mut writer) = open(3).or_else(|_| open(6))?;
        records(top)
            .filter(|record| !writer.has_id(&record.id))
            .collect::<Vec<_>>()
            .iter()
            .try_for_each(|record| writer.push(record))?;
        every_record(&writer.finish()?)
    },
};

fn every_record(path: &Path) -> Result<()> {
    let mut file = TraceFile::open(path)?;
    for row in 0..file.entries().len() {
        file.record(row)?;
    }
    Ok(())
}

/// A file with K = `top` of six tokens.
fn trace(top: usize) -> Result<Vec<u8>> {
    written("trace.parquet", |to| -> Result<()> {
        let mut writer = TraceWriter::open(&to.join("trace.parquet"), &info(top))?;
        records(top).try_for_each(|record| writer.push(&record))?;
        writer.finish()?;
        Ok(())
    })
}

fn info(top: usize) -> TraceInfo {
    TraceInfo {
        format: FORMAT,
        source: Source::Model {
            name: "model".to_owned(),
            sha256: String::new(),
            weights: "f32".to_owned(),
        },
        task: "task".to_owned(),
        split: "train".to_owned(),
        tokenizer_sha256: "00".to_owned(),
        template: Template::Plain,
        max_prompt_tokens: 8,
        vocab_size: 6,
        context: 64,
        stop: vec![5],
        max_tokens: 4,
        tail: 2,
        top,
        values: if top == 6 {
            Values::Logits
        } else {
            Values::LogProbs
        },
        temperature: 0.0,
        program: "fuzz".to_owned(),
    }
}

fn records(top: usize) -> impl Iterator<Item = Record> {
    (0..20_u32).map(move |i| {
        let path: Vec<u32> = (0..3).map(|j| (i + j) % 5).collect();
        let mut law = Law::new(&info(top));
        for token in &path {
            let row: Vec<f32> = (0..6)
                .map(|t| if t == *token { 2.0 } else { -0.1 * t as f32 })
                .collect();
            law.push_logits(&row);
        }
        Record {
            id: format!("prompt-{i}"),
            prompt: "text".to_owned(),
            prompt_ids: vec![i % 6, i / 6, 1],
            answer: path[..2].to_vec(),
            tail: path[2..].to_vec(),
            law,
        }
    })
}

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
        put(folder, "state.safetensors", bytes)?;
        pretrain::load_state(folder, &small()?)?;
        Ok(())
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

fn corpus(limit: usize) -> SuffixCorpus<TargetId> {
    let mut corpus = SuffixCorpus::new(limit);
    for seed in 0..20 {
        let text: Vec<TargetId> = (0..12).map(|i| TargetId((seed + i * i) % 9)).collect();
        corpus.absorb(&text);
    }
    corpus
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
