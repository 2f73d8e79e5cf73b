//! A policy that chooses by a [`CopyRecord`].

use std::borrow::BorrowMut;

use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use super::CopyRecord;
use super::record::Choice;
use crate::Costs;

/// Policy that lets a [`CopyRecord`] choose in every round between looked-up text, the drafter
/// (with a draft length by another policy, at most as long as pays), the former followed by the
/// latter, and neither.
#[derive(Debug)]
pub struct CopyOrDraft<R, P> {
    inner: P,
    /// `None` if no text is looked up: the inner policy then decides alone.
    record: Option<R>,
    costs: Costs,
    longest: usize,
    learns: bool,
    explore: Option<usize>,
    found: Option<Found>,
    /// The choice of a round that has begun.
    planned: Option<Choice>,
}

impl<R: BorrowMut<CopyRecord>, P> CopyOrDraft<R, P> {
    /// A policy that chooses by `record` and `costs`, with an inner policy whose drafts have at
    /// most `longest` tokens. The record is updated by rounds if it `learns`. If the drafter is not
    /// worth its time, it drafts nevertheless in one of `explore` rounds or fewer, to see if that
    /// has changed.
    pub fn new(
        inner: P,
        record: R,
        costs: Costs,
        longest: usize,
        learns: bool,
        explore: Option<usize>,
    ) -> Self {
        Self {
            record: Some(record),
            costs,
            longest,
            learns,
            explore,
            ..Self::without_copies(inner)
        }
    }

    /// The inner policy alone, for answers in which no text is looked up.
    pub fn without_copies(inner: P) -> Self {
        Self {
            inner,
            record: None,
            costs: Costs::default(),
            longest: 0,
            learns: false,
            explore: None,
            found: None,
            planned: None,
        }
    }

    /// The policy that decides the draft length.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The same policy, mutable.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// The choice after a match of `matched` tokens (0 for none) that continues with `found`
    /// tokens.
    fn plan(&self, matched: usize, found: usize) -> Choice {
        let Some(record) = &self.record else {
            let (copy, draft) = (0, usize::MAX);
            return Choice { copy, draft };
        };
        let record: &CopyRecord = (*record).borrow();
        let (costs, longest) = (&self.costs, self.longest);
        let due = |every| record.is_due(costs, matched, longest, every);
        let explores = self.learns && self.explore.is_some_and(due);
        record.plan(costs, (matched, found), longest, (self.learns, explores))
    }
}

impl<R: BorrowMut<CopyRecord>, P: DraftPolicy> DraftPolicy for CopyOrDraft<R, P> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        let choice = self.plan(found.matched, found.tokens.len());
        self.found = Some(found.clone());
        self.planned = Some(choice);
        CopyPlan {
            copy: choice.copy,
            draft: choice.draft > 0,
        }
    }

    fn next_len(&mut self) -> usize {
        let choice = match self.planned {
            Some(choice) => choice,
            None => self.plan(0, 0),
        };
        self.planned = Some(choice);
        match choice.draft {
            0 => 0,
            most => self.inner.next_len().min(most),
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
        match &self.record {
            Some(record) => (*record).borrow().acceptance(matched),
            None => self.inner.copy_acceptance(matched),
        }
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        let planned = self.planned.take();
        let found = self.found.take();
        if let Some(record) = &mut self.record
            && self.learns
        {
            let most = planned.map_or(0, |choice| choice.draft);
            let record: &mut CopyRecord = (*record).borrow_mut();
            record.observe(&self.costs, found.as_ref(), most, outcome);
        }
        // The inner policy sees its own draft, as far as that was verified.
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
    use spec_decode::{Chance, ConstantLength, Dice, Proposal, Purpose, StreamName};
    use vocab_align::{DraftId, TargetId};

    fn ids(raw: &[u32]) -> Vec<TargetId> {
        raw.iter().copied().map(TargetId).collect()
    }

    /// A round that proposed `copied` and then `drafted` draft tokens, and emitted `said`.
    fn outcome(copied: &[u32], drafted: usize, accepted: usize, said: &[u32]) -> RoundOutcome {
        let proposal = |target, span| Proposal {
            target,
            span,
            kind: ngram_cache::Kind::Direct,
        };
        let copies = ids(copied).into_iter().map(|token| proposal(token, 0..0));
        let drafts = (0..drafted).map(|i| proposal(TargetId(900), i..i + 1));
        RoundOutcome {
            draft: vec![DraftId(0); drafted],
            proposals: copies.chain(drafts).collect(),
            accepted,
            emitted: ids(said),
            ..RoundOutcome::default()
        }
    }

    fn plan(copy: usize, draft: bool) -> CopyPlan {
        CopyPlan { copy, draft }
    }

    fn found() -> Found {
        Found {
            matched: 4,
            tokens: ids(&[1, 2, 3, 4, 5, 6]),
        }
    }

    /// Rounds, with a match in every other one, in which looked-up tokens agree as `copies` says
    /// and the drafter is accepted as `drafts` says.
    fn live(record: &mut CopyRecord, costs: &Costs, rounds: usize, copies: bool, drafts: bool) {
        let found = found();
        for i in 0..rounds {
            let costs = costs.clone();
            let mut policy =
                CopyOrDraft::new(ConstantLength(4), &mut *record, costs, 4, true, Some(16));
            let found = (i % 2 == 0).then_some(&found);
            let plan = found.map_or(plan(0, true), |found| policy.plan_copy(found));
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

    /// The choices of a record with a match and without.
    fn chosen(record: &mut CopyRecord, costs: &Costs) -> (CopyPlan, usize) {
        let mut policy = CopyOrDraft::new(ConstantLength(4), record, costs.clone(), 4, false, None);
        let plan = policy.plan_copy(&found());
        policy.observe(&outcome(&[], 0, 0, &[7]));
        (plan, policy.next_len())
    }

    #[test]
    fn a_draft_ends_where_more_of_it_does_not_pay() {
        // First tokens are accepted in half of all rounds and no later ones.
        let costs = Costs {
            draft: vec![0.1, 0.2],
            verify: vec![1.0],
            round: 0.0,
        };
        let mut record = CopyRecord::default();
        for i in 0..400 {
            let inner = ConstantLength(8);
            let mut policy = CopyOrDraft::new(inner, &mut record, costs.clone(), 8, true, Some(16));
            let k = policy.next_len();
            let accepted = k.min(i % 2);
            policy.observe(&outcome(&[], k, accepted, &[900, 901][..=accepted]));
        }
        let mut policy = CopyOrDraft::new(ConstantLength(8), record, costs, 8, false, None);
        assert_eq!(policy.next_len(), 1);
    }

    fn choice(copies: bool, drafts: bool) -> (CopyPlan, usize) {
        let costs = Costs {
            draft: vec![0.07],
            verify: vec![1.0],
            round: 0.0,
        };
        let mut record = CopyRecord::default();
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
        // Now it is far better.
        live(&mut record, &costs, 1000, false, true);
        let (plan, k) = chosen(&mut record, &costs);
        assert_eq!((plan.draft, k), (true, 4));
    }

    #[test]
    fn it_does_what_has_paid() {
        // Everything is accepted, and verification is free, so everything is proposed.
        assert_eq!(choice(true, true), (plan(6, true), 4));
        assert_eq!(choice(true, false), (plan(6, false), 0));
        assert_eq!(choice(false, true), (plan(0, true), 4));
        let (plan, k) = choice(false, false);
        assert_eq!((plan.draft, k), (false, 0));
    }

    type Agree = fn(usize) -> f64;

    /// A text, given by the acceptance of looked-up tokens, by length of the match, and of drafted
    /// ones.
    struct World {
        agree: Agree,
        drafts: f64,
        found: f64,
        dice: Dice,
    }

    impl World {
        fn new(agree: Agree, drafts: f64, found: f64) -> Self {
            let dice = StreamName::new(5, 1).dice(Purpose::Plain);
            Self {
                agree,
                drafts,
                found,
                dice,
            }
        }

        /// Number of consecutive successes with probability `p(i)`.
        fn run(&mut self, most: usize, p: impl Fn(usize) -> f64) -> usize {
            (0..most)
                .take_while(|&i| self.dice.accept(p(i), 1.0))
                .count()
        }

        /// Tokens per cost of rounds in which `plan` decides. The first third, in which the drafter
        /// learns, does not count.
        fn rate(
            mut self,
            mut policy: impl FnMut(Option<&Found>, &mut dyn FnMut(CopyPlan, usize) -> RoundOutcome),
        ) -> f64 {
            let costs = Costs::default();
            let (mut tokens, mut cost) = (0.0, 0.0);
            let rounds = 12_000;
            for round in 0..rounds {
                let learnt = (round as f64 / (rounds / 3) as f64).min(1.0);
                let drafts = self.drafts * (0.3 + 0.7 * learnt);
                let matched =
                    [1, 1, 1, 2, 2, 3, 4, 6, 10, 16][(self.dice.uniform() * 10.0) as usize];
                let found = (self.dice.uniform() < self.found).then(|| Found {
                    matched,
                    tokens: ids(&[1, 2, 3, 4, 5, 6, 7, 8]),
                });
                let agree = self.agree;
                let agrees = self.run(8, |i| agree(matched + i));
                let stands = self.run(4, |_| drafts);
                policy(found.as_ref(), &mut |plan, k| {
                    let copied = plan.copy.min(8);
                    let accepted = match agrees.min(copied) {
                        all if all == copied => copied + stands.min(k),
                        some => some,
                    };
                    let said = (0..=accepted as u32)
                        .map(|i| if (i as usize) < agrees { 1 + i } else { 800 });
                    let said: Vec<u32> = said.collect();
                    let text = [1, 2, 3, 4, 5, 6, 7, 8];
                    if round >= rounds / 3 {
                        tokens += 1.0 + accepted as f64;
                        cost += costs.verify(1 + copied + k) + costs.draft(k) + costs.round;
                    }
                    outcome(&text[..copied], k, accepted, &said)
                });
            }
            tokens / cost
        }

        fn chosen(self) -> f64 {
            let mut record = CopyRecord::default();
            self.rate(|found, play| {
                let mut policy = CopyOrDraft::new(
                    ConstantLength(4),
                    &mut record,
                    Costs::default(),
                    4,
                    true,
                    Some(8),
                );
                let plan = found.map_or(plan(0, true), |found| policy.plan_copy(found));
                let k = if plan.draft { policy.next_len() } else { 0 };
                policy.observe(&play(plan, k));
            })
        }

        /// A fixed choice.
        fn fixed(self, copy: usize, k: usize) -> f64 {
            self.rate(|found, play| {
                let copy = found.map_or(0, |_| copy);
                play(plan(copy, k > 0), k);
            })
        }
    }

    #[test]
    fn it_keeps_up_with_the_better_of_both() {
        let little = |matched: usize| (0.05 + 0.03 * matched as f64).min(0.5);
        let much = |matched: usize| (0.5 + 0.1 * matched as f64).min(0.97);
        let worlds: [(Agree, f64, f64); 5] = [
            (little, 0.5, 0.6),
            (little, 0.42, 0.6),
            (little, 0.7, 0.9),
            (much, 0.2, 0.6),
            (much, 0.6, 0.6),
        ];
        for (i, (agree, drafts, found)) in worlds.into_iter().enumerate() {
            let world = || World::new(agree, drafts, found);
            let drafter = world().fixed(0, 4);
            let copies = [0, 1, 2, 4, 8].map(|copy| world().fixed(copy, 0));
            let lookup = copies.into_iter().fold(0.0, f64::max);
            let both = world().chosen();
            eprintln!("world {i}: drafter {drafter:.3}, lookup {lookup:.3}, both {both:.3}");
            assert!(both > 0.98 * drafter.max(lookup), "world {i}");
        }
    }

    #[test]
    fn alternatives_count_for_drafts_and_not_for_drafts_after_copies() {
        // Copies and drafts are worth about the same. Where copies stand beside drafts, drafts are
        // worth more.
        let costs = Costs {
            draft: vec![0.3],
            verify: vec![1.0],
            round: 0.0,
        };
        let chosen = |further: usize| {
            let mut record = CopyRecord::default();
            for i in 0..2000 {
                let found = Found {
                    matched: 4,
                    tokens: ids(&[1, 2]),
                };
                let inner = ConstantLength(1);
                let mut policy =
                    CopyOrDraft::new(inner, &mut record, costs.clone(), 1, true, Some(4));
                let plan = policy.plan_copy(&found);
                let k = if plan.draft { policy.next_len() } else { 0 };
                // One of two copies is right, and one of two drafts.
                let copied = &[1, 2][..plan.copy];
                let right = i % 2;
                let accepted = right.min(copied.len() + k);
                let mut said = vec![[800, 1][right]; accepted + 1];
                said.extend(vec![7; if plan.copy == 0 && k > 0 { further } else { 0 }]);
                policy.observe(&outcome(copied, k, accepted, &said));
            }
            chosen(&mut record, &costs).0
        };
        assert!(chosen(0).copy > 0, "{:?}", chosen(0));
        assert_eq!(chosen(3), plan(0, true));
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
            4,
            &outcome(&[1, 2], 4, 3, &[1, 2, 900, 8]),
        );
        let numbers = Vec::from(record.clone());
        assert_eq!(CopyRecord::try_from(numbers.clone()), Ok(record.clone()));
        // Without what alternatives gave, as records once were.
        let older = numbers[..numbers.len() - 24].to_vec();
        let read = Vec::from(CopyRecord::try_from(older.clone()).unwrap());
        assert_eq!(read, [older, vec![0.0; 24]].concat());
        assert!(CopyRecord::try_from(numbers[1..].to_vec()).is_err());
        assert!(CopyRecord::try_from(vec![f64::NAN; numbers.len()]).is_err());
    }
}
