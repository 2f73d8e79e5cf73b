//! Copy, draft, or both: per round, what promises the most tokens for its time.

use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use crate::Costs;

/// Rounds after which an observation counts 1/e.
const MEMORY: f64 = 1000.0;
/// Acceptance of a looked-up token before anything was seen, by bin of the match it goes on.
const BELIEVED: [f64; BINS] = [0.3, 0.5, 0.65, 0.75, 0.85, 0.92, 0.95];
/// Weight of that belief, in tokens.
const PRIOR: f64 = 4.0;
/// Weight, in rounds, of the belief that a match says nothing about the drafter.
const DRAFT_PRIOR: f64 = 8.0;
/// Rounds with a draft after which an observation of the drafter counts 1/e: a drafter that learns
/// becomes another one soon.
const DRAFT_MEMORY: f64 = 200.0;
/// Bins of the length of a match; none is the first.
const BINS: usize = 7;

fn bin_of(matched: usize) -> usize {
    match matched {
        0..=1 => 0,
        2 => 1,
        3 => 2,
        4 => 3,
        5..=7 => 4,
        8..=15 => 5,
        _ => 6,
    }
}

/// Running sums over rounds in which the drafter drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Drafted {
    rounds: f64,
    tokens: f64,
    proposed: f64,
    accepted: f64,
}

/// What copying and drafting have been worth.
///
/// A looked-up token that goes on a match of n tokens is accepted with a probability that depends on
/// n; the one behind it goes on a match of n + 1. Whether it would have been accepted can be seen in
/// every round, copied or not, from the tokens that were emitted: they have the target's law either
/// way. What the drafter is worth is known of the rounds in which it drafted, apart for those in
/// which something was found.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRecord {
    /// Looked-up tokens by bin of the match: how many were judged, how many agreed.
    copied: [[f64; 2]; BINS],
    /// The drafter where nothing was found, then by bin of the match.
    drafted: [Drafted; BINS + 1],
    /// Tokens emitted and their cost.
    emitted: [f64; 2],
    /// Rounds since the drafter last drafted.
    idle: usize,
}

impl Default for CopyRecord {
    fn default() -> Self {
        Self {
            copied: [[0.0; 2]; BINS],
            drafted: [Drafted::default(); BINS + 1],
            emitted: [1.0, 1.0],
            idle: 0,
        }
    }
}

impl CopyRecord {
    /// Probability that a token which goes on a match of this length is accepted.
    pub fn acceptance(&self, matched: usize) -> f64 {
        let bin = bin_of(matched);
        let [judged, agreed] = self.copied[bin];
        (agreed + PRIOR * BELIEVED[bin]) / (judged + PRIOR)
    }

    /// Expected accepted proposals, drafted tokens and proposed tokens of a draft behind a match of
    /// this length, 0 for none.
    fn draft(&self, matched: usize) -> [f64; 3] {
        let mean = |d: Drafted, before: [f64; 3], weight: f64| {
            let sums = [d.accepted, d.tokens, d.proposed];
            std::array::from_fn(|i| (sums[i] + weight * before[i]) / (d.rounds + weight))
        };
        let all = self
            .drafted
            .iter()
            .fold(Drafted::default(), |a, b| Drafted {
                rounds: a.rounds + b.rounds,
                tokens: a.tokens + b.tokens,
                proposed: a.proposed + b.proposed,
                accepted: a.accepted + b.accepted,
            });
        let all = mean(all, [2.0, 4.0, 4.0], 1.0);
        mean(self.drafted[draft_bin(matched)], all, DRAFT_PRIOR)
    }

    /// Expected tokens, less what their time is worth, of copying `copy` tokens behind a match of
    /// `matched` and, perhaps, of drafting behind them; a round that does neither is worth 0.
    ///
    /// Time is worth the tokens that it yields on average, so the best choice by this measure is
    /// the one that yields most tokens per time in the long run.
    fn value(&self, costs: &Costs, matched: usize, copy: usize, draft: bool) -> f64 {
        let (mut stands, mut tokens) = (1.0, 0.0);
        for i in 0..copy {
            stands *= self.acceptance(matched + i);
            tokens += stands;
        }
        let rate = self.emitted[0] / self.emitted[1];
        let (mut cost, mut positions) = (0.0, copy as f64);
        if draft {
            let behind = if copy > 0 || matched > 0 {
                matched + copy
            } else {
                0
            };
            let [accepted, drafted, proposed] = self.draft(behind);
            tokens += stands * accepted;
            cost += between(drafted, |n| costs.draft(n));
            positions += proposed;
        }
        cost += between(positions, |n| costs.verify(1 + n)) - costs.verify(1);
        tokens - rate * cost
    }

    /// The best use of what was found.
    fn plan(&self, costs: &Costs, matched: usize, found: usize) -> CopyPlan {
        let mut best = (
            0.0,
            CopyPlan {
                copy: 0,
                draft: false,
            },
        );
        for draft in [true, false] {
            for copy in 0..=found {
                let value = self.value(costs, matched, copy, draft);
                if value > best.0 {
                    best = (value, CopyPlan { copy, draft });
                }
            }
        }
        best.1
    }

    /// Takes in a round.
    fn observe(&mut self, costs: &Costs, found: Option<&Found>, outcome: &RoundOutcome) {
        let keep = 1.0 - 1.0 / MEMORY;
        let counts = self.copied.iter_mut().flatten().chain(&mut self.emitted);
        counts.for_each(|count| *count *= keep);

        let copied = outcome.looked_up();
        let proposed = outcome.proposed() - copied;
        self.emitted[0] += outcome.emitted.len() as f64;
        self.emitted[1] +=
            costs.verify(1 + outcome.proposed()) + costs.draft(outcome.draft.len()) + costs.round;
        let matched = found.map_or(0, |found| found.matched);
        if let Some(found) = found {
            for (i, (token, said)) in found.tokens.iter().zip(&outcome.emitted).enumerate() {
                let [judged, agreed] = &mut self.copied[bin_of(matched + i)];
                *judged += 1.0;
                if token != said {
                    break;
                }
                *agreed += 1.0;
            }
        }
        self.idle += 1;
        // A draft behind copied text is judged only where all of that stands.
        if !outcome.draft.is_empty() && outcome.accepted >= copied {
            self.idle = 0;
            let keep = 1.0 - 1.0 / DRAFT_MEMORY;
            for d in &mut self.drafted {
                d.rounds *= keep;
                d.tokens *= keep;
                d.proposed *= keep;
                d.accepted *= keep;
            }
            let behind = if copied > 0 {
                matched + copied
            } else {
                matched
            };
            let drafted = &mut self.drafted[draft_bin(behind)];
            drafted.rounds += 1.0;
            drafted.tokens += outcome.draft.len() as f64;
            drafted.proposed += proposed as f64;
            drafted.accepted += (outcome.accepted - copied) as f64;
        }
    }

    /// Its numbers, in an order of their own.
    pub fn numbers(&self) -> Vec<f64> {
        let drafted = self.drafted.iter();
        let drafted = drafted.flat_map(|d| [d.rounds, d.tokens, d.proposed, d.accepted]);
        let copied = self.copied.iter().flatten().copied();
        copied.chain(drafted).chain(self.emitted).collect()
    }

    /// From [`numbers`](Self::numbers); `None` for others.
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let mut record = Self::default();
        let valid = |x: &f64| x.is_finite() && *x >= 0.0;
        if numbers.len() != record.numbers().len() || !numbers.iter().all(valid) {
            return None;
        }
        let mut numbers = numbers.iter().copied();
        let mut next = || numbers.next().unwrap_or_default();
        record.copied.iter_mut().flatten().for_each(|x| *x = next());
        for d in &mut record.drafted {
            (d.rounds, d.tokens, d.proposed, d.accepted) = (next(), next(), next(), next());
        }
        record.emitted = [next(), next()];
        (record.emitted[1] > 0.0).then_some(record)
    }
}

/// Where the drafter's worth behind a match of this length is recorded.
fn draft_bin(matched: usize) -> usize {
    match matched {
        0 => 0,
        some => 1 + bin_of(some),
    }
}

/// A cost at a mean that is no whole number.
fn between(at: f64, cost: impl Fn(usize) -> f64) -> f64 {
    let low = at.max(0.0).floor();
    let (below, above) = (cost(low as usize), cost(low as usize + 1));
    below + (at - low) * (above - below)
}

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
    /// now.
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

    fn explores(&self) -> bool {
        let idle = self.record.idle + 1;
        self.learns && self.explore.is_some_and(|every| idle >= every)
    }
}

impl<P: DraftPolicy> DraftPolicy for CopyOrDraft<'_, P> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        self.found = Some(found.clone());
        self.planned = true;
        if self.explores() {
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
        if planned || self.explores() || self.record.value(&self.costs, 0, 0, true) > 0.0 {
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

    /// What a record chooses after many rounds in which looked-up tokens agree as `copies` says and
    /// the drafter is accepted as `drafts` says.
    fn choice(copies: bool, drafts: bool) -> (CopyPlan, usize) {
        let mut record = CopyRecord::default();
        let found = Found {
            matched: 4,
            tokens: ids(&[1, 2, 3, 4, 5, 6]),
        };
        for i in 0..600 {
            let mut policy = CopyOrDraft::new(
                ConstantLength(4),
                &mut record,
                Costs::default(),
                true,
                Some(16),
            );
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
        let mut policy = CopyOrDraft::new(
            ConstantLength(4),
            &mut record,
            Costs::default(),
            false,
            None,
        );
        let plan = policy.plan_copy(&found);
        policy.observe(&outcome(&[], 0, 0, &[7]));
        (plan, policy.next_len())
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
        assert_eq!(
            CopyRecord::from_numbers(&numbers),
            Some(CopyRecord { idle: 0, ..record })
        );
        assert_eq!(CopyRecord::from_numbers(&numbers[1..]), None);
        assert_eq!(
            CopyRecord::from_numbers(&vec![f64::NAN; numbers.len()]),
            None
        );
    }
}
