//! Bounds, monotonicity, and the untrained policies step by step.

use adaptive_draft::{
    AcceptanceStop, Confidence, Costs, EntropyBound, Head, Heuristic, PolicyError, SCALARS,
};
use proptest::prelude::*;
use spec_decode::{ConstantLength, DraftPolicy, DraftStep};
use vocab_align::DraftId;

/// Logits that give a token this probability among two.
fn logits(probability: f64) -> [f32; 2] {
    let odds = (probability / (1.0 - probability)).ln();
    [odds.clamp(-80.0, 80.0) as f32, 0.0]
}

fn drafted(policy: &mut dyn DraftPolicy, probabilities: &[f64]) -> usize {
    let most = policy.next_len();
    for (position, &probability) in probabilities.iter().take(most).enumerate() {
        let step = DraftStep {
            position,
            token: DraftId(0),
            // Near temperature 0 every drafted token is certain.
            probability: 1.0,
            logits: &logits(probability),
            state: &[0.5, -0.5],
            open: false,
        };
        if policy.stop_after(&step) {
            return position + 1;
        }
    }
    most.min(probabilities.len())
}

proptest! {
    #[test]
    fn heuristic_lengths_stay_within_bounds(outcomes in prop::collection::vec(any::<bool>(), 0..50)) {
        let mut policy = Heuristic::new(4, 2..=7).unwrap();
        for whole in outcomes {
            policy.adapt(whole);
            prop_assert!((2..=7).contains(&policy.next_len()));
        }
    }

    #[test]
    fn a_higher_threshold_never_drafts_more(
        probabilities in prop::collection::vec(0.0..=1.0f64, 1..12),
        (low, high) in (0.0..=1.0f64, 0.0..=1.0f64),
    ) {
        let (low, high) = (low.min(high), low.max(high));
        let mut patient = Confidence::new(8, low).unwrap();
        let mut hasty = Confidence::new(8, high).unwrap();
        prop_assert!(drafted(&mut hasty, &probabilities) <= drafted(&mut patient, &probabilities));
        let mut patient = EntropyBound::new(8, 0.2, low).unwrap();
        let mut hasty = EntropyBound::new(8, 0.2, high).unwrap();
        prop_assert!(drafted(&mut hasty, &probabilities) <= drafted(&mut patient, &probabilities));
    }
}

#[test]
fn the_longest_draft_of_all_rises_no_further() {
    let mut policy = Heuristic::new(usize::MAX, 1..=usize::MAX).unwrap();
    policy.adapt(true);
    assert_eq!(policy.next_len(), usize::MAX);
    policy.adapt(false);
    assert_eq!(policy.next_len(), usize::MAX - 1);
}

#[test]
fn confidence_is_joint_over_the_draft_and_starts_anew() {
    let mut policy = Confidence::new(8, 0.5).unwrap();
    assert_eq!(drafted(&mut policy, &[0.9, 0.8, 0.6, 0.9]), 3);
    assert_eq!(drafted(&mut policy, &[0.9, 0.9]), 2);
}

#[test]
fn the_entropy_bound_looks_at_one_token_at_a_time() {
    // Two even tokens: H = ln 2, the bound is 1 - sqrt(0.2 * 0.693) = 0.628.
    let drafts = |threshold| {
        let mut policy = EntropyBound::new(8, 0.2, threshold).unwrap();
        drafted(&mut policy, &[0.999, 0.001, 0.5, 0.9])
    };
    assert_eq!((drafts(0.62), drafts(0.64)), (4, 3));
}

#[test]
fn drafts_may_have_32_tokens() {
    let certain = [1.0; 40];
    let head = Head::new(2 + SCALARS, 4, 1);
    let mut policies: [Box<dyn DraftPolicy + '_>; 5] = [
        Box::new(ConstantLength(32)),
        Box::new(Heuristic::new(32, 1..=32).unwrap()),
        Box::new(Confidence::new(32, 0.5).unwrap()),
        Box::new(EntropyBound::new(32, 0.2, 0.5).unwrap()),
        Box::new(AcceptanceStop::new(&head, 32, 1.0, false).unwrap()),
    ];
    for policy in &mut policies {
        assert_eq!(drafted(policy.as_mut(), &certain), 32);
    }
}

#[test]
fn costs_follow_the_last_line() {
    let costs = Costs {
        draft: vec![0.2, 0.3],
        verify: vec![1.0, 1.1, 1.3],
        round: 0.0,
    };
    assert_eq!(costs.verify(2), 1.1);
    assert!((costs.verify(5) - 1.7).abs() < 1e-12);
    assert_eq!((costs.draft(0), costs.draft(2)), (0.0, 0.3));
    assert!((costs.draft(4) - 0.5).abs() < 1e-12);
    let one = Costs {
        draft: vec![0.07],
        verify: vec![1.0],
        round: 0.0,
    };
    assert_eq!(one.verify(9), 1.0);
    assert!((one.draft(3) - 0.21).abs() < 1e-12);
    assert!(Costs::default().verify(9) > Costs::default().verify(6));
}

#[test]
fn settings_without_meaning_are_refused() {
    assert_eq!(
        Confidence::new(4, 1.5).unwrap_err(),
        PolicyError::Threshold(1.5)
    );
    assert!(Confidence::new(0, 0.5).is_err());
    assert!(Heuristic::new(9, 1..=8).is_err());
    assert!(Heuristic::new(0, 0..=8).is_err());
    assert_eq!(
        EntropyBound::new(4, 0.0, 0.5).unwrap_err(),
        PolicyError::Scale(0.0)
    );
    let costs = |draft: &[f64], verify: &[f64]| Costs {
        draft: draft.to_vec(),
        verify: verify.to_vec(),
        round: 0.0,
    };
    assert!(costs(&[0.1, 0.1], &[1.0, 1.0]).check().is_ok());
    for bad in [
        costs(&[-0.1], &[1.0]),
        costs(&[], &[1.0]),
        costs(&[0.2, 0.1], &[1.0]),
        costs(&[0.1], &[]),
        costs(&[0.1], &[0.0]),
        costs(&[0.1], &[1.0, 0.9]),
        costs(&[0.1], &[1.0, f64::NAN]),
        costs(&[f64::INFINITY], &[1.0]),
    ] {
        assert!(matches!(bad.check(), Err(PolicyError::Costs { .. })));
    }
}
