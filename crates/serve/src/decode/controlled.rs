//! Answers that seconds decide for.

use std::time::Instant;

use adaptive_draft::{Answer, RoundCost, Way};
use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use super::lengths::{Policy, Scores};

/// A policy, asked in the rounds that an answer's controller lets it have.
pub(super) struct Controlled {
    policy: Policy,
    answer: Option<Answer>,
    /// Whether the policy has a part in the round, and had one in the last.
    asked: bool,
    had_part: bool,
    /// Whether the answer has shared its time with others.
    shared: bool,
}

impl Controlled {
    /// Without an answer under control, the policy alone.
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

    /// What the tokens drafted last were expected to be worth, where lengths are adapted and the last
    /// round was the policy's.
    pub(super) fn scores(&self) -> Option<&Scores> {
        self.policy.scores().filter(|_| self.had_part)
    }

    /// Takes in the seconds in which the drafter read the prompt.
    pub(super) fn read(&mut self, seconds: f64) {
        if let Some(answer) = &mut self.answer {
            answer.read(seconds);
        }
    }

    /// Takes in a round that recorded for so many seconds, made `alone` or beside others.
    pub(super) fn take_in(&mut self, outcome: &RoundOutcome, recording: f64, alone: bool) {
        self.shared |= !alone;
        if let Some(answer) = &mut self.answer {
            let mut cost = RoundCost::from(outcome);
            cost.rest = (cost.rest - recording).max(0.0);
            answer.observe(&cost);
            answer.recorded(recording);
        }
    }

    /// The answer at its end, and whether its seconds are its own.
    pub(super) fn end(&mut self) -> Option<(Answer, bool)> {
        Some((self.answer.take()?, !self.shared))
    }

    /// Whether the drafter may have a part in this round, and text that is looked up.
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

/// Sums the seconds of what it is asked to do.
pub(super) fn timed<T>(seconds: &mut f64, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = act();
    *seconds += began.elapsed().as_secs_f64();
    done
}
