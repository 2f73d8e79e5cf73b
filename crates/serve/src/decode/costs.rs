//! What rounds cost on this machine, alone and in company.

use adaptive_draft::{Costs, Forwards, MeasuredCosts, SharedCosts, SharedStep};
use spec_decode::RoundOutcome;

use super::Decoder;

/// What rounds of one target were found to take.
#[derive(Default)]
pub(super) struct TargetCosts {
    /// Of rounds of a sequence alone.
    alone: MeasuredCosts,
    /// Of steps of any number of sequences.
    shared: SharedCosts,
}

/// A target's part in a step.
#[derive(Default)]
pub(super) struct Verified {
    pub(super) forward: Forwards,
    /// Seconds of judging and committing.
    pub(super) rest: f64,
    /// Drafts that were made elsewhere were scored too.
    pub(super) guests: bool,
}

impl TargetCosts {
    /// Takes in a round of a sequence that was alone.
    pub(super) fn observe(&mut self, outcome: &RoundOutcome) {
        self.alone.observe(outcome);
    }

    /// Takes in a step of sequences of this target.
    pub(super) fn observe_step(&mut self, draft: Forwards, verified: &Verified) {
        // A step without drafts says nothing of what they cost, and guests draft elsewhere.
        if draft.calls > 0 && verified.forward.calls > 0 && !verified.guests {
            self.shared.observe(&SharedStep {
                draft,
                verify: verified.forward,
                rest: verified.rest,
            });
        }
    }

    /// For one of `crowd` sequences: what steps were found to take, else what rounds alone were, else
    /// the defaults.
    pub(super) fn of(&self, crowd: usize) -> Costs {
        match self.shared.costs(crowd) {
            Some(shared) if crowd > 1 => shared,
            shared => self.alone.costs(&shared.unwrap_or_default()),
        }
    }
}

impl Decoder {
    /// Answers of a target that are made or about to be, in powers of two: what is planned for a crowd
    /// outlasts one of them that ends early.
    pub(super) fn crowd(&self, target: usize, beginning: usize) -> usize {
        let running = self.running.iter().map(|sequence| sequence.seat.target);
        let reading = self.reading.iter().map(|reading| reading.job.ask.target);
        let same = running.chain(reading).filter(|other| *other == target);
        (same.count() + beginning).max(1).next_power_of_two()
    }

    /// The target of all sequences, if they have one and it is decoded here.
    pub(super) fn only_target(&self) -> Option<usize> {
        let target = self.running.first()?.seat.target;
        let same = self.running.iter().all(|other| other.seat.target == target);
        let here = self.models.targets[target].folder().is_some();
        (same && here).then_some(target)
    }
}
