//! What copying and drafting have been worth.

use spec_decode::{CopyPlan, Found, RoundOutcome};

use crate::Costs;

/// Rounds after which an observation of looked-up tokens counts 1/e.
const MEMORY: f64 = 1000.0;
/// Rounds after which tokens and their cost count 1/e: what time is worth rises as a drafter learns.
const RATE_MEMORY: f64 = 300.0;
/// Acceptance of a looked-up token before anything was seen, by bin of the match it goes on.
const BELIEVED: [f64; BINS] = [0.3, 0.5, 0.65, 0.75, 0.85, 0.92, 0.95];
/// Weight of that belief, in tokens.
const PRIOR: f64 = 4.0;
/// Weight, in rounds, of the belief that a match says nothing about the drafter.
const DRAFT_PRIOR: f64 = 40.0;
/// Rounds with a draft after which one counts 1/e: a drafter that learns becomes another one soon.
const DRAFT_MEMORY: f64 = 200.0;
/// Rounds with a draft after which what one says of its bin counts 1/e.
const BIN_MEMORY: f64 = 400.0;
/// So many times as rarely as the drafter at all is it tried behind matches where it is not worth its
/// time.
const BIN_EXPLORE: f64 = 4.0;
/// So many times as rarely where it is far from being worth its time.
const MOST_SELDOM: f64 = 8.0;
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

/// What a draft is: its tokens, proposals and accepted proposals.
type Numbers = [f64; 3];
/// Expected of a draft before any was seen.
const FIRST: Numbers = [4.0, 4.0, 2.0];

/// Drafts behind matches of one bin, beside what the drafter was worth on average at the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Drafted {
    seen: Numbers,
    expected: Numbers,
    /// Rounds since the last one.
    idle: f64,
}

/// What copying and drafting have been worth.
///
/// A looked-up token that goes on a match of n tokens is accepted with a probability that depends on
/// n; the one behind it goes on a match of n + 1. Whether it would have been accepted can be seen in
/// every round, copied or not, from the tokens that were emitted: they have the target's law either
/// way.
///
/// What the drafter is worth is known of the rounds in which it drafted alone. It is one running mean,
/// short because the drafter learns, times a factor for each length of a match (and one for none),
/// which hardly changes as it learns: so lengths at which it seldom drafts keep up with it.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRecord {
    /// Looked-up tokens by bin of the match: how many were judged, how many agreed.
    copied: [[f64; 2]; BINS],
    /// Sums over rounds with a draft, and how many.
    drafts: (Numbers, f64),
    /// The drafter where nothing was found, then by bin of the match.
    drafted: [Drafted; BINS + 1],
    /// Tokens emitted and their cost.
    emitted: [f64; 2],
    /// Rounds since the drafter last drafted.
    idle: f64,
}

impl Default for CopyRecord {
    fn default() -> Self {
        Self {
            copied: [[0.0; 2]; BINS],
            drafts: (FIRST, 1.0),
            drafted: [Drafted::default(); BINS + 1],
            emitted: [1.0, 1.0],
            idle: 0.0,
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

    /// A draft on average.
    fn mean_draft(&self) -> Numbers {
        let (sums, rounds) = self.drafts;
        sums.map(|sum| sum / rounds)
    }

    /// A draft behind a match of this length, 0 for none.
    fn draft(&self, matched: usize) -> Numbers {
        let Drafted { seen, expected, .. } = self.drafted[draft_bin(matched)];
        let mean = self.mean_draft();
        // Where the mean is 0, nothing is known but that.
        let factor = |i: usize| {
            let prior = DRAFT_PRIOR * mean[i];
            let (above, below) = (seen[i] + prior, expected[i] + prior);
            if below > 0.0 { above / below } else { 1.0 }
        };
        let mut draft: Numbers = std::array::from_fn(|i| factor(i) * mean[i]);
        draft[2] += self.doubt();
        draft
    }

    /// One standard error of the accepted tokens of a draft, which are taken to be geometric. In doubt
    /// the drafter drafts: a mean that is too high is soon seen to be, one that is too low is not.
    fn doubt(&self) -> f64 {
        let mean = self.mean_draft()[2];
        (mean * (1.0 + mean) / self.drafts.1).sqrt()
    }

    /// Expected tokens, less what their time is worth, of copying `copy` tokens behind a match of
    /// `matched` and, perhaps, of drafting behind them; a round that does neither is worth 0.
    ///
    /// Time is worth the tokens that it yields on average, so the best choice by this measure is
    /// the one that yields most tokens per time in the long run.
    pub(super) fn value(&self, costs: &Costs, matched: usize, copy: usize, draft: bool) -> f64 {
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
            let [drafted, proposed, accepted] = self.draft(behind);
            tokens += stands * accepted;
            cost += between(drafted, |n| costs.draft(n));
            positions += proposed;
        }
        cost += between(positions, |n| costs.verify(1 + n)) - costs.verify(1);
        tokens - rate * cost
    }

    /// The best use of what was found; with `explore`, of those in which the drafter drafts.
    pub(super) fn plan(
        &self,
        costs: &Costs,
        matched: usize,
        found: usize,
        explore: bool,
    ) -> CopyPlan {
        let first = CopyPlan {
            copy: 0,
            draft: explore,
        };
        let least = match explore {
            true => f64::NEG_INFINITY,
            false => 0.0,
        };
        let mut best = (least, first);
        for draft in [true, false] {
            for copy in 0..=found {
                let value = self.value(costs, matched, copy, draft);
                if value > best.0 && (draft || !explore) {
                    best = (value, CopyPlan { copy, draft });
                }
            }
        }
        best.1
    }

    /// Takes in a round.
    pub(super) fn observe(&mut self, costs: &Costs, found: Option<&Found>, outcome: &RoundOutcome) {
        let keep = 1.0 - 1.0 / MEMORY;
        let counts = self.copied.iter_mut().flatten();
        counts.for_each(|count| *count *= keep);
        let keep = 1.0 - 1.0 / RATE_MEMORY;
        self.emitted = self.emitted.map(|sum| sum * keep);

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
        let behind = match copied {
            0 => matched,
            some => matched + some,
        };
        // Behind copied text that falls a draft is not judged, but it has been tried.
        let drafted = !outcome.draft.is_empty();
        let here = &mut self.drafted[draft_bin(matched)].idle;
        for idle in [here, &mut self.idle] {
            *idle = if drafted { 0.0 } else { *idle + 1.0 };
        }
        // A draft behind copied text is judged only where all of that stands.
        if !outcome.draft.is_empty() && outcome.accepted >= copied {
            let accepted = outcome.accepted - copied;
            let seen = [outcome.draft.len(), proposed, accepted].map(|n| n as f64);
            self.observe_draft(behind, seen);
        }
    }

    fn observe_draft(&mut self, behind: usize, seen: Numbers) {
        let mean = self.mean_draft();
        // All fade, so that a bin that is left alone is tried again.
        let keep = 1.0 - 1.0 / BIN_MEMORY;
        for bin in &mut self.drafted {
            bin.seen = bin.seen.map(|sum| keep * sum);
            bin.expected = bin.expected.map(|sum| keep * sum);
        }
        let bin = &mut self.drafted[draft_bin(behind)];
        let (sums, rounds) = &mut self.drafts;
        let fresh = 1.0 - 1.0 / DRAFT_MEMORY;
        for i in 0..seen.len() {
            bin.seen[i] += seen[i];
            bin.expected[i] += mean[i];
            sums[i] = fresh * sums[i] + seen[i];
        }
        *rounds = fresh * *rounds + 1.0;
    }

    /// Whether it is time to see what the drafter is worth, where it is not worth its time: once in
    /// `every` rounds, up to eight times as seldom by how many standard errors it lacks; behind
    /// matches of one bin, more seldom still.
    pub(super) fn is_due(&self, costs: &Costs, matched: usize, every: usize) -> bool {
        let lacks = (-self.value(costs, 0, 0, true)).max(0.0);
        let seldom = (1.0 + lacks / self.doubt().max(1e-9)).min(MOST_SELDOM);
        let every = every as f64 * seldom;
        let here = self.drafted[draft_bin(matched)].idle + 1.0;
        self.idle + 1.0 >= every || here >= BIN_EXPLORE * every
    }

    /// Its numbers, in an order of their own.
    pub fn numbers(&self) -> Vec<f64> {
        self.clone().places().map(|number| *number).collect()
    }

    fn places(&mut self) -> impl Iterator<Item = &mut f64> {
        let drafted = self.drafted.iter_mut();
        let drafted = drafted.flat_map(|d| {
            let sums = d.seen.iter_mut().chain(&mut d.expected);
            sums.chain([&mut d.idle])
        });
        let drafts = self.drafts.0.iter_mut().chain([&mut self.drafts.1]);
        let copied = self.copied.iter_mut().flatten();
        let rest = self.emitted.iter_mut().chain([&mut self.idle]);
        copied.chain(drafts).chain(drafted).chain(rest)
    }

    /// From [`numbers`](Self::numbers); `None` for others.
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let mut record = Self::default();
        let valid = |x: &f64| x.is_finite() && *x >= 0.0;
        if numbers.len() != record.places().count() || !numbers.iter().all(valid) {
            return None;
        }
        let places = record.places().zip(numbers);
        places.for_each(|(place, number)| *place = *number);
        (record.emitted[1] > 0.0 && record.drafts.1 > 0.0).then_some(record)
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
