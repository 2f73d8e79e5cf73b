//! The exact output distribution of a few cases chosen by hand; `law.rs` has random ones.

use crate::common;

use std::collections::BTreeMap;

use common::*;
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::testkit::{FakeModel, hashed_rows, law_of};
use spec_decode::{ConstantLength, NoSink, Pair, Sampling, SessionConfig, VerifyMode};
use vocab_align::{DraftId, TargetId};

type Law = BTreeMap<Vec<TargetId>, f64>;

/// The distribution of the next `len` tokens after `prefix` when the target decodes alone.
fn extend(
    target: &FakeModel<TargetId>,
    sampling: Sampling,
    prefix: &[TargetId],
    mass: f64,
    len: usize,
    law: &mut Law,
) {
    if prefix.len() >= len {
        *law.entry(prefix[..len].to_vec()).or_default() += mass;
        return;
    }
    let context = [PROMPT.target, prefix].concat();
    let mut next = Vec::new();
    sampling
        .law(&target.row(&context), &mut next)
        .expect("a law");
    for (token, p) in next.iter().enumerate().filter(|&(_, &p)| p > 0.0) {
        let longer = [prefix, &[TargetId(token as u32)]].concat();
        extend(target, sampling, &longer, mass * p, len, law);
    }
}

/// Largest deviation between the distribution of `len` tokens after `rounds` rounds (continued by
/// plain decoding) and the target's own.
fn deviation(
    models: (FakeModel<DraftId>, FakeModel<TargetId>),
    pair: Pair,
    cache: &NgramCache,
    config: SessionConfig,
    k: usize,
    rounds: usize,
) -> f64 {
    let (target, sampling) = (models.1.clone(), config.sampling);
    let len = config.max_new_tokens;
    let mut session = session(models, pair, config);
    let mut cache = cache.clone();
    let outcomes = law_of(|oracle| {
        let dice = || Box::new(oracle.clone());
        session
            .start_with(PROMPT, dice(), dice())
            .expect("a prompt");
        for _ in 0..rounds {
            if session.finished().is_none() {
                session
                    .round(Some(&mut cache), &mut ConstantLength(k), &mut NoSink)
                    .expect("a round");
            }
        }
        session.response().to_vec()
    });
    let (mut found, mut expected) = (Law::new(), Law::new());
    for (response, mass) in &outcomes {
        extend(&target, sampling, response, *mass, len, &mut found);
    }
    extend(&target, sampling, &[], 1.0, len, &mut expected);
    let total: f64 = found.values().sum();
    assert!((total - 1.0).abs() < 1e-12, "the law sums to {total}");
    let at = |law: &Law, key: &Vec<TargetId>| law.get(key).copied().unwrap_or(0.0);
    found
        .keys()
        .chain(expected.keys())
        .map(|key| (at(&found, key) - at(&expected, key)).abs())
        .fold(0.0, f64::max)
}

fn one_round(mode: VerifyMode, seed: u64, temperature: f64, cache: &NgramCache, k: usize) -> f64 {
    let config = config(mode, temperature, 2);
    deviation(hashed_models(seed, 3.0), pair(), cache, config, k, 1)
}

#[test]
fn without_ngrams_the_papers_rule_is_exact() {
    let empty = NgramCache::new(CacheConfig::default());
    for seed in 0..3 {
        let off = one_round(VerifyMode::Paper, seed, 1.0, &empty, 2);
        assert!(off < 1e-12, "seed {seed}: {off:e}");
    }
}

/// Models over a few tokens, so that long drafts can be enumerated.
fn small_models(draft: &[&str], target: &[&str]) -> (FakeModel<DraftId>, FakeModel<TargetId>) {
    let draft = d(draft).into_iter().map(|id| id.0).collect();
    let target = target.iter().map(|text| t(text).0).collect();
    (
        FakeModel::new(DRAFT.len(), hashed_rows(5, DRAFT.len(), draft, 3.0)),
        FakeModel::new(TARGET.len(), hashed_rows(6, TARGET.len(), target, 3.0)),
    )
}

#[test]
fn the_law_survives_the_seam_between_rounds() {
    // The second round starts from rolled back caches and a re-tokenised context.
    for mode in [VerifyMode::Tli, VerifyMode::Exact] {
        let models = small_models(&["a", "b", "c", "ef"], &["a", "b", "ab", "ace", "efa"]);
        let off = deviation(models, pair(), &true_cache(), config(mode, 0.8, 3), 2, 2);
        assert!(off < 1e-12, "{mode}: {off:e}");
    }
}

#[test]
fn a_long_ngram_that_the_draft_almost_spells_keeps_the_law() {
    // The reading of a, c, e as single proposals was settled three tokens later, by the d.
    let cache = cache_of(&[(&["a", "c", "e", "d"], "abd"), (&["c", "d"], "cd")]);
    let tokens = ["a", "c", "d", "e"];
    let models = small_models(&tokens, &["a", "c", "d", "e", "cd", "abd"]);
    let off = deviation(
        models,
        pair(),
        &cache,
        config(VerifyMode::Exact, 1.0, 4),
        4,
        1,
    );
    assert!(off < 1e-12, "{off:e}");
}
