//! How long to draft.

use vocab_align::DraftId;

use crate::{Found, RoundOutcome};

/// Most looked-up tokens that are put to a policy.
pub const LONGEST_COPY: usize = 32;

/// How a round uses text that was found to go on like the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// How many of its tokens are proposed, from the first; what there is at most.
    pub copy: usize,
    /// Whether the drafter goes on behind them.
    pub draft: bool,
}

/// What a policy sees after each drafted token.
#[derive(Clone, Copy, Debug)]
pub struct DraftStep<'a> {
    /// Position in the draft, from 0.
    pub position: usize,
    /// The drafted token.
    pub token: DraftId,
    /// Its probability under the masked drafter law; 1 at temperature 0.
    pub probability: f64,
    /// The drafter's raw logits it was drawn from, `[V_q]`, unmasked; may be empty for a policy that
    /// does not [read](DraftPolicy::reads_drafter) them.
    pub logits: &'a [f32],
    /// The drafter's final hidden state the logits were computed from
    /// ([`LanguageModel::state`](crate::LanguageModel::state)); empty where it has none.
    pub state: &'a [f32],
    /// Whether the draft ends inside a cached n-gram that its next tokens could still complete.
    pub open: bool,
}

/// Decides the draft length, before and during drafting.
///
/// Decisions may depend on the tokens drafted so far and on the drafter's state behind them, never
/// on tokens still to come or on the target's draws of this round: verification stays exact. What
/// has been drawn is always put to the target, for to withdraw a token because of what it is would
/// change the law of the output.
pub trait DraftPolicy {
    /// How to use text that was looked up, asked where there is some, before
    /// [`next_len`](Self::next_len). All of it instead of a draft, if not told otherwise.
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        CopyPlan {
            copy: found.tokens.len(),
            draft: false,
        }
    }

    /// Most tokens to draft in the coming round (the paper's k); 0 drafts nothing. Asked in every
    /// round in which the drafter may draft.
    fn next_len(&mut self) -> usize;

    /// Whether [`stop_after`](Self::stop_after) looks at logits or state. Where it does not, a drafter
    /// on a device need not bring them to the host, and steps may come without them.
    fn reads_drafter(&self) -> bool {
        true
    }

    /// True to stop drafting behind this token.
    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let _ = step;
        false
    }

    /// Told about every finished round.
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
