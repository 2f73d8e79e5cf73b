//! Draft policies under the controller that decides by measured seconds.

use std::time::Instant;

use adaptive_draft::{Answer, RoundCost, Way};
use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use super::lengths::{Policy, Scores};

/// A draft policy that is asked only in the rounds in which the answer's controller speculates.
pub(super) struct Controlled {
    policy: Policy,
    answer: Option<Answer>,
    /// True if the policy has a part in the present round. `had_part`: in the last one.
    asked: bool,
    had_part: bool,
    /// True if the answer was decoded beside others at some time.
    shared: bool,
}

impl Controlled {
    /// Without an answer under control the policy is asked in every round.
    pub(super) fn new(policy: Policy, answer: Option<Answer>) -> Self {
        Self {
            policy,
            answer,
            asked: false,
            had_part: false,
            shared: false,
        }
    }

    pub(super) fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Predicted acceptance of the tokens drafted last, if lengths are adapted and the policy took
    /// part in the last round.
    pub(super) fn scores(&self) -> Option<&Scores> {
        self.policy.scores().filter(|_| self.had_part)
    }

    /// Records the seconds in which the drafter read the prompt.
    pub(super) fn read(&mut self, seconds: f64) {
        if let Some(answer) = &mut self.answer {
            answer.read(seconds);
        }
    }

    /// Records a round. `recording` are the seconds that were spent on examples; `alone` is true if
    /// no other sequence was decoded beside it.
    pub(super) fn take_in(&mut self, outcome: &RoundOutcome, recording: f64, alone: bool) {
        self.shared |= !alone;
        if let Some(answer) = &mut self.answer {
            let mut cost = RoundCost::from(outcome);
            cost.rest = (cost.rest - recording).max(0.0);
            answer.observe(&cost);
            answer.recorded(recording);
        }
    }

    /// The answer at its end, and true if it was never decoded beside others; `None` if it is not
    /// under control, or at a second call.
    pub(super) fn end(&mut self) -> Option<(Answer, bool)> {
        Some((self.answer.take()?, !self.shared))
    }

    /// Permissions for this round: for the drafter, and for looked-up text.
    fn allowed(&self) -> (bool, bool) {
        let Some(answer) = &self.answer else {
            return (true, true);
        };
        let speculates = answer.speculates();
        let drafts = matches!(answer.way(), Way::Learner | Way::Frozen);
        (speculates && drafts, speculates)
    }
}

impl DraftPolicy for Controlled {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        let (drafts, copies) = self.allowed();
        self.asked = copies;
        if !copies {
            return CopyPlan {
                copy: 0,
                draft: false,
            };
        }
        let mut plan = self.policy.plan_copy(found);
        plan.draft &= drafts;
        plan
    }

    fn next_len(&mut self) -> usize {
        if !self.allowed().0 {
            return 0;
        }
        self.asked = true;
        self.policy.next_len()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.policy.stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.had_part = std::mem::take(&mut self.asked);
        if self.had_part {
            self.policy.observe(outcome);
        }
    }
}

/// Calls `act` and adds its duration to `seconds`.
pub(super) fn timed<T>(seconds: &mut f64, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = act();
    *seconds += began.elapsed().as_secs_f64();
    done
}
