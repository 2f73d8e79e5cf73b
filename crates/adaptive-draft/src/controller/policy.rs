//! Draft policies of answers under a controller.

use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use super::{Answer, RoundCost, Way};

/// Policy that asks an inner policy only in the rounds in which an [`Answer`] under a controller
/// speculates; in every round if the answer is not under control.
#[derive(Debug)]
pub struct Controlled<P> {
    inner: P,
    answer: Option<Answer>,
    /// True if the inner policy has a part in the present round. `had_part`: in the last one.
    asked: bool,
    had_part: bool,
}

impl<P> Controlled<P> {
    /// The policy `inner`, under the control of `answer` if there is one.
    pub fn new(inner: P, answer: Option<Answer>) -> Self {
        Self {
            inner,
            answer,
            asked: false,
            had_part: false,
        }
    }

    /// The inner policy.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// The inner policy, if it had a part in the last round.
    pub fn last_asked(&self) -> Option<&P> {
        self.had_part.then_some(&self.inner)
    }

    /// The way in which the answer is made; `None` if it is not under control.
    pub fn way(&self) -> Option<Way> {
        self.answer.as_ref().map(Answer::way)
    }

    /// Adds the seconds in which the drafter read the prompt.
    pub fn read(&mut self, seconds: f64) {
        if let Some(answer) = &mut self.answer {
            answer.read(seconds);
        }
    }

    /// Adds the costs of a round. `recording`: seconds of it that were spent on recording for
    /// learning.
    pub fn take_in(&mut self, outcome: &RoundOutcome, recording: f64) {
        if let Some(answer) = &mut self.answer {
            let mut cost = RoundCost::from(outcome);
            cost.rest = (cost.rest - recording).max(0.0);
            answer.observe(&cost);
            answer.recorded(recording);
        }
    }

    /// The answer at its end; `None` if it is not under control, or at a second call.
    pub fn end(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    /// Permissions for this round: for the drafter, and for looked-up text.
    fn allowed(&self) -> (bool, bool) {
        let Some(answer) = &self.answer else {
            return (true, true);
        };
        let speculates = answer.speculates();
        (speculates && answer.way().drafts(), speculates)
    }
}

impl<P: DraftPolicy> DraftPolicy for Controlled<P> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        let (drafts, copies) = self.allowed();
        self.asked = copies;
        if !copies {
            return CopyPlan::default();
        }
        let mut plan = self.inner.plan_copy(found);
        plan.draft &= drafts;
        plan
    }

    fn next_len(&mut self) -> usize {
        let (drafts, copies) = self.allowed();
        // A round without a match counts for copies, too.
        self.asked |= copies;
        match drafts {
            true => self.inner.next_len(),
            false => 0,
        }
    }

    fn reads_drafter(&self) -> bool {
        self.inner.reads_drafter()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.inner.stop_after(step)
    }

    fn is_worth(&self, others: usize, chance: f64) -> bool {
        self.inner.is_worth(others, chance)
    }

    fn draft_acceptance(&self, position: usize, probability: f64) -> f64 {
        self.inner.draft_acceptance(position, probability)
    }

    fn copy_acceptance(&self, matched: usize) -> f64 {
        self.inner.copy_acceptance(matched)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.had_part = std::mem::take(&mut self.asked);
        if self.had_part {
            self.inner.observe(outcome);
        }
    }
}
