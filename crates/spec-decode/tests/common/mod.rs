//! The toy pair that all integration tests share.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::BTreeSet;

use ngram_cache::{CacheConfig, NgramCache};
use proptest::prelude::ProptestConfig;
use spec_decode::testkit::{FakeModel, RowFn, ToyVocab, hashed_rows, text_rows, toy_pair};
use spec_decode::{
    LanguageModel, NoSink, Pair, PlainConfig, PlainGeneration, Prompt, Sampling, Session,
    SessionConfig, StreamName, VerifyMode, decode_plain,
};
use vocab_align::{DraftId, TargetId};

/// The drafter's tokens: `ef` and `bd` have no direct target token.
pub const DRAFT: ToyVocab<'static> = ToyVocab {
    merges: &[("e", "f"), ("b", "d")],
    added: &[],
};

/// The target's tokens, without the drafter's merged ones; `zz` can never be drafted. `<t>` is a
/// marker and `<u>` an added token with text, both without a counterpart.
pub const TARGET: ToyVocab<'static> = ToyVocab {
    merges: &[
        ("a", "b"),
        ("ab", "d"),
        ("c", "e"),
        ("a", "ce"),
        ("c", "d"),
        ("d", "e"),
        ("z", "z"),
        ("f", "a"),
        ("e", "fa"),
    ],
    added: &[("<t>", true), ("<u>", false)],
};

/// Settings of a property test that leaves no files behind.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Draft tokens with their text.
pub fn d(texts: &[&str]) -> Vec<DraftId> {
    texts
        .iter()
        .map(|text| DraftId(DRAFT.id(text).expect("a draft token")))
        .collect()
}

/// A target token by its text.
pub fn t(text: &str) -> TargetId {
    TargetId(TARGET.id(text).expect("a target token"))
}

/// The tokens to which the fake drafter gives any probability.
pub fn draft_active() -> Vec<u32> {
    ["a", "b", "c", "d", "e", "ef", "bd"]
        .iter()
        .map(|x| d(&[x])[0].0)
        .collect()
}

/// The tokens to which the fake target gives any probability.
pub fn target_active() -> Vec<u32> {
    let texts = [
        "a", "b", "c", "d", "e", "ab", "abd", "ace", "cd", "de", "efa", "zz",
    ];
    texts.iter().map(|x| t(x).0).collect()
}

/// Both vocabularies.
pub fn pair() -> Pair {
    toy_pair(&DRAFT, &TARGET).expect("valid toy tokenizers")
}

/// Memoryless pseudo-random models.
pub fn hashed_models(seed: u64, spread: f32) -> (FakeModel<DraftId>, FakeModel<TargetId>) {
    let draft: RowFn<DraftId> = hashed_rows(seed, DRAFT.len(), draft_active(), spread);
    let target_len = TARGET.len();
    let target: RowFn<TargetId> = hashed_rows(!seed, target_len, target_active(), spread);
    (
        FakeModel::new(DRAFT.len(), draft),
        FakeModel::new(target_len, target),
    )
}

/// Models that mostly agree about the text, with some probability of ending the turn.
pub fn text_models(
    seed: u64,
    pair: &Pair,
    disagreement: f32,
) -> (FakeModel<DraftId>, FakeModel<TargetId>) {
    let (mut draft, mut target) = (draft_active(), target_active());
    draft.push(DRAFT.end_of_turn());
    target.push(TARGET.end_of_turn());
    (
        FakeModel::new(
            DRAFT.len(),
            text_rows(seed, pair.draft.clone(), draft, disagreement),
        ),
        FakeModel::new(
            TARGET.len(),
            text_rows(seed, pair.target.clone(), target, 0.0),
        ),
    )
}

/// The n-grams that the toy target tokens really stand for.
pub fn true_cache() -> NgramCache {
    cache_of(&[
        (&["a", "b"], "ab"),
        (&["a", "bd"], "abd"),
        (&["a", "b", "d"], "abd"),
        (&["a", "c", "e"], "ace"),
        (&["c", "d"], "cd"),
        (&["d", "e"], "de"),
        (&["ef", "a"], "efa"),
    ])
}

/// A cache with these n-grams.
pub fn cache_of(ngrams: &[(&[&str], &str)]) -> NgramCache {
    let mut cache = NgramCache::new(CacheConfig::default());
    for (spelling, target) in ngrams {
        cache.insert(&d(spelling), t(target));
    }
    cache
}

/// Settings without stop tokens.
pub fn config(mode: VerifyMode, temperature: f64, max_new_tokens: usize) -> SessionConfig {
    SessionConfig {
        sampling: Sampling::new(temperature).expect("a valid temperature"),
        learn_ngrams: false,
        ..SessionConfig::new(mode, max_new_tokens)
    }
}

/// The stop token of the toy target.
pub fn stop() -> BTreeSet<TargetId> {
    BTreeSet::from([TargetId(TARGET.end_of_turn())])
}

/// A session of the toy pair.
pub fn session(
    models: (FakeModel<DraftId>, FakeModel<TargetId>),
    pair: Pair,
    config: SessionConfig,
) -> Session<FakeModel<DraftId>, FakeModel<TargetId>> {
    Session::new(models.0, models.1, pair, config).expect("a valid session")
}

/// The response of a target that decodes alone by the settings of a session.
pub fn plain(
    target: &mut impl LanguageModel,
    prompt: &[TargetId],
    config: &SessionConfig,
    name: StreamName,
) -> PlainGeneration {
    let config = PlainConfig {
        sampling: config.sampling,
        max_new_tokens: config.max_new_tokens,
        stop: config.stop.clone(),
    };
    decode_plain(target, prompt, &config, name, &mut NoSink).expect("decodes")
}

/// The prompt "ca" in both vocabularies.
pub const PROMPT: Prompt<'static> = Prompt {
    draft: &[DraftId(b'c' as u32), DraftId(b'a' as u32)],
    target: &[TargetId(b'c' as u32), TargetId(b'a' as u32)],
};
