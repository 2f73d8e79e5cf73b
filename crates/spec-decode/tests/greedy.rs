//! At temperature 0 speculation must give plain greedy decoding, token for token.

use crate::common;

use common::*;
use ngram_cache::{CacheConfig, Eviction, NgramCache};
use proptest::prelude::*;
use spec_decode::testkit::{FakeModel, text_rows};
use spec_decode::{
    ConstantLength, CopyPlan, DraftPolicy, DraftStep, Found, History, NoSink, Pair, RoundOutcome,
    Sampling, SamplingOptions, SessionConfig, StreamName, Totals, VerifyMode,
};
use vocab_align::TargetId;

/// Policy that changes its draft length in every round and stops in the middle of drafts.
struct Erratic {
    lengths: Vec<usize>,
    rounds: usize,
}

impl DraftPolicy for Erratic {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        CopyPlan {
            copy: [found.tokens.len(), 0, 0][self.rounds % 3],
            draft: !self.rounds.is_multiple_of(5),
        }
    }

    fn next_len(&mut self) -> usize {
        self.rounds += 1;
        self.lengths[self.rounds % self.lengths.len()]
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        step.token.0 % 5 == 3
    }
}

fn alone(seed: u64, config: &SessionConfig) -> Vec<TargetId> {
    let (_, mut target) = text_models(seed, &pair(), 0.0);
    plain(&mut target, PROMPT.target, config, StreamName::new(0, 0)).tokens
}

fn cache(kind: u8) -> Option<NgramCache> {
    match kind {
        0 => None,
        1 => Some(true_cache()),
        2 => Some(NgramCache::new(CacheConfig::default())),
        _ => Some(NgramCache::new(CacheConfig {
            eviction: Eviction::Lru,
            max_entries: Some(3),
            max_bytes: None,
        })),
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn speculation_equals_plain_decoding(
        seed in any::<u64>(),
        disagreement in prop::sample::select(vec![0.0_f32, 0.5, 2.0, 10.0]),
        kind in 0u8..4,
        lengths in prop::collection::vec(0usize..7, 1..4),
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
        learn_ngrams in any::<bool>(),
        max_new_tokens in 0usize..40,
        repetition_penalty in prop::sample::select(vec![1.0, 1.0, 1.5]),
        alternatives in 0usize..9,
        looks_up in any::<bool>(),
    ) {
        let sampling = Sampling::with_options(SamplingOptions {
            repetition_penalty,
            ..SamplingOptions::default()
        }).expect("valid options");
        let config = SessionConfig {
            sampling,
            stop: stop(),
            learn_ngrams,
            alternatives,
            ..SessionConfig::new(mode, max_new_tokens)
        };
        let (pair, expected) = (pair(), alone(seed, &config));
        let mut session = session(text_models(seed, &pair, disagreement), pair, config);
        if looks_up {
            session.look_up_in(History::default());
        }
        let mut cache = cache(kind);
        let mut policy = Erratic { lengths, rounds: 0 };
        // Twice: the second response uses the n-grams that the cache learnt from the first one.
        for prompt in 0..2 {
            let name = StreamName::new(seed, prompt);
            let found = session
                .generate(PROMPT, name, cache.as_mut(), &mut policy, &mut NoSink)
                .expect("generates");
            prop_assert_eq!(&found.tokens, &expected);
        }
    }
}

#[test]
fn a_second_choice_that_the_target_takes_gives_a_further_token() {
    let rounds = |alternatives: usize| {
        let (mut rounds, mut further) = (0, 0);
        for seed in 0..60 {
            let config = SessionConfig {
                alternatives,
                ..SessionConfig::new(VerifyMode::Tli, 40)
            };
            let (pair, expected) = (pair(), alone(seed, &config));
            let mut session = session(text_models(seed, &pair, 0.5), pair, config);
            let name = StreamName::new(seed, 0);
            let mut k = ConstantLength(4);
            let found = session.generate(PROMPT, name, None, &mut k, &mut NoSink);
            let found = found.expect("generates");
            assert_eq!(found.tokens, expected);
            let longer = |round: &&RoundOutcome| round.emitted.len() > round.accepted + 1;
            further += found.rounds.iter().filter(longer).count();
            rounds += found.totals.rounds;
        }
        (rounds, further)
    };
    let ((without, none), (with, further)) = (rounds(0), rounds(3));
    assert_eq!(none, 0);
    assert!(further > 0, "none of {with} rounds");
    assert!(with < without, "{with} and {without} rounds");
}

/// Drafts with copies beside them, and no copies in place of drafts.
struct Beside;

impl DraftPolicy for Beside {
    fn plan_copy(&mut self, _: &Found) -> CopyPlan {
        CopyPlan {
            copy: 0,
            draft: true,
        }
    }

    fn next_len(&mut self) -> usize {
        2
    }
}

#[test]
fn a_copy_beside_a_draft_gives_as_many_tokens_as_it_has_right() {
    let rounds = |alternatives: usize| {
        let (mut rounds, mut many) = (0, 0);
        for seed in 0..40 {
            let config = SessionConfig {
                alternatives,
                ..SessionConfig::new(VerifyMode::Exact, 40)
            };
            let (pair, expected) = (pair(), alone(seed, &config));
            let mut session = session(text_models(seed, &pair, 2.0), pair, config);
            session.look_up_in(History::default());
            let name = StreamName::new(seed, 0);
            // The first answer is copied in the second one.
            for _ in 0..2 {
                let found = session.generate(PROMPT, name, None, &mut Beside, &mut NoSink);
                let found = found.expect("generates");
                assert_eq!(found.tokens, expected);
                let further = |round: &RoundOutcome| {
                    round.emitted.len() - 1 - round.accepted.min(round.emitted.len() - 1)
                };
                many += found
                    .rounds
                    .iter()
                    .filter(|round| further(round) > 2)
                    .count();
                rounds += found.totals.rounds;
            }
        }
        (rounds, many)
    };
    let ((without, none), (with, many)) = (rounds(0), rounds(6));
    assert_eq!(none, 0);
    assert!(many > 20, "{many} of {with} rounds");
    assert!(4 * with < 3 * without, "{with} and {without} rounds");
}

#[test]
fn a_drafter_that_agrees_is_mostly_accepted_and_ngrams_help() {
    let totals = |mode: VerifyMode| {
        let mut totals = Totals::default();
        for seed in 0..60 {
            let config = SessionConfig::new(mode, 40);
            let pair = pair();
            let mut session = session(text_models(seed, &pair, 0.3), pair, config);
            let mut cache = true_cache();
            let name = StreamName::new(seed, 0);
            let mut k = ConstantLength(4);
            let found = session.generate(PROMPT, name, Some(&mut cache), &mut k, &mut NoSink);
            totals.merge(&found.expect("generates").totals);
        }
        totals
    };
    let (tli, paper) = (totals(VerifyMode::Tli), totals(VerifyMode::Paper));
    assert_eq!(tli.ngrams_proposed, 0);
    assert!(paper.ngrams_accepted * 10 > paper.rounds, "{paper:?}");
    assert!(
        paper.acceptance_rate() > tli.acceptance_rate(),
        "{paper:?}\n{tli:?}"
    );
    assert!(
        paper.block_efficiency() > 1.2 && paper.block_efficiency() <= 5.0,
        "{paper:?}"
    );
}

#[test]
fn over_one_vocabulary_the_group_rule_is_ordinary_speculative_sampling() {
    // Not only the same distribution: with the same dice the same tokens, because every group is
    // one token.
    for seed in 0..200 {
        let run = |mode| {
            let pair = Pair::shared(pair().target);
            let (_, target) = text_models(seed, &pair, 0.0);
            let rows = text_rows(seed, pair.draft.clone(), target_active(), 1.0);
            let drafter = FakeModel::new(TARGET.len(), rows);
            let mut session = session((drafter, target), pair, config(mode, 0.9, 30));
            let k = &mut ConstantLength(4);
            let done = session.generate(PROMPT, StreamName::new(seed, 0), None, k, &mut NoSink);
            done.expect("generates").tokens
        };
        assert_eq!(run(VerifyMode::Exact), run(VerifyMode::Tli), "seed {seed}");
    }
}

#[test]
fn a_drafter_that_never_drafts_reads_nothing() {
    let (drafter, target) = text_models(3, &pair(), 0.0);
    let config = SessionConfig {
        stop: stop(),
        drafter_reads: false,
        ..SessionConfig::new(VerifyMode::Tli, 24)
    };
    let expected = alone(3, &config);
    let mut session =
        spec_decode::Session::new(drafter, target, pair(), config).expect("a session");
    let name = StreamName::new(0, 0);
    let mut generate = |k: usize| {
        let mut policy = ConstantLength(k);
        let done = session.generate(PROMPT, name, None, &mut policy, &mut NoSink);
        (
            done.expect("generates").tokens,
            session.drafter().ids().len(),
        )
    };
    let (rested, read) = generate(0);
    assert_eq!((rested, read), (expected.clone(), 0));
    let (drafted, read) = generate(3);
    assert_eq!(drafted, expected);
    assert!(read > 0);
}

#[test]
fn a_response_that_the_caller_ends_is_spelled_in_draft_tokens() {
    let spelled = |drafter_reads: bool| {
        let (drafter, target) = text_models(3, &pair(), 0.0);
        let config = SessionConfig {
            stop: stop(),
            drafter_reads,
            ..SessionConfig::new(VerifyMode::Tli, 24)
        };
        let session = spec_decode::Session::new(drafter, target, pair(), config);
        let mut session = session.expect("a session");
        session
            .start(PROMPT, StreamName::new(0, 0))
            .expect("starts");
        for _ in 0..6 {
            let round = session.round(None, &mut ConstantLength(0), &mut NoSink);
            round.expect("a round");
        }
        let before = session.draft_lengths().len();
        session.end_response().expect("spelled");
        session.end_response().expect("once");
        let spelled = (
            session.draft_context().to_vec(),
            session.draft_lengths().to_vec(),
        );
        (before, spelled)
    };
    let ((read, as_read), (unread, at_the_end)) = (spelled(true), spelled(false));
    assert_eq!(as_read, at_the_end);
    assert!(unread < read, "{unread} {read}");
}
