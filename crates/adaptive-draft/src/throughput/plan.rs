//! The best stopping rule for given acceptances and costs.

use super::{BINS, Chain, bin_of};
use crate::Costs;

/// Number of steps of the grid of S, the probability that the whole draft so far is accepted.
const GRID: usize = 32;

/// Number of positions whose mean cost is that of one more.
const NEAR: usize = 4;

/// Number of positions beyond the longest draft whose cost is known: as many as alternatives have.
const BEYOND: usize = 16;

/// Chance below which no token of an alternative is worth a position.
const LEAST_CHANCE: f64 = 0.02;

/// Number of halvings of the interval that contains the rate.
const HALVINGS: usize = 16;

/// The stopping rule that maximises expected tokens per cost in the long run.
///
/// A round emits 1 + N tokens, N accepted ones, at a cost; by the renewal theorem tokens per second
/// are E\[1 + N\] / E\[cost\], and the best rule maximises E\[1 + N\] - rate E\[cost\] for the rate
/// that it attains itself. For a given rate the best decisions follow backwards from the longest
/// draft. Let a draft of j tokens be accepted whole with probability S, and let its last token be
/// in bin b. The value of continuing is
///
/// `W_j(S, b) = max(0, -rate c + sum_b' next(b' | b) U_j(S, b'))`,
///
/// where c is the cost of the next drafter step, and the value of a token in bin b' is
///
/// `U_j(S, b') = e(b') (S a - rate (v(j + 2) - v(j + 1))) + W_{j+1}(S a, b')`,
///
/// where a is the acceptance of its bin at this position, e the number of target tokens that end
/// with it, and v the cost of the target's forward by positions. The rate solves `1 + W_0(1) = rate
/// (v(1) + round)`.
///
/// The ends of a response and of the drafter's context are not considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    chain: Chain,
    longest: usize,
    rate: f64,
    /// Cost of a drafter step after j tokens, and of one more position after j proposals, in tokens
    /// at the rate.
    step: Vec<f64>,
    position: Vec<f64>,
    /// Acceptances of the chain, by position and bin.
    acceptances: Vec<[f64; BINS]>,
    ends: [f64; BINS],
    /// Value of a forward before the first token.
    start: f64,
    /// `W_j` on the grid, `[longest + 1][BINS][GRID + 1]`. Row 0 is not used, the last one is zero.
    values: Vec<[[f64; GRID + 1]; BINS]>,
}

impl Plan {
    /// The best rule for drafts of at most `longest` tokens.
    pub fn new(chain: &Chain, costs: &Costs, longest: usize) -> Self {
        let mut plan = Self {
            chain: chain.clone(),
            longest,
            rate: 0.0,
            step: Vec::new(),
            position: Vec::new(),
            acceptances: chain.acceptances(longest),
            ends: std::array::from_fn(|bin| chain.ends(bin)),
            start: 0.0,
            values: vec![[[0.0; GRID + 1]; BINS]; longest + 1],
        };
        let round = (costs.verify(1) + costs.round).max(1e-9);
        // Plain decoding attains the lower end, and no rule emits more than the upper one. The
        // value of a round beyond its cost falls with the rate.
        let (mut low, mut high) = (1.0 / round, (1 + longest) as f64 / round);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            plan.solve(costs, middle);
            if 1.0 + plan.start > middle * round {
                low = middle;
            } else {
                high = middle;
            }
        }
        plan.solve(costs, low);
        plan.rate = low;
        plan
    }

    /// Computes the values for a rate.
    fn solve(&mut self, costs: &Costs, rate: f64) {
        let step = |j: usize| rate * (costs.draft(j + 1) - costs.draft(j));
        self.step = (0..self.longest).map(step).collect();
        let more = |j: usize| rate * (costs.verify(j + 2) - costs.verify(j + 1));
        self.position = (0..self.longest + BEYOND).map(more).collect();
        let laws: [[f64; BINS]; BINS] = std::array::from_fn(|bin| self.chain.next(bin));
        for j in (1..self.longest).rev() {
            let mut values = [[0.0; GRID + 1]; BINS];
            let drawn: [[f64; BINS]; GRID + 1] = std::array::from_fn(|s| {
                let stands = s as f64 / GRID as f64;
                std::array::from_fn(|bin| self.draw(j, stands, bin))
            });
            for (values, law) in values.iter_mut().zip(&laws) {
                for (value, drawn) in values.iter_mut().zip(&drawn) {
                    *value = (expectation(law, drawn) - self.step[j]).max(0.0);
                }
            }
            self.values[j] = values;
        }
        let drawn: [f64; BINS] = std::array::from_fn(|bin| self.draw(0, 1.0, bin));
        self.start = self.step.first().map_or(0.0, |step| {
            (expectation(&self.chain.first(), &drawn) - step).max(0.0)
        });
    }

    /// `U_j`: the value of a token of this bin after j tokens.
    fn draw(&self, j: usize, stands: f64, bin: usize) -> f64 {
        let Some(more) = self.position[..self.longest].get(j) else {
            return 0.0;
        };
        let after = stands * self.acceptances[j][bin];
        self.ends[bin] * (after - more) + self.value(j + 1, after, bin)
    }

    /// `W_j`, linear between the points of the grid.
    fn value(&self, j: usize, stands: f64, bin: usize) -> f64 {
        let Some(values) = self.values.get(j) else {
            return 0.0;
        };
        let at = (stands * GRID as f64).clamp(0.0, GRID as f64);
        let low = (at as usize).min(GRID - 1);
        let part = at - low as f64;
        values[bin][low] * (1.0 - part) + values[bin][low + 1] * part
    }

    /// True if a position of the target's forward beside so many `others` yields, with this chance
    /// of one token, more than its time does elsewhere. It costs the mean of the next few positions,
    /// since measured costs of single ones are noisy; those that are not in the plan cost what its
    /// last one does.
    pub fn is_worth(&self, others: usize, chance: f64) -> bool {
        let known = self.position.len();
        let from = others.saturating_sub(1).min(known.saturating_sub(NEAR));
        let near = &self.position[from..known.min(from + NEAR)];
        let cost = near.iter().sum::<f64>() / near.len() as f64;
        // Measured costs never fall, so that noise makes stretches of them look free.
        chance > cost.max(LEAST_CHANCE)
    }

    /// Expected number of tokens per target step.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The longest draft.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The chain from which it was computed.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// True if drafting pays at all.
    pub fn begins(&self) -> bool {
        self.start > 0.0
    }

    /// True if the drafter continues after `drafted` tokens, the last one with this score, which
    /// are all accepted with probability `stands`.
    pub fn goes_on(&self, drafted: usize, stands: f64, score: f64) -> bool {
        drafted < self.longest
            && self.value(drafted, stands, self.bin(drafted.saturating_sub(1), score)) > 0.0
    }

    /// Acceptance of a token of this score at a position of the draft.
    pub fn acceptance(&self, position: usize, score: f64) -> f64 {
        self.acceptances
            .get(position)
            .map_or(0.0, |bins| bins[self.bin(position, score)])
    }

    fn bin(&self, position: usize, score: f64) -> usize {
        match self.chain.score() {
            super::Score::Position => position.min(BINS - 1),
            _ => bin_of(score),
        }
    }
}

fn expectation(law: &[f64; BINS], values: &[f64; BINS]) -> f64 {
    law.iter().zip(values).map(|(p, v)| p * v).sum()
}
