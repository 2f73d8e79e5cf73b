//! Record of the acceptance of copies and drafts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spec_decode::{CopySource, Found, LONGEST_COPY, RoundOutcome};
use vocab_align::TargetId;

use crate::Costs;

/// Number of rounds after which an observation of looked-up tokens has weight 1/e.
const MEMORY: f64 = 1000.0;
/// Number of rounds after which tokens and their cost have weight 1/e. The value of time rises as a
/// drafter learns.
const RATE_MEMORY: f64 = 300.0;
/// Prior acceptance of a looked-up token, by bin of the match that it continues. It is about what
/// was found with a model that answers prompts, whose text repeats itself less than that of weak
/// models.
const BELIEVED: [f64; BINS] = [0.25, 0.35, 0.45, 0.5, 0.55, 0.7, 0.85];
/// Weight of that prior, in tokens.
const PRIOR: f64 = 4.0;
/// Weight of the prior that a match says nothing about the drafter, in rounds.
const DRAFT_PRIOR: f64 = 8.0;
/// Number of rounds with a draft after which one has weight 1/e. It is small because a drafter that
/// learns soon changes.
const DRAFT_MEMORY: f64 = 200.0;
/// Number of rounds with a draft after which an observation of a bin has weight 1/e.
const BIN_MEMORY: f64 = 400.0;
/// Factor by which trials after matches of one bin, where the drafter is not worth its time, are
/// rarer than trials in general.
const BIN_EXPLORE: f64 = 4.0;
/// Largest factor by which trials are rarer if the drafter is far from being worth its time.
const MOST_SELDOM: f64 = 8.0;
/// Number of bins of the length of a match. Bin 0 is a match of one token.
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

/// Longest draft that is counted separately.
const LONGEST: usize = 64;
/// Prior probability that the first token of a draft is accepted.
const BELIEVED_DRAFT: f64 = 0.3;
/// Weight, in rounds, of the prior that a position of a draft has the rates of the one before it.
const DEPTH_PRIOR: f64 = 4.0;
/// Least number of tokens of a draft that is a trial, as far as the policy allows it.
const LEAST_TRIED: usize = 4;

/// Counts at one position of drafts: opportunities and events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Depth {
    /// The policy could continue to this position; it did.
    drafted: [f64; 2],
    /// The position was drafted; a proposal ended with it.
    ends: [f64; 2],
    /// All tokens before it were accepted; it was drafted and accepted.
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

/// Means of drafts of at most some number of tokens.
#[derive(Clone, Copy, Debug)]
struct Draft {
    tokens: f64,
    proposed: f64,
    accepted: f64,
}

/// Estimated share of events, with the prior `before`.
fn share([could, did]: [f64; 2], before: f64) -> f64 {
    (did + DEPTH_PRIOR * before) / (could + DEPTH_PRIOR)
}

/// Drafts after matches of one bin, compared with the mean of drafts of the same length at the
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Drafted {
    /// Number of accepted proposals.
    seen: f64,
    expected: f64,
    /// Number of rounds since the last draft.
    idle: f64,
    /// Alternatives beside drafts: number of rounds that could have some, tokens that they gave, and
    /// what their positions cost in tokens.
    beside: [f64; 3],
}

/// Choice of a round: number of looked-up tokens, and largest draft length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Number of looked-up tokens.
    pub(super) copy: usize,
    /// Largest number of draft tokens after them.
    pub(super) draft: usize,
}

/// The rounds in which copies alone would have made an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    tokens: usize,
    /// Number of rounds by positions of the target's forward.
    rounds: BTreeMap<usize, usize>,
}

impl Replay {
    /// Number of tokens of the answer.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Numbers of positions that occur, and the number of rounds of each.
    pub fn rounds(&self) -> impl Iterator<Item = (usize, usize)> {
        let all = self.rounds.iter();
        all.map(|(positions, count)| (*positions, *count))
    }
}

/// Running record of the acceptance of looked-up and drafted tokens, by which copies and drafts are
/// chosen.
///
/// A looked-up token that continues a match of n tokens is accepted with a probability that depends
/// on n; the next one continues a match of n + 1. Every round, with or without a copy, shows if
/// such a token would have been accepted, because the emitted tokens have the target's distribution
/// in any case.
///
/// The drafter's acceptance is known from the rounds in which it drafted. It is a running mean by
/// position of the draft, over few rounds because the drafter learns, times a factor for each
/// length of a match (and one for no match). These factors hardly change as the drafter learns, so
/// estimates for lengths at which it seldom drafts stay up to date. The estimate of a position that
/// is not tried any more approaches that of the position before it.
///
/// The tokens that alternatives give beside a draft, and the cost of their positions, are means for
/// each length of a match. Drafts after copies have none.
///
/// In a file it is its numbers, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<f64>", try_from = "Vec<f64>")]
pub struct CopyRecord {
    /// Looked-up tokens by bin of the match: number verified, number that agreed.
    copied: [[f64; 2]; BINS],
    /// Counts of drafts by position.
    depths: [Depth; LONGEST],
    /// Number of drafts, faded.
    drafts: f64,
    /// The drafter's record without a match, then by bin of the match.
    drafted: [Drafted; BINS + 1],
    /// Number of tokens emitted, and their cost, faded.
    emitted: [f64; 2],
    /// Number of rounds since the drafter last drafted.
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
    /// Probability that a token which continues a match of this length is accepted.
    pub fn acceptance(&self, matched: usize) -> f64 {
        let bin = bin_of(matched);
        let [judged, agreed] = self.copied[bin];
        (agreed + PRIOR * BELIEVED[bin]) / (judged + PRIOR)
    }

    /// Means of drafts of at most 1, 2, 3, ... tokens, up to `longest`.
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

    /// Mean number of tokens that alternatives give beside a draft after a match of this length (0 for
    /// none), less what their positions cost. The prior is the mean after any match.
    fn beside(&self, matched: usize) -> f64 {
        let sum = |what: usize| -> f64 { self.drafted.iter().map(|own| own.beside[what]).sum() };
        let all = (sum(1) - sum(2)) / (sum(0) + DRAFT_PRIOR);
        let [rounds, gained, spent] = self.drafted[draft_bin(matched)].beside;
        (gained - spent + DRAFT_PRIOR * all) / (rounds + DRAFT_PRIOR)
    }

    /// Factor of the number of accepted tokens after a match of this length (0 for none).
    fn factor(&self, matched: usize, accepted: f64) -> f64 {
        let Drafted { seen, expected, .. } = self.drafted[draft_bin(matched)];
        let prior = DRAFT_PRIOR * accepted;
        // If nothing was ever accepted, there is no estimate of the factor.
        match expected + prior {
            below if below > 0.0 => (seen + prior) / below,
            _ => 1.0,
        }
    }

    /// One standard error of the number of accepted tokens of drafts after a match of this length
    /// (0 for none), which is assumed to be geometric. If rounds are learnt from, the drafter
    /// drafts when in doubt: too high an estimate is soon corrected, too low a one is not.
    fn doubt(&self, matched: usize, accepted: f64) -> f64 {
        let Drafted { expected, .. } = self.drafted[draft_bin(matched)];
        // Number of drafts made there, with the prior's.
        let own = (expected + DRAFT_PRIOR * accepted) / accepted.max(1e-9);
        let variance = accepted * (1.0 + accepted);
        (variance / self.drafts.min(own)).sqrt()
    }

    /// The best choice after a match of `matched` tokens that continues with `found` tokens, with a
    /// draft of at least `least` and at most `longest` tokens. Its value is the expected number of
    /// its tokens, less the value of their time. A round that neither copies nor drafts has the
    /// value 0.
    ///
    /// The value of time is the number of tokens that it yields on average, so the best choice by
    /// this measure yields the most tokens per time in the long run. With `hopes`, one standard
    /// error is added.
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
                    // Looked-up proposals have no alternatives.
                    if copy == 0 {
                        tokens += self.beside(matched);
                    }
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

    /// The best use of a match, `(length of the match, number of tokens found)`, and of drafts of
    /// up to `longest` tokens. `hopes` is true if the round is learnt from. With `explore` the
    /// drafter drafts, and longer than would be best, as a trial.
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

    /// Adds a round.
    pub(super) fn observe(
        &mut self,
        costs: &Costs,
        found: Option<&Found>,
        most: usize,
        outcome: &RoundOutcome,
    ) {
        let copied = outcome.looked_up();
        let scored = outcome.proposed() + outcome.alternatives;
        let made = (scored, outcome.draft.len());
        self.observe_text(costs, found, made, &outcome.emitted);
        let matched = found.map_or(0, |found| found.matched);
        let behind = match copied {
            0 => matched,
            some => matched + some,
        };
        // A draft after rejected copied text is not verified, but it counts as a trial.
        let drafted = !outcome.draft.is_empty();
        let here = &mut self.drafted[draft_bin(matched)].idle;
        for idle in [here, &mut self.idle] {
            *idle = if drafted { 0.0 } else { *idle + 1.0 };
        }
        // A draft after copied text is verified only if all of that is accepted.
        if !outcome.draft.is_empty() && outcome.accepted >= copied {
            self.observe_draft(costs, (behind, most), outcome);
        }
    }

    /// Adds a round that made so many proposals and draft tokens, in which the target emitted
    /// `said` where `found` was looked up.
    fn observe_text(
        &mut self,
        costs: &Costs,
        found: Option<&Found>,
        (proposed, drafted): (usize, usize),
        said: &[TargetId],
    ) {
        let keep = 1.0 - 1.0 / MEMORY;
        let counts = self.copied.iter_mut().flatten();
        counts.for_each(|count| *count *= keep);
        let keep = 1.0 - 1.0 / RATE_MEMORY;
        self.emitted = self.emitted.map(|sum| sum * keep);
        self.emitted[0] += said.len() as f64;
        self.emitted[1] += costs.verify(1 + proposed) + costs.draft(drafted) + costs.round;
        let found = found.into_iter();
        let found = found.flat_map(|found| (found.matched..).zip(&found.tokens));
        for ((matched, token), said) in found.zip(said) {
            let [judged, agreed] = &mut self.copied[bin_of(matched)];
            *judged += 1.0;
            if token != said {
                break;
            }
            *agreed += 1.0;
        }
    }

    /// The rounds in which copies alone would have made `answer`. `source` has
    /// [started](CopySource::start) on the prompt. The record learns from these rounds as it would
    /// have done, so it should be a copy of the record before the answer.
    ///
    /// A copy counts as accepted as far as the answer agrees with it. The tokens of an answer have
    /// the target's distribution however it was made, so at temperatures above 0 this is the
    /// number accepted in the mean.
    pub fn replay(
        &mut self,
        source: &mut CopySource,
        costs: &Costs,
        answer: &[TargetId],
    ) -> Replay {
        let mut replay = Replay {
            tokens: answer.len(),
            ..Replay::default()
        };
        let mut rest = answer;
        while !rest.is_empty() {
            let found = source.find(LONGEST_COPY);
            let copy = found.as_ref().map_or(0, |found| {
                let matched = (found.matched, found.tokens.len());
                self.plan(costs, matched, 0, (false, false)).copy
            });
            let copied = found.iter().flat_map(|found| &found.tokens[..copy]);
            let stands = copied.zip(rest).take_while(|(one, own)| one == own).count();
            let (said, left) = rest.split_at((1 + stands).min(rest.len()));
            *replay.rounds.entry(1 + copy).or_default() += 1;
            self.observe_text(costs, found.as_ref(), (copy, 0), said);
            source.extend(said);
            rest = left;
        }
        replay
    }

    /// Adds a draft that could have had `most` tokens.
    fn observe_draft(
        &mut self,
        costs: &Costs,
        (behind, most): (usize, usize),
        outcome: &RoundOutcome,
    ) {
        let copied = outcome.looked_up();
        let drafted = outcome.draft.len();
        let accepted = outcome.accepted - copied;
        let most = most.max(drafted).min(LONGEST);
        let expected = self.drafts(most).last().map_or(0.0, |all| all.accepted);
        // All bins fade, so that an unused one is tried again.
        let keep = 1.0 - 1.0 / BIN_MEMORY;
        for bin in &mut self.drafted {
            bin.seen *= keep;
            bin.expected *= keep;
            bin.beside = bin.beside.map(|sum| sum * keep);
        }
        // Tokens after the target's own stand in an alternative.
        let further = outcome.emitted.len().saturating_sub(outcome.accepted + 1);
        let positions = 1 + outcome.proposed();
        let cost = costs.verify(positions + outcome.alternatives) - costs.verify(positions);
        let spent = cost.max(0.0) * self.emitted[0] / self.emitted[1];
        let bin = &mut self.drafted[draft_bin(behind)];
        bin.seen += accepted as f64;
        bin.expected += expected;
        if copied == 0 {
            let sums = bin.beside.iter_mut().zip([1.0, further as f64, spent]);
            sums.for_each(|(sum, new)| *sum += new);
        }

        let keep = 1.0 - 1.0 / DRAFT_MEMORY;
        self.drafts = keep * self.drafts + 1.0;
        let counts = self.depths.iter_mut().flat_map(Depth::counts);
        counts.for_each(|count| *count *= keep);
        let proposals = outcome.proposals.get(copied..).unwrap_or_default();
        let end = |count: usize| count.checked_sub(1).and_then(|i| proposals.get(i));
        let stood = end(accepted).map_or(0, |last| last.span.end);
        // Proposals that were all accepted say nothing about draft tokens that belong to no
        // proposal.
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

    /// True if a trial of the drafter is due although it is not worth its time: once in `every`
    /// rounds, up to eight times more rarely the more standard errors it lacks, and more rarely
    /// still after matches of one bin.
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

    fn places(&mut self) -> impl Iterator<Item = &mut f64> {
        let (mut drafted, mut beside) = (Vec::new(), Vec::new());
        for bin in &mut self.drafted {
            drafted.extend([&mut bin.seen, &mut bin.expected, &mut bin.idle]);
            beside.extend(&mut bin.beside);
        }
        let depths = self.depths.iter_mut().flat_map(Depth::counts);
        let drafts = depths.chain([&mut self.drafts]);
        let copied = self.copied.iter_mut().flatten();
        let rest = self.emitted.iter_mut().chain([&mut self.idle]);
        // Last, because records of before alternatives end without them.
        copied
            .chain(drafts)
            .chain(drafted)
            .chain(rest)
            .chain(beside)
    }
}

impl From<CopyRecord> for Vec<f64> {
    fn from(mut record: CopyRecord) -> Self {
        record.places().map(|number| *number).collect()
    }
}

impl TryFrom<Vec<f64>> for CopyRecord {
    type Error = &'static str;

    fn try_from(numbers: Vec<f64>) -> Result<Self, Self::Error> {
        let mut record = Self::default();
        let valid = |x: &f64| x.is_finite() && *x >= 0.0;
        let all = record.places().count();
        let known = [all, all - 3 * (BINS + 1)].contains(&numbers.len());
        if known && numbers.iter().all(valid) {
            let places = record.places().zip(numbers);
            places.for_each(|(place, number)| *place = number);
            if record.emitted[1] > 0.0 && record.drafts > 0.0 {
                return Ok(record);
            }
        }
        Err("not the numbers of a record of copies")
    }
}

/// Index of the drafter's record after a match of this length.
fn draft_bin(matched: usize) -> usize {
    match matched {
        0 => 0,
        some => 1 + bin_of(some),
    }
}

/// A cost at a number that need not be whole, by interpolation.
fn between(at: f64, cost: impl Fn(usize) -> f64) -> f64 {
    let low = at.max(0.0).floor();
    let (below, above) = (cost(low as usize), cost(low as usize + 1));
    below + (at - low) * (above - below)
}
