//! Tokens that the models have read: drafters shorter than the text, turns of a conversation,
//! contexts in the drafter's own tokens.

use crate::common;

use common::*;
use proptest::prelude::*;
use spec_decode::testkit::{FakeModel, RowFn};
use spec_decode::{
    ConstantLength, DraftPolicy, Generation, History, LanguageModel, NoSink, Pair, Prompt,
    SessionConfig, StreamName, VerifyMode,
};
use std::sync::Arc;
use vocab_align::{DraftId, TargetId};

/// A prompt of `length` letters in both vocabularies.
fn letters(length: usize) -> (Vec<DraftId>, Vec<TargetId>) {
    let letter = |i: usize| u32::from(b"abcde"[(i * 7 + i / 5) % 5]);
    let ids = (0..length).map(letter);
    (
        ids.clone().map(DraftId).collect(),
        ids.map(TargetId).collect(),
    )
}

fn greedy(mode: VerifyMode, tokens: usize) -> SessionConfig {
    SessionConfig {
        stop: stop(),
        ..SessionConfig::new(mode, tokens)
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// The prompt, the response, or both outgrow the drafter.
    #[test]
    fn a_drafter_shorter_than_the_text_drafts_from_its_end(
        seed in any::<u64>(),
        max_len in 1usize..40,
        length in 1usize..60,
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
        k in 1usize..7,
    ) {
        let pair = pair();
        let (drafter, target) = text_models(seed, &pair, 0.3);
        let (draft_ids, target_ids) = letters(length);
        let (settings, name) = (greedy(mode, 50), StreamName::new(seed, 0));
        let expected = plain(&mut target.clone(), &target_ids, &settings, name).tokens;
        let models = (drafter.with_max_len(max_len), target);
        let mut session = session(models, pair, settings);
        let prompt = Prompt { draft: &draft_ids, target: &target_ids };
        let mut cache = true_cache();
        let k = &mut ConstantLength(k);
        let found = session.generate(prompt, name, Some(&mut cache), k, &mut NoSink);
        let found = found.expect("generates");
        prop_assert_eq!(&found.tokens, &expected);
        // With room for a few tokens it drafts in every round.
        if max_len > 16 {
            prop_assert!(found.rounds.iter().all(|round| !round.draft.is_empty()));
        }
    }
}

#[test]
fn a_long_context_is_read_again_only_now_and_then() {
    let pair = pair();
    let (drafter, target) = text_models(5, &pair, 0.3);
    let (draft_ids, target_ids) = letters(500);
    let models = (drafter.with_max_len(64), target);
    let settings = SessionConfig::new(VerifyMode::Exact, 300);
    let mut session = session(models, pair, settings);
    let prompt = Prompt {
        draft: &draft_ids,
        target: &target_ids,
    };
    let k = &mut ConstantLength(4);
    let name = StreamName::new(0, 0);
    let done = session.generate(prompt, name, Some(&mut true_cache()), k, &mut NoSink);
    let done = done.expect("generates");
    assert_eq!(done.tokens.len(), 300);
    let drafted: usize = done.rounds.iter().map(|round| round.draft.len()).sum();
    let read: usize = session.drafter().forwards.iter().sum();
    // 64 positions move by 16: 48 tokens are read again for every 10 or so new ones, not in every
    // round.
    assert!(read < drafted + 300 * 48 / 8, "{read} for {drafted}");
    let rebuilt = session
        .drafter()
        .forwards
        .iter()
        .filter(|n| **n > 16)
        .count();
    assert!((5..done.rounds.len()).contains(&rebuilt), "{rebuilt}");
    assert!(done.totals.acceptance_rate() > 0.2);
}

/// Number of tokens that a model was fed since the last call.
fn fed<I>(model: &FakeModel<I>, before: usize) -> usize {
    model.forwards[before..].iter().sum()
}

#[test]
fn the_next_turn_reads_what_is_new() {
    for mode in VerifyMode::ALL {
        let pair = pair();
        let models = text_models(11, &pair, 0.3);
        let (mut draft_ids, mut target_ids) = letters(40);
        let mut held = session(models.clone(), pair.clone(), config(mode, 0.0, 20));
        let mut cache = true_cache();
        for turn in 0..4 {
            let prompt = Prompt {
                draft: &draft_ids,
                target: &target_ids,
            };
            let before = (held.drafter().forwards.len(), held.target().forwards.len());
            let name = StreamName::new(0, turn);
            let k = &mut ConstantLength(3);
            held.start(prompt, name).expect("starts");
            let read = (fed(held.drafter(), before.0), fed(held.target(), before.1));
            if turn > 0 {
                // The turn's own letters, and the part of the answer that the caches did not hold.
                assert!(
                    read.0 <= 16 && read.1 <= 11,
                    "{mode}, turn {turn}: {read:?}"
                );
            }
            while held.finished().is_none() {
                held.round(Some(&mut cache), k, &mut NoSink)
                    .expect("a round");
            }
            let mut fresh = session(models.clone(), pair.clone(), config(mode, 0.0, 20));
            let again = fresh.generate(prompt, name, Some(&mut cache), k, &mut NoSink);
            assert_eq!(held.response(), again.expect("generates").tokens);
            // The next prompt: this one, its answer, ten more letters.
            let more = letters(10);
            target_ids.extend(held.response());
            target_ids.extend(&more.1);
            draft_ids = held.draft_context().to_vec();
            draft_ids.extend(&more.0);
        }
        // Another prompt, and one that is the beginning of the last.
        for prompt in [letters(7), letters(3)] {
            let prompt = Prompt {
                draft: &prompt.0,
                target: &prompt.1,
            };
            let name = StreamName::new(1, 0);
            let k = &mut ConstantLength(3);
            let found = held.generate(prompt, name, Some(&mut cache), k, &mut NoSink);
            let mut fresh = session(models.clone(), pair.clone(), config(mode, 0.0, 20));
            let again = fresh.generate(prompt, name, Some(&mut cache), k, &mut NoSink);
            assert_eq!(
                found.expect("generates").tokens,
                again.expect("generates").tokens
            );
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Copied text, accepted or not, and answers that begin like earlier ones.
    #[test]
    fn looking_up_changes_nothing_at_temperature_0(
        seed in any::<u64>(),
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
        copy in 0usize..9,
        draft in any::<bool>(),
    ) {
        struct Some4 { copy: usize, draft: bool }
        impl DraftPolicy for Some4 {
            fn plan_copy(&mut self, _: &spec_decode::Found) -> spec_decode::CopyPlan {
                spec_decode::CopyPlan { copy: self.copy, draft: self.draft }
            }
            fn next_len(&mut self) -> usize { 4 }
        }
        let pair = pair();
        let (drafter, target) = text_models(seed, &pair, 0.3);
        let mut session = session((drafter, target.clone()), pair, greedy(mode, 60));
        session.look_up_in(History::default());
        let mut cache = true_cache();
        for length in [20, 21, 20] {
            let (draft_ids, target_ids) = letters(length);
            let prompt = Prompt { draft: &draft_ids, target: &target_ids };
            let policy = &mut Some4 { copy, draft };
            let name = StreamName::new(seed, 0);
            let found = session.generate(prompt, name, Some(&mut cache), policy, &mut NoSink);
            let found = found.expect("generates");
            let own = plain(&mut target.clone(), &target_ids, &greedy(mode, 60), name);
            prop_assert_eq!(&found.tokens, &own.tokens);
            let behind = |round: &spec_decode::RoundOutcome| !round.draft.is_empty();
            prop_assert!(draft || found.rounds.iter().all(|r| r.looked_up() == 0 || !behind(r)));
        }
    }
}

#[test]
fn a_repeated_answer_is_copied() {
    let pair = pair();
    let models = text_models(2, &pair, 0.3);
    let mut session = session(models, pair, greedy(VerifyMode::Exact, 60));
    session.look_up_in(History::default());
    let (draft_ids, target_ids) = letters(20);
    let prompt = Prompt {
        draft: &draft_ids,
        target: &target_ids,
    };
    let mut run = || -> Generation {
        let k = &mut ConstantLength(4);
        let name = StreamName::new(0, 0);
        let done = session.generate(prompt, name, None, k, &mut NoSink);
        done.expect("generates")
    };
    let (first, second) = (run(), run());
    assert_eq!(first.tokens, second.tokens);
    assert!(second.totals.rounds * 2 < first.totals.rounds);
    assert!(second.rounds[0].looked_up() > 20);
}

#[test]
fn over_one_vocabulary_the_drafter_reads_canonical_tokens() {
    // The target emits a, then b, although its tokenizer would write ab.
    let (a, b, ab) = (t("a"), t("b"), t("ab"));
    let rows: RowFn<TargetId> = Arc::new(move |ids: &[TargetId]| {
        let mut row = vec![f32::NEG_INFINITY; TARGET.len()];
        let next = if ids.last() == Some(&a) { b } else { a };
        row[next.0 as usize] = 0.0;
        row
    });
    let draft_rows: RowFn<DraftId> = Arc::new(|_| vec![0.0; TARGET.len()]);
    let models = (
        FakeModel::new(TARGET.len(), draft_rows),
        FakeModel::new(TARGET.len(), rows),
    );
    let pair = Pair::shared(pair().target);
    let mut session = session(models, pair, config(VerifyMode::Exact, 1.0, 4));
    let name = StreamName::new(0, 0);
    let k = &mut ConstantLength(2);
    let prompt = Prompt {
        draft: &[DraftId(b'c'.into())],
        target: &[TargetId(b'c'.into())],
    };
    let done = session.generate(prompt, name, None, k, &mut NoSink);
    assert_eq!(done.expect("generates").tokens, [a, b, a, b]);
    let read: Vec<u32> = session.draft_context().iter().map(|id| id.0).collect();
    assert_eq!(read, [u32::from(b'c'), ab.0, ab.0]);
    assert!(session.drafter().len() < read.len());
}

/// Reading ahead ends a response whose last tokens the drafter has not seen.
#[test]
fn a_response_left_in_the_middle_ends_as_the_next_prompt_is_read_ahead() {
    let pair = pair();
    let models = text_models(11, &pair, 0.3);
    let settings = SessionConfig {
        drafter_reads: false,
        ..config(VerifyMode::Exact, 0.0, 20)
    };
    let mut fresh = session(models.clone(), pair.clone(), settings.clone());
    let mut held = session(models, pair, settings);
    held.start(PROMPT, StreamName::new(0, 0)).expect("starts");
    held.round(None, &mut ConstantLength(0), &mut NoSink)
        .expect("a round");
    assert_eq!(held.finished(), None);
    let (draft_ids, target_ids) = letters(30);
    let all_read = held.read_ahead(&target_ids, 10).expect("reads");
    assert!(!all_read && held.response().is_empty());
    held.end_response().expect("ends");
    let prompt = Prompt {
        draft: &draft_ids,
        target: &target_ids,
    };
    let [own, other] = [&mut held, &mut fresh].map(|session| {
        let k = &mut ConstantLength(3);
        let done = session.generate(prompt, StreamName::new(0, 1), None, k, &mut NoSink);
        done.expect("generates").tokens
    });
    assert_eq!(own, other);
}
