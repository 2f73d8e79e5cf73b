//! Several sessions, one step at a time: all draft, all are verified, then all commit.

use crate::common;

use common::*;
use ngram_cache::NgramCache;
use proptest::prelude::*;
use spec_decode::testkit::FakeModel;
use spec_decode::{
    ConstantLength, DraftedRound, JudgedRound, LanguageModel, LawError, NoSink, Origin, Prompt,
    RoundOutcome, Score, Session, SessionConfig, SpecError, StreamName, Verdict, VerifyMode,
};
use vocab_align::{DraftId, TargetId, raw_ids};

type Toy = Session<FakeModel<DraftId>, FakeModel<TargetId>>;

const SESSIONS: usize = 3;

/// Logits of a drafted round, as computed by a caller that joins forwards.
fn score(session: &mut Toy, round: &DraftedRound) -> Vec<f32> {
    let mut logits = Vec::new();
    let target = session.target_mut();
    target
        .forward(&raw_ids(round.input()), &mut logits)
        .expect("a forward");
    logits
}

/// One step of all sessions that have not ended.
fn step(sessions: &mut [Toy], caches: &mut [NgramCache]) -> Result<(), SpecError> {
    // One cache for all, or one each.
    let of = |i: usize, caches: usize| if caches == 1 { 0 } else { i };
    let policy = &mut ConstantLength(3);
    // One token of every draft at a time.
    let mut drafting = Vec::new();
    for (i, session) in sessions.iter_mut().enumerate() {
        if session.finished().is_none() {
            let cache = &caches[of(i, caches.len())];
            drafting.push((i, session.begin_round(Some(cache), policy)?));
        }
    }
    while drafting.iter().any(|(_, round)| !round.input().is_empty()) {
        for (i, round) in &mut drafting {
            if !round.input().is_empty() {
                let cache = &caches[of(*i, caches.len())];
                let (mut logits, session) = (Vec::new(), &mut sessions[*i]);
                let drafter = session.drafting_model();
                drafter
                    .forward(&raw_ids(round.input()), &mut logits)
                    .expect("rows");
                session.draft_token(round, Some(cache), &logits, policy)?;
            }
        }
    }
    let mut drafted = Vec::new();
    for (i, round) in drafting {
        let cache = &caches[of(i, caches.len())];
        drafted.push((i, sessions[i].end_draft(round, Some(cache))?));
    }
    let mut judged = Vec::new();
    for (i, round) in drafted {
        let logits = score(&mut sessions[i], &round);
        let cache = &caches[of(i, caches.len())];
        let round = sessions[i].judge_round(round, Some(cache), &logits)?;
        judged.push((i, logits, round));
    }
    for (i, logits, round) in judged {
        let at = of(i, caches.len());
        let cache = Some(&mut caches[at]);
        let outcome: RoundOutcome =
            sessions[i].commit_round(round, &logits, cache, policy, &mut NoSink)?;
        assert!(!outcome.emitted.is_empty());
    }
    Ok(())
}

fn sessions(seed: u64, config: &SessionConfig) -> Vec<Toy> {
    let pair = pair();
    (0..SESSIONS as u64)
        .map(|i| {
            let models = text_models(seed, &pair, 0.5);
            let mut session = session(models, pair.clone(), config.clone());
            let name = StreamName::new(seed, i);
            session.start(PROMPT, name).expect("starts");
            session
        })
        .collect()
}

fn run(sessions: &mut [Toy], caches: &mut [NgramCache]) -> Vec<Vec<TargetId>> {
    while sessions.iter().any(|session| session.finished().is_none()) {
        step(sessions, caches).expect("a step");
    }
    sessions.iter().map(|s| s.response().to_vec()).collect()
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn sessions_with_caches_of_their_own_do_as_alone(
        seed in any::<u64>(),
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
        temperature in prop::sample::select(vec![0.0, 0.7, 1.5]),
    ) {
        let config = SessionConfig { stop: stop(), ..config(mode, temperature, 30) };
        let mut caches = vec![true_cache(); SESSIONS];
        let together = run(&mut sessions(seed, &config), &mut caches);
        for (i, session) in sessions(seed, &config).iter_mut().enumerate() {
            let mut cache = true_cache();
            while session.finished().is_none() {
                let policy = &mut ConstantLength(3);
                session.round(Some(&mut cache), policy, &mut NoSink).expect("a round");
            }
            prop_assert_eq!(session.response(), &together[i][..]);
        }
    }

    /// At temperature 0 the text is the target's, whatever the others insert into the cache
    /// meanwhile. Above, every round is verified with the distributions by which it drafted.
    #[test]
    fn sessions_share_a_cache_that_all_write(
        seed in any::<u64>(),
        temperature in prop::sample::select(vec![0.0, 1.0]),
    ) {
        let config = SessionConfig {
            stop: stop(),
            learn_ngrams: true,
            ..config(VerifyMode::Exact, temperature, 40)
        };
        let mut shared = vec![cache_of(&[])];
        let together = run(&mut sessions(seed, &config), &mut shared);
        if temperature == 0.0 {
            let alone = run(&mut sessions(seed, &config), &mut vec![cache_of(&[]); SESSIONS]);
            prop_assert_eq!(together, alone);
        }
    }

    #[test]
    fn a_changed_drafter_leaves_the_text_and_the_target(seed in any::<u64>()) {
        let config = SessionConfig { stop: stop(), ..config(VerifyMode::Exact, 0.0, 40) };
        let mut plain = sessions(seed, &config);
        let mut changed = sessions(seed, &config);
        let expected = run(&mut plain, &mut [true_cache()]);
        let other = text_models(!seed, &pair(), 2.0).0;
        let mut caches = [true_cache()];
        while changed.iter().any(|session| session.finished().is_none()) {
            step(&mut changed, &mut caches).expect("a step");
            let read = changed[0].target().len();
            changed[0].change_drafter(|drafter| *drafter = other.clone());
            prop_assert_eq!(changed[0].target().len(), read);
        }
        let texts: Vec<_> = changed.iter().map(|s| s.response().to_vec()).collect();
        prop_assert_eq!(texts, expected);
    }
}

/// A draft is not judged with other n-grams than it was made with: the text would not follow the
/// target's distribution.
#[test]
fn a_cache_that_changes_between_draft_and_verification_is_an_error() {
    let config = config(VerifyMode::Exact, 1.0, 8);
    let cache = true_cache();
    // A clone may have learnt something else since.
    for other in [cache_of(&[]), true_cache(), cache.clone()] {
        let mut session = sessions(3, &config).remove(0);
        let policy = &mut ConstantLength(3);
        let round = session.draft_round(Some(&cache), policy).expect("a draft");
        let logits = score(&mut session, &round);
        let error = session.judge_round(round, Some(&other), &logits).err();
        assert!(
            matches!(error, Some(SpecError::CacheChanged { round: 0 })),
            "{error:?}"
        );
        assert!(session.finished().is_none());
    }
}

/// A round goes on only in the response and with the settings in which it began: its text would
/// otherwise become another session's, or follow another law.
#[test]
fn a_round_of_another_response_is_refused() {
    let config = config(VerifyMode::Exact, 1.0, 8);
    let policy = &mut ConstantLength(3);
    let refused = |result: Result<JudgedRound, SpecError>| {
        matches!(result.err(), Some(SpecError::OtherRound { round: 0 }))
    };
    let mut both = sessions(3, &config);
    let (mut first, mut second) = (both.remove(0), both.remove(0));
    let round = first.draft_round(None, policy).expect("a draft");
    let logits = score(&mut first, &round);
    assert!(refused(second.judge_round(round, None, &logits)));
    second.draft_round(None, policy).expect("its own round");

    let mut session = sessions(3, &config).remove(0);
    let round = session.draft_round(None, policy).expect("a draft");
    let logits = score(&mut session, &round);
    session.configure(SessionConfig {
        mode: VerifyMode::Tli,
        ..config.clone()
    });
    assert!(refused(session.judge_round(round, None, &logits)));

    let mut session = sessions(3, &config).remove(0);
    let round = session.draft_round(None, policy).expect("a draft");
    let logits = score(&mut session, &round);
    session
        .start(PROMPT, StreamName::new(9, 9))
        .expect("starts");
    assert!(refused(session.judge_round(round, None, &logits)));
    assert!(session.finished().is_none());
}

/// A draft is translated with the n-grams by which it was masked.
#[test]
fn a_draft_ends_with_the_cache_it_began_with() {
    let config = config(VerifyMode::Exact, 1.0, 8);
    let mut session = sessions(3, &config).remove(0);
    let policy = &mut ConstantLength(0);
    let round = session.begin_round(None, policy).expect("a round");
    let error = session.end_draft(round, Some(&true_cache())).err();
    assert!(
        matches!(error, Some(SpecError::CacheChanged { round: 0 })),
        "{error:?}"
    );
}

/// Drafts that are tokenised anew are verified by the target's own draws alone.
#[test]
fn drafts_of_mode_slem_are_not_verified_elsewhere() {
    let config = config(VerifyMode::Slem, 1.0, 8);
    let mut session = sessions(3, &config).remove(0);
    let round = session
        .draft_round(None, &mut ConstantLength(3))
        .expect("a draft");
    let error = session.sparse_draft(&round, None).err();
    assert!(
        matches!(error, Some(SpecError::NotSparse { mode: "slem", .. })),
        "{error:?}"
    );
}

/// A verdict from another machine is checked as one that is computed here.
#[test]
fn a_verdict_with_an_impossible_probability_is_an_error() {
    for wrong in [-0.5, 1.5, f64::NAN, f64::NEG_INFINITY] {
        let mut session = sessions(3, &config(VerifyMode::Exact, 1.0, 8)).remove(0);
        let policy = &mut ConstantLength(3);
        let round = session.draft_round(None, policy).expect("a draft");
        let verdict = Verdict {
            accepted: 0,
            last: t("a"),
            origin: Origin::Residual,
            scores: vec![Score::new(wrong, 1.0)],
        };
        let error = session.settle_round(round, verdict).err();
        let source = match error {
            Some(SpecError::Law { source, .. }) => source,
            other => panic!("{other:?}"),
        };
        assert!(matches!(source, LawError::TargetProbability { .. }));
    }
}

#[test]
fn what_a_session_holds_and_other_settings() {
    let before = config(VerifyMode::Exact, 0.0, 8);
    let mut session = sessions(5, &before).remove(0);
    let mut caches = [true_cache()];
    run(std::slice::from_mut(&mut session), &mut caches);
    let text = [PROMPT.target, session.response()].concat();
    assert_eq!(session.held(&text), text.len());
    assert_eq!(session.held(&text[..3]), 3);
    let mut other = text.clone();
    other[PROMPT.target.len() + 2] = t("zz");
    assert_eq!(session.held(&other), PROMPT.target.len() + 2);
    assert_eq!(session.held(&[t("zz")]), 0);

    session.configure(SessionConfig {
        max_new_tokens: 3,
        ..before
    });
    let next = Prompt {
        target: &text,
        ..PROMPT
    };
    let forwards = session.target().forwards.len();
    session.start(next, StreamName::new(0, 0)).expect("starts");
    // The last token of the response was never read; it is the next one to feed.
    assert_eq!(session.target().forwards.len(), forwards);
    run(std::slice::from_mut(&mut session), &mut caches);
    assert_eq!(session.response().len(), 3);
}
