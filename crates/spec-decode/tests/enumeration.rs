//! The exact output distribution of a few cases chosen by hand; `law.rs` has random ones.

use crate::{cases, common};

use cases::{Setting, TOLERANCE};
use common::*;
use ngram_cache::NgramCache;
use spec_decode::testkit::{FakeModel, hashed_rows};
use spec_decode::{SessionConfig, VerifyMode};
use vocab_align::{DraftId, TargetId};

/// The error of models of the toy pair with this cache.
fn deviation(
    (drafter, target): (FakeModel<DraftId>, FakeModel<TargetId>),
    cache: NgramCache,
    config: SessionConfig,
    k: usize,
    rounds: usize,
) -> f64 {
    let setting = Setting {
        cache,
        k,
        rounds,
        ..Setting::new(drafter, target, pair(), config)
    };
    setting.deviation()
}

#[test]
fn without_ngrams_the_papers_rule_is_exact() {
    for seed in 0..3 {
        let config = config(VerifyMode::Paper, 1.0, 2);
        let off = deviation(hashed_models(seed, 3.0), cache_of(&[]), config, 2, 1);
        assert!(off < TOLERANCE, "seed {seed}: {off:e}");
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
        let off = deviation(models, true_cache(), config(mode, 0.8, 3), 2, 2);
        assert!(off < TOLERANCE, "{mode}: {off:e}");
    }
}

#[test]
fn a_long_ngram_that_the_draft_almost_spells_keeps_the_law() {
    // The reading of a, c, e as single proposals was settled three tokens later, by the d.
    let cache = cache_of(&[(&["a", "c", "e", "d"], "abd"), (&["c", "d"], "cd")]);
    let tokens = ["a", "c", "d", "e"];
    let models = small_models(&tokens, &["a", "c", "d", "e", "cd", "abd"]);
    let off = deviation(models, cache, config(VerifyMode::Exact, 1.0, 4), 4, 1);
    assert!(off < TOLERANCE, "{off:e}");
}
