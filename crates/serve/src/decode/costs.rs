//! Measured costs of rounds on this machine, alone and beside others.

use adaptive_draft::{Costs, MeasuredCosts, SharedCosts};

use super::Decoder;

/// Measured costs of rounds of one target.
#[derive(Default)]
pub(super) struct TargetCosts {
    /// Costs of rounds of a sequence that is decoded alone.
    pub(super) alone: MeasuredCosts,
    /// Costs of steps of any number of sequences.
    pub(super) shared: SharedCosts,
}

/// Costs of rounds for one of several concurrent sequences.
pub(super) struct ConcurrentCosts {
    /// Number of sequences that are decoded together, at least 1.
    pub(super) concurrency: usize,
    pub(super) costs: Costs,
}

impl TargetCosts {
    /// Costs for one of `concurrency` sequences. Several sequences use the costs measured in shared
    /// steps, if any; otherwise rounds alone count, with those of steps or the defaults as prior.
    pub(super) fn of(&self, concurrency: usize) -> ConcurrentCosts {
        let costs = match self.shared.costs(concurrency) {
            Some(shared) if concurrency > 1 => shared,
            shared => self.alone.costs(&shared.unwrap_or_default()),
        };
        ConcurrentCosts { concurrency, costs }
    }
}

impl Decoder {
    /// Number of answers of a target that run or are about to begin, rounded up to a power of two,
    /// so that a plan for it stays valid when one of them ends early.
    pub(super) fn concurrency(&self, target: usize, beginning: usize) -> usize {
        let same = self.jobs().filter(|job| job.request.target == target);
        (same.count() + beginning).max(1).next_power_of_two()
    }

    /// The target of all sequences, if they share one and it is local.
    pub(super) fn only_target(&self) -> Option<usize> {
        let target = self.running.first()?.slot.target;
        let same = self.running.iter().all(|other| other.slot.target == target);
        let here = self.models.targets[target].folder().is_some();
        (same && here).then_some(target)
    }
}
