//! Bounds, monotonicity, and the two policies step by step.

use adaptive_draft::{Confidence, Heuristic, PolicyError};
use proptest::prelude::*;
use spec_decode::{DraftPolicy, DraftStep};
use vocab_align::DraftId;

fn drafted(policy: &mut Confidence, probabilities: &[f64]) -> usize {
    let most = policy.next_len();
    for (position, &probability) in probabilities.iter().take(most).enumerate() {
        let step = DraftStep {
            position,
            token: DraftId(0),
            probability,
            logits: &[],
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
    }
}

#[test]
fn confidence_is_joint_over_the_draft_and_starts_anew() {
    let mut policy = Confidence::new(8, 0.5).unwrap();
    assert_eq!(drafted(&mut policy, &[0.9, 0.8, 0.6, 0.9]), 3);
    assert_eq!(drafted(&mut policy, &[0.9, 0.9]), 2);
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
}
