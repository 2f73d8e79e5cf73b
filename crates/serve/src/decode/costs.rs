//! Measured costs of rounds on this machine, alone and beside others.

use adaptive_draft::{Costs, Forwards, MeasuredCosts, SharedCosts, SharedStep};
use spec_decode::RoundOutcome;

use super::Decoder;

/// Measured costs of rounds of one target.
#[derive(Default)]
pub(super) struct TargetCosts {
    /// Costs of rounds of a sequence that is decoded alone.
    alone: MeasuredCosts,
    /// Costs of steps of any number of sequences.
    shared: SharedCosts,
}

/// Costs of one target in a step.
#[derive(Default)]
pub(super) struct Verified {
    pub(super) forward: Forwards,
    /// Seconds of verification and commit.
    pub(super) rest: f64,
    /// True if drafts of other servers were scored too.
    pub(super) guests: bool,
}

impl TargetCosts {
    /// Records a round of a sequence that was decoded alone.
    pub(super) fn observe(&mut self, outcome: &RoundOutcome) {
        self.alone.observe(outcome);
    }

    /// Records a step of sequences of this target.
    pub(super) fn observe_step(&mut self, draft: Forwards, verified: &Verified) {
        // A step without drafts says nothing of their cost, and drafts of other servers are not
        // drafted here.
        if draft.calls > 0 && verified.forward.calls > 0 && !verified.guests {
            self.shared.observe(&SharedStep {
                draft,
                verify: verified.forward,
                rest: verified.rest,
            });
        }
    }

    /// Costs for one of `crowd` sequences: those measured in steps if there are any, else those of
    /// rounds alone, else the defaults.
    pub(super) fn of(&self, crowd: usize) -> Costs {
        match self.shared.costs(crowd) {
            Some(shared) if crowd > 1 => shared,
            shared => self.alone.costs(&shared.unwrap_or_default()),
        }
    }
}

impl Decoder {
    /// Number of answers of a target that run or are about to begin, rounded up to a power of two,
    /// so that a plan for it stays valid when one of them ends early.
    pub(super) fn crowd(&self, target: usize, beginning: usize) -> usize {
        let running = self.running.iter().map(|sequence| sequence.seat.target);
        let reading = self.reading.iter().map(|reading| reading.job.ask.target);
        let same = running.chain(reading).filter(|other| *other == target);
        (same.count() + beginning).max(1).next_power_of_two()
    }

    /// The target of all sequences, if they share one and it is local.
    pub(super) fn only_target(&self) -> Option<usize> {
        let target = self.running.first()?.seat.target;
        let same = self.running.iter().all(|other| other.seat.target == target);
        let here = self.models.targets[target].folder().is_some();
        (same && here).then_some(target)
    }
}
