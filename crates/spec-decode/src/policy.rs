//! Draft length policies: the trait.

use vocab_align::DraftId;

use crate::{Found, RoundOutcome};

/// Largest number of looked-up tokens that are shown to a policy.
pub const LONGEST_COPY: usize = 32;

/// Use of looked-up text in a round. By default nothing is proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyPlan {
    /// Number of its tokens to propose, from the first; limited by the number found.
    pub copy: usize,
    /// True if the drafter continues after them.
    pub draft: bool,
}

/// Information for a policy after each drafted token.
#[derive(Clone, Copy, Debug)]
pub struct DraftStep<'a> {
    /// Position in the draft, from 0.
    pub position: usize,
    /// The drafted token.
    pub token: DraftId,
    /// Its probability under the masked distribution of the drafter; 1 at temperature 0.
    pub probability: f64,
    /// The drafter's logits that the token was drawn from, `[V_q]`, unmasked. It may be empty
    /// for a policy that does not [read](DraftPolicy::reads_drafter) it.
    pub logits: &'a [f32],
    /// The drafter's final hidden state from which the logits were computed
    /// ([`LanguageModel::state`](crate::LanguageModel::state)); empty if it has none.
    pub state: &'a [f32],
    /// True if the draft ends inside a cached n-gram that its next tokens could still complete.
    pub open: bool,
}

/// Policy that decides the draft length, before and during drafting.
///
/// Decisions may depend on the tokens drafted so far and on the drafter's state after them, but
/// never on later tokens or on the target's draws of this round. Verification then stays exact. A
/// drawn token is always proposed: to withdraw a token because of its value would change the
/// distribution of the output.
pub trait DraftPolicy {
    /// Plan for looked-up text. It is called if some was found, before
    /// [`next_len`](Self::next_len). By default all of it replaces the draft.
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        CopyPlan {
            copy: found.tokens.len(),
            draft: false,
        }
    }

    /// Largest number of tokens to draft in the coming round (the paper's k); 0 drafts nothing. It
    /// is called in every round in which the drafter may draft.
    fn next_len(&mut self) -> usize;

    /// True if [`stop_after`](Self::stop_after) reads logits or state. Otherwise a drafter on a
    /// device need not copy them to the host, and steps may come without them.
    fn reads_drafter(&self) -> bool {
        true
    }

    /// True to stop drafting after this token.
    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let _ = step;
        false
    }

    /// True if a position of the target's forward, beside so many `others`, is worth its time if it
    /// gives a further token with this chance. By default any is.
    fn is_worth(&self, others: usize, chance: f64) -> bool {
        let _ = (others, chance);
        true
    }

    /// Probability that the target says the drafted token at this position, given that it says those
    /// before it and the drafter's `probability` of it at temperature 1. By default it is that
    /// probability.
    fn draft_acceptance(&self, position: usize, probability: f64) -> f64 {
        let _ = position;
        probability
    }

    /// Probability that a looked-up token which continues a match of so many tokens is what the
    /// target says.
    fn copy_acceptance(&self, matched: usize) -> f64 {
        let _ = matched;
        0.5
    }

    /// Called with the result of every finished round.
    fn observe(&mut self, outcome: &RoundOutcome) {
        let _ = outcome;
    }
}

/// The same draft length k in every round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantLength(pub usize);

impl DraftPolicy for ConstantLength {
    fn next_len(&mut self) -> usize {
        self.0
    }

    fn reads_drafter(&self) -> bool {
        false
    }
}

macro_rules! forward_to_inner {
    () => {
        fn plan_copy(&mut self, found: &Found) -> CopyPlan {
            (**self).plan_copy(found)
        }

        fn next_len(&mut self) -> usize {
            (**self).next_len()
        }

        fn reads_drafter(&self) -> bool {
            (**self).reads_drafter()
        }

        fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
            (**self).stop_after(step)
        }

        fn is_worth(&self, others: usize, chance: f64) -> bool {
            (**self).is_worth(others, chance)
        }

        fn draft_acceptance(&self, position: usize, probability: f64) -> f64 {
            (**self).draft_acceptance(position, probability)
        }

        fn copy_acceptance(&self, matched: usize) -> f64 {
            (**self).copy_acceptance(matched)
        }

        fn observe(&mut self, outcome: &RoundOutcome) {
            (**self).observe(outcome);
        }
    };
}

impl<P: DraftPolicy + ?Sized> DraftPolicy for &mut P {
    forward_to_inner!();
}

impl<P: DraftPolicy + ?Sized> DraftPolicy for Box<P> {
    forward_to_inner!();
}
