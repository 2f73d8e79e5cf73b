//! Bookkeeping of sessions: KV caches, limits, teacher signal, n-gram learning, determinism.

use crate::common;

use std::sync::Arc;

use common::*;
use ngram_cache::{CacheConfig, NgramCache};
use proptest::prelude::*;
use spec_decode::testkit::{FakeModel, RowFn};
use spec_decode::{
    Acceptance, ConstantLength, DraftPolicy, Finish, Generation, LanguageModel, NoSink, Pair,
    Purpose, RoundOutcome, SessionConfig, StreamName, TeacherSink, VerifyMode, argmax,
};
use vocab_align::{DraftId, TargetId};

fn generate(seed: u64, config: SessionConfig, k: usize, cache: &mut NgramCache) -> Generation {
    let pair = pair();
    let mut session = session(text_models(seed, &pair, 0.5), pair, config);
    let name = StreamName::new(seed, 0);
    let policy = &mut ConstantLength(k);
    session
        .generate(PROMPT, name, Some(cache), policy, &mut NoSink)
        .expect("generates")
}

fn without_clocks(mut rounds: Vec<RoundOutcome>) -> Vec<RoundOutcome> {
    rounds
        .iter_mut()
        .for_each(|round| round.timings = Default::default());
    rounds
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn caches_never_drift(
        seed in any::<u64>(),
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
        temperature in prop::sample::select(vec![0.0, 0.5, 1.5]),
        k in 0usize..6,
        alternatives in 0usize..4,
    ) {
        let pair = pair();
        let config = SessionConfig {
            learn_ngrams: true,
            stop: stop(),
            alternatives,
            ..config(mode, temperature, 30)
        };
        let mut session = session(text_models(seed, &pair, 0.5), pair.clone(), config);
        let mut cache = true_cache();
        session.start(PROMPT, StreamName::new(seed, 1)).expect("starts");
        while session.finished().is_none() {
            let (drafts, targets) =
                (session.drafter().forwards.len(), session.target().forwards.len());
            let outcome = session
                .round(Some(&mut cache), &mut ConstantLength(k), &mut NoSink)
                .expect("a round");

            // One target forward of m + 1 positions, one drafter forward per drafted token.
            let m = outcome.proposed();
            prop_assert_eq!(&session.target().forwards[targets..], &[m + 1]);
            prop_assert_eq!(session.drafter().forwards.len() - drafts, outcome.draft.len());
            let completion = if mode.uses_cache() { 2 } else { 0 };
            prop_assert!(outcome.draft.len() <= k + completion);
            prop_assert!(outcome.alternatives <= alternatives * m.min(1));
            let most = outcome.accepted + 1 + outcome.alternatives;
            prop_assert!((1..=most).contains(&outcome.emitted.len()));
            prop_assert!(outcome.accepted <= m);
            prop_assert_eq!(outcome.scores.len(), m.min(outcome.accepted + 1));
            prop_assert!(outcome.scores.iter().all(|s| s.proposal > 0.0 && s.target <= 1.0));

            // The target's cache holds everything but the last token, the drafter's a true prefix.
            let text = [PROMPT.target, session.response()].concat();
            prop_assert_eq!(session.target().ids(), &text[..text.len() - 1]);
            let context = session.draft_context();
            let fed = session.drafter().ids();
            prop_assert!(fed.len() < context.len());
            prop_assert_eq!(fed, &context[..fed.len()]);
            prop_assert_eq!(pair.draft.decode_bytes(context), pair.target.decode_bytes(&text));
        }
    }

    #[test]
    fn a_lower_limit_gives_a_prefix(
        seed in any::<u64>(),
        temperature in prop::sample::select(vec![0.0, 1.0]),
        short in 0usize..20,
    ) {
        for mode in VerifyMode::ALL {
            let long = generate(seed, config(mode, temperature, 20), 3, &mut true_cache());
            let cut = generate(seed, config(mode, temperature, short), 3, &mut true_cache());
            prop_assert_eq!(&cut.tokens[..], &long.tokens[..short.min(long.tokens.len())]);
            prop_assert_eq!(cut.totals.emitted, cut.tokens.len());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_everything(
        seed in any::<u64>(),
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
    ) {
        let settings = || SessionConfig { learn_ngrams: true, ..config(mode, 1.0, 20) };
        let (mut first, mut second) = (true_cache(), true_cache());
        let one = generate(seed, settings(), 4, &mut first);
        let two = generate(seed, settings(), 4, &mut second);
        prop_assert_eq!(one.tokens, two.tokens);
        prop_assert_eq!(without_clocks(one.rounds), without_clocks(two.rounds));
        let entries = |cache: &NgramCache| cache.entries().collect::<Vec<_>>();
        prop_assert_eq!(entries(&first), entries(&second));
    }
}

/// A sink that keeps everything.
#[derive(Default)]
struct Recorder(Vec<(usize, TargetId, Vec<f32>)>);

impl TeacherSink for Recorder {
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        self.0.push((index, token, logits.to_vec()));
    }
}

#[test]
fn the_teacher_rows_are_those_of_plain_decoding() {
    for mode in VerifyMode::ALL {
        for (seed, temperature) in [(1, 0.0), (2, 0.0), (3, 1.0), (4, 1.0)] {
            let pair = pair();
            let models = text_models(seed, &pair, 0.3);
            let target = models.1.clone();
            let mut session = session(models, pair, config(mode, temperature, 25));
            let mut recorder = Recorder::default();
            let mut cache = true_cache();
            let k = &mut ConstantLength(4);
            let name = StreamName::new(seed, 0);
            let found = session.generate(PROMPT, name, Some(&mut cache), k, &mut recorder);
            let tokens = found.expect("generates").tokens;
            assert_eq!(recorder.0.len(), tokens.len());
            for (index, (position, token, row)) in recorder.0.into_iter().enumerate() {
                let context = [PROMPT.target, &tokens[..index]].concat();
                assert_eq!((position, token), (index, tokens[index]));
                assert_eq!(row, target.row(&context), "{mode}, token {index}");
            }
        }
    }
}

#[test]
fn a_stop_token_ends_the_response_and_is_kept() {
    let mut stopped = 0;
    for seed in 0..200 {
        let settings = SessionConfig {
            stop: stop(),
            ..config(VerifyMode::Exact, 1.0, 60)
        };
        let found = generate(seed, settings, 4, &mut true_cache());
        let end = *stop().first().expect("one stop token");
        match found.finish {
            Finish::Stop(token) => {
                stopped += 1;
                assert_eq!(token, end);
                assert_eq!(
                    found.tokens.iter().position(|t| *t == end),
                    Some(found.tokens.len() - 1)
                );
            }
            Finish::MaxNewTokens => assert_eq!(found.tokens.len(), 60),
            other => panic!("{other:?}"),
        }
    }
    assert!(stopped > 20, "{stopped}");
}

#[test]
fn a_limit_that_is_lowered_during_a_response_ends_it() {
    for (rounds, limit) in [(0, 0), (2, 1)] {
        let (pair, before) = (pair(), config(VerifyMode::Exact, 0.0, 20));
        let mut session = session(text_models(1, &pair, 0.5), pair, before.clone());
        session.start(PROMPT, StreamName::new(1, 0)).unwrap();
        for _ in 0..rounds {
            session
                .round(None, &mut ConstantLength(3), &mut NoSink)
                .unwrap();
        }
        let said = session.response().to_vec();
        session.configure(SessionConfig {
            max_new_tokens: limit,
            ..before
        });
        let last = session
            .round(None, &mut ConstantLength(3), &mut NoSink)
            .unwrap();
        assert!(last.emitted.is_empty());
        assert_eq!(session.response(), said);
        assert_eq!(session.finished(), Some(Finish::MaxNewTokens));
    }
}

#[test]
fn verified_text_teaches_the_cache_true_ngrams() {
    let mut cache = NgramCache::new(CacheConfig::default());
    let mut inserted = 0;
    for seed in 0..30 {
        let settings = SessionConfig {
            learn_ngrams: true,
            ..config(VerifyMode::Paper, 1.0, 40)
        };
        inserted += generate(seed, settings, 4, &mut cache).totals.inserted;
    }
    assert_eq!(cache.len(), inserted);
    assert!(
        cache.len() >= 5,
        "{:?}",
        cache.entries().collect::<Vec<_>>()
    );
    let pair = pair();
    for ngram in cache.entries() {
        let bytes = pair.draft.decode_bytes(&ngram.draft);
        assert_eq!(
            bytes,
            pair.target.decode_bytes(&[ngram.target]),
            "{ngram:?}"
        );
    }
}

#[test]
fn ngrams_are_learnt_from_final_text_only() {
    // Learning round by round and learning from the finished response find the same n-grams.
    for seed in 0..20 {
        let mut by_round = NgramCache::new(CacheConfig::default());
        let settings = SessionConfig {
            learn_ngrams: true,
            ..config(VerifyMode::Tli, 1.0, 60)
        };
        let tokens = generate(seed, settings, 3, &mut by_round).tokens;
        let pair = pair();
        let draft = pair
            .draft
            .encode_bytes(&pair.target.decode_bytes(&tokens))
            .expect("encodes");
        let spans = vocab_align::align_offsets(
            &pair.draft.byte_lengths(&draft),
            &pair.target.byte_lengths(&tokens),
        );
        let mut whole = NgramCache::new(CacheConfig::default());
        for (spelling, target) in ngram_cache::mine(&spans, &draft, &tokens) {
            whole.insert(spelling, target);
        }
        let entries = |cache: &NgramCache| cache.entries().collect::<Vec<_>>();
        assert_eq!(entries(&by_round), entries(&whole), "seed {seed}");
    }
}

#[test]
fn full_contexts_end_cleanly() {
    for mode in VerifyMode::ALL {
        let pair = pair();
        let (drafter, target) = text_models(9, &pair, 0.2);
        let settings = config(mode, 0.0, 100);
        let (mut alone, name) = (target.clone().with_max_len(12), StreamName::new(0, 0));
        let expected = plain(&mut alone, PROMPT.target, &settings, name);
        assert_eq!(expected.finish, Finish::ContextFull);
        for drafter_len in [2, 5, 9, 100] {
            let models = (
                drafter.clone().with_max_len(drafter_len),
                target.clone().with_max_len(12),
            );
            let mut session = session(models, pair.clone(), settings.clone());
            let mut cache = true_cache();
            let k = &mut ConstantLength(4);
            let found = session.generate(PROMPT, name, Some(&mut cache), k, &mut NoSink);
            let found = found.expect("generates");
            assert_eq!(
                (found.tokens, found.finish),
                (expected.tokens.clone(), expected.finish)
            );
        }
    }
}

/// A policy that counts its calls.
struct Watcher(usize);

impl DraftPolicy for Watcher {
    fn next_len(&mut self) -> usize {
        3
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        assert_eq!(outcome.round, self.0);
        self.0 += 1;
    }
}

#[test]
fn policies_see_every_round() {
    let pair = pair();
    let mut session = session(
        text_models(8, &pair, 0.5),
        pair,
        config(VerifyMode::Exact, 1.0, 30),
    );
    let mut watcher = Watcher(0);
    let name = StreamName::new(0, 0);
    let found = session.generate(
        PROMPT,
        name,
        Some(&mut true_cache()),
        &mut watcher,
        &mut NoSink,
    );
    assert_eq!(watcher.0, found.expect("generates").totals.rounds);
}

#[test]
fn plain_sampling_follows_its_own_stream() {
    let (_, mut target) = text_models(8, &pair(), 0.0);
    let settings = SessionConfig {
        stop: stop(),
        ..config(VerifyMode::Tli, 1.0, 30)
    };
    let mut run = |seed| {
        let name = StreamName::new(seed, 0);
        plain(&mut target, PROMPT.target, &settings, name).tokens
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let first = argmax(&target.row(PROMPT.target)).expect("logits");
    assert!(first < target.vocab_size());
}

/// A controller that gives drafting up relies on it: its answers are those of plain decoding at every temperature.
#[test]
fn a_session_without_drafts_on_the_plain_stream_is_plain_decoding() {
    for mode in [VerifyMode::Tli, VerifyMode::Exact, VerifyMode::Paper] {
        for (seed, temperature) in [(1, 0.0), (2, 0.7), (3, 1.0), (4, 1.5)] {
            let pair = pair();
            let (drafter, target) = text_models(seed, &pair, 0.5);
            let settings = SessionConfig {
                stop: stop(),
                ..config(mode, temperature, 30)
            };
            let name = StreamName::new(seed, 5);
            let other = plain(&mut target.clone(), PROMPT.target, &settings, name);
            let mut session = session((drafter, target), pair, settings);
            let dice = |purpose| Box::new(name.dice(purpose));
            session
                .start_with(PROMPT, dice(Purpose::Draft), dice(Purpose::Plain))
                .expect("starts");
            while session.finished().is_none() {
                let policy = &mut ConstantLength(0);
                session.round(None, policy, &mut NoSink).expect("a round");
            }
            assert_eq!(session.response(), other.tokens, "{mode:?} {temperature}");
            assert_eq!(session.finished(), Some(other.finish));
        }
    }
}

/// Every n-gram of verified text counts once, an accepted one like the others. A cache that is not
/// to learn stays unchanged, counts included.
#[test]
fn an_accepted_n_gram_counts_once_and_a_frozen_cache_not_at_all() {
    let mut hits = 0;
    for mode in [VerifyMode::Paper, VerifyMode::Exact] {
        for seed in 0..20 {
            let entries = |cache: &NgramCache| cache.entries().collect::<Vec<_>>();
            let mut frozen = true_cache();
            let settings = |learn_ngrams| SessionConfig {
                learn_ngrams,
                ..config(mode, 0.5, 30)
            };
            hits += generate(seed, settings(false), 4, &mut frozen)
                .totals
                .ngrams_accepted;
            assert_eq!(entries(&frozen), entries(&true_cache()));

            let pair = pair();
            let mut learnt = true_cache();
            let models = text_models(seed, &pair, 0.5);
            let mut session = session(models, pair.clone(), settings(true));
            let policy = &mut ConstantLength(4);
            let name = StreamName::new(seed, 0);
            let done = session
                .generate(PROMPT, name, Some(&mut learnt), policy, &mut NoSink)
                .expect("generates");
            let spelling = &session.draft_context()[PROMPT.draft.len()..];
            let spans = vocab_align::align_offsets(
                &pair.draft.byte_lengths(spelling),
                &pair.alignment.spelled_lengths(&pair.target, &done.tokens),
            );
            let mut expected = true_cache();
            for (ngram, token) in ngram_cache::mine(&spans, spelling, &done.tokens) {
                expected.insert(ngram, token);
            }
            assert_eq!(entries(&learnt), entries(&expected));
        }
    }
    assert!(hits > 50, "{hits}");
}

/// Tokens that the target's tokenizer finds in a drafted text come from no cache.
#[test]
fn slem_has_no_n_gram_hits() {
    for seed in 0..10 {
        let mut cache = true_cache();
        let done = generate(seed, config(VerifyMode::Slem, 0.5, 20), 5, &mut cache);
        assert!(
            done.rounds
                .iter()
                .any(|r| r.proposals.iter().any(|p| p.span.len() > 1))
        );
        assert_eq!(done.totals.ngrams_proposed, 0);
    }
}

/// A policy that records its arguments.
#[derive(Default)]
struct Shown(Vec<DraftId>, Vec<usize>);

impl DraftPolicy for Shown {
    fn next_len(&mut self) -> usize {
        self.0.clear();
        4
    }

    fn stop_after(&mut self, step: &spec_decode::DraftStep<'_>) -> bool {
        self.0.push(step.token);
        false
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        assert_eq!(self.0, outcome.draft);
        self.1.push(outcome.draft.len());
    }
}

#[test]
fn a_drafted_stop_token_is_shown_to_the_policy() {
    let mut ends = 0;
    for seed in 0..40 {
        let pair = pair();
        let config = SessionConfig {
            // A token that is drafted often is a stop token.
            stop: [t("c")].into(),
            ..config(VerifyMode::Tli, 1.0, 20)
        };
        let mut session = session(text_models(seed, &pair, 0.5), pair, config);
        let mut policy = Shown::default();
        let name = StreamName::new(seed, 0);
        session
            .generate(PROMPT, name, None, &mut policy, &mut NoSink)
            .expect("generates");
        ends += policy.1.iter().filter(|length| **length < 4).count();
    }
    assert!(ends > 5, "{ends} drafts ended early");
}

#[test]
fn drafts_of_32_tokens_are_judged_in_every_mode() {
    for mode in VerifyMode::ALL {
        for acceptance in Acceptance::ALL {
            // Both models emit the same token for ever.
            let pair = Pair::shared(pair().target);
            let mut row = vec![0.0; TARGET.len()];
            row[t("b").0 as usize] = 1.0;
            let (draft, target) = (row.clone(), row);
            let drafter: RowFn<DraftId> = Arc::new(move |_| draft.clone());
            let target: RowFn<TargetId> = Arc::new(move |_| target.clone());
            let drafter = FakeModel::new(TARGET.len(), drafter);
            let target = FakeModel::new(TARGET.len(), target);
            let config = SessionConfig {
                acceptance,
                ..config(mode, 0.0, 66)
            };
            let mut session = session((drafter, target), pair, config);
            let policy = &mut ConstantLength(32);
            let done = session
                .generate(PROMPT, StreamName::new(1, 0), None, policy, &mut NoSink)
                .expect("generates");
            let lengths: Vec<usize> = done.rounds.iter().map(|r| r.proposed()).collect();
            assert_eq!((lengths.as_slice(), done.tokens.len()), (&[32, 32][..], 66));
        }
    }
}
