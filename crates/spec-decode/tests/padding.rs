//! Padding rows: a model's head may have more rows than its tokenizer has ids.

use crate::{cases, common};

use cases::{Law, Setting, TOLERANCE};
use common::*;
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::testkit::{FakeModel, RowFn, hashed_rows};
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

/// Every mode emits padding rows with their probability, and continues after them.
#[test]
fn padding_rows_are_emitted_with_their_probability() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli] {
        let (draft, target) = padded();
        let setting = Setting {
            cache: true_cache(),
            rounds: 2,
            ..Setting::new(draft, target, pair(), config(mode, 1.0, 2))
        };
        let mut expected = Law::new();
        setting.alone.extend(&[], 1.0, &mut expected);
        let padding: f64 = expected
            .iter()
            .filter(|(ids, _)| ids.iter().any(|id| id.index() >= TARGET.len()))
            .map(|(_, mass)| mass)
            .sum();
        assert!(padding > 0.1, "{mode:?}: {padding}");
        let off = setting.deviation();
        assert!(off < TOLERANCE, "{mode:?}: off by {off:e}");
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
