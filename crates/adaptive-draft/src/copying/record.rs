//! What copying and drafting have been worth.

use spec_decode::{Found, RoundOutcome};

use crate::Costs;

/// Rounds after which an observation of looked-up tokens counts 1/e.
const MEMORY: f64 = 1000.0;
/// Rounds after which tokens and their cost count 1/e: what time is worth rises as a drafter learns.
const RATE_MEMORY: f64 = 300.0;
/// Acceptance of a looked-up token before anything was seen, by bin of the match it goes on: about
/// what was found with a model that answers, whose text repeats itself less than that of weak ones.
const BELIEVED: [f64; BINS] = [0.25, 0.35, 0.45, 0.5, 0.55, 0.7, 0.85];
/// Weight of that belief, in tokens.
const PRIOR: f64 = 4.0;
/// Weight, in rounds, of the belief that a match says nothing about the drafter.
const DRAFT_PRIOR: f64 = 8.0;
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

/// Longest draft that is told from longer ones.
const LONGEST: usize = 64;
/// Acceptance of a first draft token before any was seen.
const BELIEVED_DRAFT: f64 = 0.3;
/// Weight, in rounds, of the belief that a position of a draft is as the one before it.
const DEPTH_PRIOR: f64 = 4.0;
/// A draft that is made to see what the drafter is worth has at least so many tokens where it may.
const LEAST_TRIED: usize = 4;

/// One position of drafts: how often something might have happened, and how often it did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Depth {
    /// The policy might have gone on to it; it did.
    drafted: [f64; 2],
    /// It was drafted; a proposal ended with it.
    ends: [f64; 2],
    /// All before it stood; it was drafted and stood.
    stands: [f64; 2],
}

impl Depth {
    fn counts(&mut self) -> impl Iterator<Item = &mut f64> {
        let Self {
            drafted,
            ends,
            stands,
        } = self;
        drafted.iter_mut().chain(ends).chain(stands)
    }
}

/// What a draft of at most some tokens is on average.
#[derive(Clone, Copy, Debug)]
struct Draft {
    tokens: f64,
    proposed: f64,
    accepted: f64,
}

/// How often something happens, believed to be as `before`.
fn share([could, did]: [f64; 2], before: f64) -> f64 {
    (did + DEPTH_PRIOR * before) / (could + DEPTH_PRIOR)
}

/// Drafts behind matches of one bin, beside what drafts as long were worth on average at the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Drafted {
    /// Accepted proposals.
    seen: f64,
    expected: f64,
    /// Rounds since the last draft.
    idle: f64,
}

/// What a round does with what was found, and how far the drafter may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Looked-up tokens.
    pub(super) copy: usize,
    /// Most draft tokens behind them.
    pub(super) draft: usize,
}

/// What copying and drafting have been worth.
///
/// A looked-up token that goes on a match of n tokens is accepted with a probability that depends on
/// n; the one behind it goes on a match of n + 1. Whether it would have been accepted can be seen in
/// every round, copied or not, from the tokens that were emitted: they have the target's law either
/// way.
///
/// What the drafter is worth is known of the rounds in which it drafted: running means by position of
/// the draft, short because the drafter learns, times a factor for each length of a match (and one
/// for none), which hardly changes as it learns: so lengths at which it seldom drafts keep up with
/// it. Positions that are not tried any more come to be believed to be as the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRecord {
    /// Looked-up tokens by bin of the match: how many were judged, how many agreed.
    copied: [[f64; 2]; BINS],
    /// Drafts by position.
    depths: [Depth; LONGEST],
    /// How many drafts.
    drafts: f64,
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
            depths: [Depth::default(); LONGEST],
            drafts: 1.0,
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

    /// Drafts of at most 1, 2, 3, ... tokens, up to `longest`.
    fn drafts(&self, longest: usize) -> Vec<Draft> {
        let (mut drafted, mut ends, mut stands) = (1.0, 1.0, BELIEVED_DRAFT);
        let (mut reached, mut whole) = (1.0, 1.0);
        let mut draft = Draft {
            tokens: 0.0,
            proposed: 0.0,
            accepted: 0.0,
        };
        let depths = self.depths.iter().take(longest);
        let longer = depths.map(|depth| {
            drafted = share(depth.drafted, drafted);
            ends = share(depth.ends, ends);
            stands = share(depth.stands, stands);
            reached *= drafted;
            whole *= stands;
            draft.tokens += reached;
            draft.proposed += reached * ends;
            draft.accepted += whole * ends;
            draft
        });
        longer.collect()
    }

    /// The factor of accepted tokens behind a match of this length, 0 for none.
    fn factor(&self, matched: usize, accepted: f64) -> f64 {
        let Drafted { seen, expected, .. } = self.drafted[draft_bin(matched)];
        let prior = DRAFT_PRIOR * accepted;
        // Where nothing is ever accepted, nothing is known but that.
        match expected + prior {
            below if below > 0.0 => (seen + prior) / below,
            _ => 1.0,
        }
    }

    /// One standard error of the accepted tokens of drafts behind a match of this length, 0 for none; they
    /// are taken to be geometric. In doubt a drafter from which is learnt drafts: a mean that is too
    /// high is soon seen to be, one that is too low is not.
    fn doubt(&self, matched: usize, accepted: f64) -> f64 {
        let Drafted { expected, .. } = self.drafted[draft_bin(matched)];
        // So many drafts were made there, and as many more are believed to have been.
        let own = (expected + DRAFT_PRIOR * accepted) / accepted.max(1e-9);
        let variance = accepted * (1.0 + accepted);
        (variance / self.drafts.min(own)).sqrt()
    }

    /// The best choice behind a match of `matched` that goes on with `found` tokens, with a draft of
    /// at least `least` and at most `longest` tokens, and what it is worth: its expected tokens, less
    /// what their time is worth. A round that neither copies nor drafts is worth 0.
    ///
    /// Time is worth the tokens that it yields on average, so the best choice by this measure is
    /// the one that yields most tokens per time in the long run. Who `hopes` adds the doubt.
    fn best(
        &self,
        costs: &Costs,
        (matched, found): (usize, usize),
        (least, longest): (usize, usize),
        hopes: bool,
    ) -> (f64, Choice) {
        let rate = self.emitted[0] / self.emitted[1];
        let drafts = self.drafts(longest);
        let mut best = (f64::NEG_INFINITY, Choice::default());
        let (mut stands, mut copied) = (1.0, 0.0);
        for copy in 0..=found {
            if copy > 0 {
                stands *= self.acceptance(matched + copy - 1);
                copied += stands;
            }
            let behind = match (matched, copy) {
                (0, 0) => 0,
                (matched, copy) => matched + copy,
            };
            for draft in least..=longest {
                let (mut tokens, mut cost, mut positions) = (copied, 0.0, copy as f64);
                if let Some(&made) = draft.checked_sub(1).and_then(|i| drafts.get(i)) {
                    let accepted = self.factor(behind, made.accepted) * made.accepted;
                    let doubt = if hopes {
                        self.doubt(behind, made.accepted)
                    } else {
                        0.0
                    };
                    tokens += stands * (accepted + doubt);
                    cost += between(made.tokens, |n| costs.draft(n));
                    positions += made.proposed;
                }
                cost += between(positions, |n| costs.verify(1 + n)) - costs.verify(1);
                let value = tokens - rate * cost;
                if value > best.0 {
                    best = (value, Choice { copy, draft });
                }
            }
        }
        best
    }

    /// The best use of what was found, `(length of the match, tokens)`, and of drafts of up to
    /// `longest`. Who learns from the round `hopes`. With `explore` the drafter drafts, and longer than
    /// would be best, to see whether it should.
    pub(super) fn plan(
        &self,
        costs: &Costs,
        matched: (usize, usize),
        longest: usize,
        (hopes, explore): (bool, bool),
    ) -> Choice {
        let longest = longest.min(LONGEST);
        let least = usize::from(explore).min(longest);
        let (_, mut choice) = self.best(costs, matched, (least, longest), hopes);
        if explore {
            choice.draft = (2 * choice.draft).max(LEAST_TRIED).min(longest);
        }
        choice
    }

    /// Takes in a round.
    pub(super) fn observe(
        &mut self,
        costs: &Costs,
        found: Option<&Found>,
        most: usize,
        outcome: &RoundOutcome,
    ) {
        let keep = 1.0 - 1.0 / MEMORY;
        let counts = self.copied.iter_mut().flatten();
        counts.for_each(|count| *count *= keep);
        let keep = 1.0 - 1.0 / RATE_MEMORY;
        self.emitted = self.emitted.map(|sum| sum * keep);

        let copied = outcome.looked_up();
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
            self.observe_draft(behind, most, outcome);
        }
    }

    /// Takes in a draft that might have had `most` tokens.
    fn observe_draft(&mut self, behind: usize, most: usize, outcome: &RoundOutcome) {
        let copied = outcome.looked_up();
        let drafted = outcome.draft.len();
        let accepted = outcome.accepted - copied;
        let most = most.max(drafted).min(LONGEST);
        let expected = self.drafts(most).last().map_or(0.0, |all| all.accepted);
        // All fade, so that a bin that is left alone is tried again.
        let keep = 1.0 - 1.0 / BIN_MEMORY;
        for bin in &mut self.drafted {
            bin.seen *= keep;
            bin.expected *= keep;
        }
        let bin = &mut self.drafted[draft_bin(behind)];
        bin.seen += accepted as f64;
        bin.expected += expected;

        let keep = 1.0 - 1.0 / DRAFT_MEMORY;
        self.drafts = keep * self.drafts + 1.0;
        let counts = self.depths.iter_mut().flat_map(Depth::counts);
        counts.for_each(|count| *count *= keep);
        let proposals = outcome.proposals.get(copied..).unwrap_or_default();
        let end = |count: usize| count.checked_sub(1).and_then(|i| proposals.get(i));
        let stood = end(accepted).map_or(0, |last| last.span.end);
        // What stood whole says nothing of draft tokens that no proposal has.
        let judged = match accepted == proposals.len() && stood < drafted {
            true => stood,
            false => most,
        };
        for (i, depth) in self.depths.iter_mut().take(most).enumerate() {
            let count = |sums: &mut [f64; 2], happened: bool| {
                sums[0] += 1.0;
                sums[1] += f64::from(u8::from(happened));
            };
            if i <= drafted {
                count(&mut depth.drafted, i < drafted);
            }
            if i < drafted {
                let ends = proposals.iter().any(|p| p.span.end == i + 1);
                count(&mut depth.ends, ends);
            }
            if i <= stood && i < judged {
                count(&mut depth.stands, i < stood);
            }
        }
    }

    /// Whether it is time to see what the drafter is worth, where it is not worth its time: once in
    /// `every` rounds, up to eight times as seldom by how many standard errors it lacks; behind
    /// matches of one bin, more seldom still.
    pub(super) fn is_due(
        &self,
        costs: &Costs,
        matched: usize,
        longest: usize,
        every: usize,
    ) -> bool {
        let longest = longest.min(LONGEST);
        let (value, Choice { draft, .. }) = self.best(costs, (0, 0), (1, longest), true);
        let drafts = self.drafts(draft);
        let doubt = drafts
            .last()
            .map_or(0.0, |draft| self.doubt(0, draft.accepted));
        let lacks = (-value).max(0.0);
        let seldom = (1.0 + lacks / doubt.max(1e-9)).min(MOST_SELDOM);
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
        let drafted = drafted.flat_map(|d| [&mut d.seen, &mut d.expected, &mut d.idle]);
        let depths = self.depths.iter_mut().flat_map(Depth::counts);
        let drafts = depths.chain([&mut self.drafts]);
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
        (record.emitted[1] > 0.0 && record.drafts > 0.0).then_some(record)
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
