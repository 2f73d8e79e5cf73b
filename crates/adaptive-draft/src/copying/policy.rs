//! A round by a record.

use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use super::CopyRecord;
use crate::Costs;

/// Lets a [`CopyRecord`] choose in every round between looked-up text, the drafter (as another policy
/// has it), both one behind the other, and neither.
#[derive(Debug)]
pub struct CopyOrDraft<'a, P> {
    inner: P,
    record: &'a mut CopyRecord,
    costs: Costs,
    learns: bool,
    explore: Option<usize>,
    found: Option<Found>,
    planned: bool,
}

impl<'a, P> CopyOrDraft<'a, P> {
    /// Chooses by `record` and `costs`; the record takes rounds in if it `learns`. Of `explore` rounds
    /// in which the drafter is not worth its time one drafts nevertheless, to see whether it is by
    /// now; so does, where it is worth its time elsewhere, one of four times as many rounds in which
    /// something of one length was found.
    pub fn new(
        inner: P,
        record: &'a mut CopyRecord,
        costs: Costs,
        learns: bool,
        explore: Option<usize>,
    ) -> Self {
        Self {
            inner,
            record,
            costs,
            learns,
            explore,
            found: None,
            planned: false,
        }
    }

    fn explores(&self, matched: usize) -> bool {
        let due = |every| self.record.is_due(matched, every);
        self.learns && self.explore.is_some_and(due)
    }
}

impl<P: DraftPolicy> DraftPolicy for CopyOrDraft<'_, P> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        self.found = Some(found.clone());
        self.planned = true;
        if self.explores(found.matched) {
            return CopyPlan {
                copy: 0,
                draft: true,
            };
        }
        self.record
            .plan(&self.costs, found.matched, found.tokens.len())
    }

    fn next_len(&mut self) -> usize {
        let planned = std::mem::take(&mut self.planned);
        if planned || self.explores(0) || self.record.value(&self.costs, 0, 0, true) > 0.0 {
            return self.inner.next_len();
        }
        0
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.inner.stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.planned = false;
        let found = self.found.take();
        if self.learns {
            self.record.observe(&self.costs, found.as_ref(), outcome);
        }
        // The other policy is told of what it drafted, as far as that was judged.
        let copied = outcome.looked_up();
        if copied == 0 && !outcome.draft.is_empty() {
            self.inner.observe(outcome);
        } else if !outcome.draft.is_empty() && outcome.accepted >= copied {
            let mut drafted = outcome.clone();
            drafted.proposals.drain(..copied);
            drafted.scores.drain(..copied.min(drafted.scores.len()));
            drafted.accepted -= copied;
            self.inner.observe(&drafted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec_decode::{ConstantLength, Origin, Proposal, Timings};
    use vocab_align::{DraftId, TargetId};

    fn ids(raw: &[u32]) -> Vec<TargetId> {
        raw.iter().copied().map(TargetId).collect()
    }

    /// A round that proposed `copied` of `found` and a draft of four, and emitted `said`.
    fn outcome(copied: &[u32], drafted: usize, accepted: usize, said: &[u32]) -> RoundOutcome {
        let proposal = |target, span| Proposal {
            target,
            span,
            kind: ngram_cache::Kind::Direct,
        };
        let copies = ids(copied).into_iter().map(|token| proposal(token, 0..0));
        let drafts = (0..drafted).map(|i| proposal(TargetId(900), i..i + 1));
        RoundOutcome {
            round: 0,
            draft: vec![DraftId(0); drafted],
            proposals: copies.chain(drafts).collect(),
            accepted,
            emitted: ids(said),
            origin: Origin::Residual,
            scores: Vec::new(),
            emitted_bytes: 0,
            inserted: 0,
            timings: Timings::default(),
        }
    }

    fn found() -> Found {
        Found {
            matched: 4,
            tokens: ids(&[1, 2, 3, 4, 5, 6]),
        }
    }

    /// Rounds, something found in every other one, in which looked-up tokens agree as `copies` says
    /// and the drafter is accepted as `drafts` says.
    fn live(record: &mut CopyRecord, costs: &Costs, rounds: usize, copies: bool, drafts: bool) {
        let found = found();
        for i in 0..rounds {
            let costs = costs.clone();
            let mut policy = CopyOrDraft::new(ConstantLength(4), record, costs, true, Some(16));
            let found = (i % 2 == 0).then_some(&found);
            let plan = found.map_or(
                CopyPlan {
                    copy: 0,
                    draft: true,
                },
                |found| policy.plan_copy(found),
            );
            let k = if plan.draft { policy.next_len() } else { 0 };
            let copied = &[1, 2, 3, 4, 5, 6][..plan.copy];
            let stands = if copies { plan.copy } else { 0 };
            let accepted = if stands == plan.copy && drafts {
                stands + k
            } else {
                stands
            };
            let mut said: Vec<u32> = copied[..stands].to_vec();
            let next = if copies {
                [1, 2, 3, 4, 5, 6].get(stands).copied()
            } else {
                Some(800)
            };
            said.extend(next);
            said.extend(vec![900; accepted - stands]);
            policy.observe(&outcome(copied, k, accepted, &said));
        }
    }

    /// What a record chooses where something was found, and where nothing was.
    fn chosen(record: &mut CopyRecord, costs: &Costs) -> (CopyPlan, usize) {
        let mut policy = CopyOrDraft::new(ConstantLength(4), record, costs.clone(), false, None);
        let plan = policy.plan_copy(&found());
        policy.observe(&outcome(&[], 0, 0, &[7]));
        (plan, policy.next_len())
    }

    fn choice(copies: bool, drafts: bool) -> (CopyPlan, usize) {
        let (mut record, costs) = (CopyRecord::default(), Costs::default());
        live(&mut record, &costs, 600, copies, drafts);
        chosen(&mut record, &costs)
    }

    #[test]
    fn a_drafter_that_has_learnt_is_used_behind_matches_too() {
        let costs = Costs {
            draft: vec![0.15, 0.2, 0.25, 0.3],
            verify: vec![1.0, 1.05, 1.1, 1.15, 1.2],
            round: 0.0,
        };
        let mut record = CopyRecord::default();
        live(&mut record, &costs, 2000, false, false);
        let (plan, k) = chosen(&mut record, &costs);
        assert_eq!((plan.draft, k), (false, 0));
        // A hundred rounds later it is better by far.
        live(&mut record, &costs, 100, false, true);
        let (plan, k) = chosen(&mut record, &costs);
        assert_eq!((plan.draft, k), (true, 4));
    }

    #[test]
    fn it_does_what_has_paid() {
        // Everything is accepted: all of it. Verification is free of charge here.
        assert_eq!(
            choice(true, true),
            (
                CopyPlan {
                    copy: 6,
                    draft: true
                },
                4
            )
        );
        assert_eq!(
            choice(true, false),
            (
                CopyPlan {
                    copy: 6,
                    draft: false
                },
                0
            )
        );
        assert_eq!(
            choice(false, true),
            (
                CopyPlan {
                    copy: 0,
                    draft: true
                },
                4
            )
        );
        let (plan, k) = choice(false, false);
        assert_eq!((plan.draft, k), (false, 0));
    }

    #[test]
    fn a_record_survives_its_numbers() {
        let mut record = CopyRecord::default();
        let found = Found {
            matched: 2,
            tokens: ids(&[1, 2]),
        };
        record.observe(
            &Costs::default(),
            Some(&found),
            &outcome(&[1, 2], 4, 3, &[1, 2, 900, 8]),
        );
        let numbers = record.numbers();
        assert_eq!(CopyRecord::from_numbers(&numbers), Some(record));
        assert_eq!(CopyRecord::from_numbers(&numbers[1..]), None);
        assert_eq!(
            CopyRecord::from_numbers(&vec![f64::NAN; numbers.len()]),
            None
        );
    }
}
