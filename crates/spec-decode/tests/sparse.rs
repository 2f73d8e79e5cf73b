//! A sparse draft is verified as the whole one is, draw for draw, and an invalid one is refused.

use crate::{cases, common};

use cases::sparse_round;
use common::*;
use ngram_cache::NgramCache;
use proptest::prelude::*;
use spec_decode::testkit::FakeModel;
use spec_decode::{
    Acceptance, ConstantLength, NoSink, Purpose, Sampling, Session, SessionConfig, SparseChoice,
    SparseDraft, SparseFault, SparseOutcome, StreamName, VerifyMode,
};
use vocab_align::{DraftId, TargetId};

type Toy = Session<FakeModel<DraftId>, FakeModel<TargetId>>;

/// A response with verification by sparse drafts. Returns the number of all listed outcomes.
fn by_sparse_drafts(session: &mut Toy, cache: &mut NgramCache, name: StreamName) -> usize {
    session.start(PROMPT, name).expect("starts");
    let mut dice = name.dice(Purpose::Verify);
    let (policy, mut outcomes) = (&mut ConstantLength(4), 0);
    while session.finished().is_none() {
        let text = [PROMPT.target, session.response()].concat();
        let draft = sparse_round(session, cache, policy, &text, &mut dice);
        let choices = draft.positions.iter().flatten();
        outcomes += choices.map(|choice| choice.outcomes.len()).sum::<usize>();
    }
    outcomes
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn judgements_are_those_of_whole_drafts(
        seed in 0..1000_u64,
        temperature in prop::sample::select(vec![0.0, 0.5, 1.0]),
        block in any::<bool>(),
        top in prop::sample::select(vec![0, 2, 5]),
    ) {
        let pair = pair();
        let acceptance = if block { Acceptance::Block } else { Acceptance::Token };
        let config = SessionConfig {
            acceptance,
            draft_top: top,
            ..config(VerifyMode::Exact, temperature, 30)
        };
        let fresh = || session(text_models(seed, &pair, 0.5), pair.clone(), config.clone());
        let (mut whole, mut sparse) = (fresh(), fresh());
        let (mut cache, name) = (true_cache(), StreamName::new(seed, 1));
        let mut own = cache.clone();
        let policy = &mut ConstantLength(4);
        let done = whole.generate(PROMPT, name, Some(&mut cache), policy, &mut NoSink).expect("text");
        let outcomes = by_sparse_drafts(&mut sparse, &mut own, name);
        prop_assert_eq!(&done.tokens, sparse.response());
        prop_assert_eq!(outcomes > 0, temperature > 0.0);
    }
}

fn draft(outcomes: &[(f64, &[u32])], taken: u32) -> SparseDraft {
    let outcome = |(q, tokens): &(f64, &[u32])| SparseOutcome {
        q: *q,
        tokens: tokens.iter().copied().map(TargetId).collect(),
    };
    let outcomes = outcomes.iter().map(outcome).collect();
    SparseDraft {
        proposals: vec![TargetId(1)],
        positions: vec![vec![SparseChoice { taken, outcomes }]],
    }
}

#[test]
fn impossible_drafts_are_refused() {
    let sampling = Sampling::new(1.0).expect("a temperature");
    let check = |draft: &SparseDraft| draft.check(10, sampling);
    let good = draft(&[(0.6, &[1, 2]), (0.4, &[3])], 0);
    assert_eq!(check(&good), Ok(()));
    let cases = [
        (
            draft(&[(0.6, &[1, 2]), (0.4, &[3])], 2),
            SparseFault::Taken(0),
        ),
        (draft(&[(0.0, &[1])], 0), SparseFault::Taken(0)),
        (
            draft(&[(0.6, &[1]), (0.6, &[3])], 0),
            SparseFault::Probability(0),
        ),
        (
            draft(&[(0.6, &[1]), (f64::NAN, &[3])], 0),
            SparseFault::Probability(0),
        ),
        (
            draft(&[(0.6, &[1]), (-0.1, &[3])], 0),
            SparseFault::Probability(0),
        ),
        (
            draft(&[(0.6, &[1, 2]), (0.4, &[2])], 0),
            SparseFault::Split(0),
        ),
        (draft(&[(0.6, &[1, 10])], 0), SparseFault::Token(10)),
    ];
    for (bad, fault) in cases {
        assert_eq!(check(&bad), Err(fault), "{bad:?}");
    }
    let mut bad = good.clone();
    bad.proposals[0] = TargetId(11);
    assert_eq!(check(&bad), Err(SparseFault::Token(11)));
    // The first choice took 1 and 2, but the second one lists only 1.
    let mut bad = good.clone();
    bad.positions[0].extend(draft(&[(1.0, &[1])], 0).positions[0].clone());
    assert_eq!(check(&bad), Err(SparseFault::Split(0)));
    let mut bad = good.clone();
    bad.positions.clear();
    let (positions, proposals) = (0, 1);
    let fault = SparseFault::Positions {
        positions,
        proposals,
    };
    assert_eq!(check(&bad), Err(fault));
    assert!(good.check(10, Sampling::GREEDY).is_err());
}
