//! Padding rows: a model's head may have more rows than its tokenizer has ids.

use crate::common;

use std::collections::BTreeMap;

use common::*;
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::testkit::{FakeModel, RowFn, hashed_rows, law_of};
use spec_decode::{ConstantLength, NoSink, Session, SessionConfig, VerifyMode};
use vocab_align::{DraftId, TargetId, TokenId};

/// Rows of the target's head beyond its tokenizer, two of which have probability.
const ROWS: usize = 4;

fn padded() -> (FakeModel<DraftId>, FakeModel<TargetId>) {
    let rows = |len: usize, mut active: Vec<u32>| {
        active.extend([len as u32 + 1, len as u32 + 3]);
        (len + ROWS, active)
    };
    let (vocab, active) = rows(DRAFT.len(), draft_active());
    let draft: RowFn<DraftId> = hashed_rows(7, vocab, active, 2.0);
    let draft = FakeModel::new(vocab, draft);
    let (vocab, active) = rows(
        TARGET.len(),
        ["a", "b", "ab", "cd"].map(|x| t(x).0).to_vec(),
    );
    let target: RowFn<TargetId> = hashed_rows(8, vocab, active, 1.0);
    (draft, FakeModel::new(vocab, target))
}

/// The target's own distribution of two tokens.
fn alone(target: &FakeModel<TargetId>) -> BTreeMap<Vec<TargetId>, f64> {
    let softmax = |ids: &[TargetId]| -> Vec<f64> {
        let row = target.row(ids);
        let weights: Vec<f64> = row.iter().map(|x| f64::from(*x).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|w| w / total).collect()
    };
    let mut law = BTreeMap::new();
    let prompt = PROMPT.target.to_vec();
    for (first, p) in softmax(&prompt).into_iter().enumerate() {
        if p == 0.0 {
            continue;
        }
        let first = TargetId(first as u32);
        let context = [&prompt[..], &[first]].concat();
        for (second, q) in softmax(&context).into_iter().enumerate() {
            if q > 0.0 {
                law.insert(vec![first, TargetId(second as u32)], p * q);
            }
        }
    }
    law
}

/// Every mode emits padding rows with their probability, and continues after them.
#[test]
fn padding_rows_are_emitted_with_their_probability() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli] {
        let (draft, target) = padded();
        let expected = alone(&target);
        let config = SessionConfig {
            learn_ngrams: false,
            ..config(mode, 1.0, 2)
        };
        let mut session = Session::new(draft, target, pair(), config).expect("a valid session");
        let mut cache = true_cache();
        let mut found: BTreeMap<Vec<TargetId>, f64> = BTreeMap::new();
        let outcomes = law_of(|oracle| {
            let dice = || Box::new(oracle.clone());
            session.start_with(PROMPT, dice(), dice()).expect("starts");
            while session.finished().is_none() {
                session
                    .round(Some(&mut cache), &mut ConstantLength(1), &mut NoSink)
                    .expect("padding rows end nothing");
            }
            session.response().to_vec()
        });
        for (response, mass) in outcomes {
            *found.entry(response).or_default() += mass;
        }
        let padding: f64 = expected
            .iter()
            .filter(|(ids, _)| ids.iter().any(|id| id.index() >= TARGET.len()))
            .map(|(_, mass)| mass)
            .sum();
        assert!(padding > 0.1, "{mode:?}: {padding}");
        for (response, mass) in &expected {
            let other = found.get(response).copied().unwrap_or(0.0);
            assert!(
                (mass - other).abs() < 1e-12,
                "{mode:?} {response:?}: {mass} {other}"
            );
        }
    }
}

/// Padding rows are never proposed, add nothing to the drafter's context, and change no n-grams.
#[test]
fn padding_rows_are_never_proposed_and_add_nothing_to_the_context() {
    for mode in VerifyMode::ALL {
        let (draft, target) = padded();
        let pair = pair();
        let config = SessionConfig {
            learn_ngrams: true,
            ..config(mode, 1.0, 40)
        };
        let mut session = Session::new(draft, target, pair.clone(), config).expect("valid");
        let mut cache = NgramCache::new(CacheConfig::default());
        let name = spec_decode::StreamName::new(3, 0);
        session.start(PROMPT, name).expect("starts");
        while session.finished().is_none() {
            let outcome = session
                .round(Some(&mut cache), &mut ConstantLength(3), &mut NoSink)
                .expect("padding rows end nothing");
            assert!(outcome.draft.iter().all(|id| id.index() < DRAFT.len()));
            let proposed = outcome.proposals.iter().map(|p| p.target.index());
            assert!(proposed.into_iter().all(|id| id < TARGET.len()));
        }
        let response = session.response();
        assert!(
            response.iter().any(|id| id.index() >= TARGET.len()),
            "{mode:?}"
        );
        let bytes = pair.target.decode_bytes(response);
        let context = &session.draft_context()[PROMPT.draft.len()..];
        assert_eq!(context, pair.draft.encode_bytes(&bytes).expect("toy text"));
        for ngram in cache.entries() {
            assert_eq!(
                pair.draft.decode_bytes(&ngram.draft),
                pair.target.decode_bytes(&[ngram.target])
            );
        }
    }
}
