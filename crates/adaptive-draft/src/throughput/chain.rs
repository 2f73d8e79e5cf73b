//! How scores of draft tokens follow each other, and what they are worth.

use super::{BINS, EDGES, Score};
use crate::Label;

/// Rounds after which an observation counts 1/e: the drafter changes while it learns.
const MEMORY: f64 = 1000.0;
/// Weight of what is believed of a bin before anything was seen, in tokens.
const PRIOR: f64 = 4.0;
/// Positions told apart: the same score means less deep in a draft, where the drafter builds on
/// its own words. Deeper ones count as the last.
const DEPTHS: usize = 4;

/// Running counts over the draft tokens of verified rounds, by bin of their score.
///
/// A bin's acceptance is what was measured in it, so a badly calibrated head is corrected.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    score: Score,
    /// First tokens of drafts.
    first: [f64; BINS],
    /// Pairs of neighbouring tokens.
    next: [[f64; BINS]; BINS],
    /// Judged tokens, their labels added up, target tokens that end with them.
    judged: [[[f64; 3]; BINS]; DEPTHS],
}

/// The bin of one draft token and what verification said.
pub(crate) type Seen = (usize, Option<Label>);

impl Chain {
    /// Knows nothing yet: a score is taken at its word, a position is accepted in half of all
    /// cases.
    pub fn new(score: Score) -> Self {
        Self {
            score,
            first: [0.0; BINS],
            next: [[0.0; BINS]; BINS],
            judged: [[[0.0; 3]; BINS]; DEPTHS],
        }
    }

    /// What its bins are of.
    pub fn score(&self) -> Score {
        self.score
    }

    /// Takes in one round's draft tokens, in order.
    pub(crate) fn observe(&mut self, draft: &[Seen]) {
        let keep = 1.0 - 1.0 / MEMORY;
        let counts = self.first.iter_mut().chain(self.next.iter_mut().flatten());
        for count in counts.chain(self.judged.iter_mut().flatten().flatten()) {
            *count *= keep;
        }
        let mut before = None;
        for (position, &(bin, label)) in draft.iter().enumerate() {
            let bin = bin.min(BINS - 1);
            match before {
                None => self.first[bin] += 1.0,
                Some(before) => {
                    let row: &mut [f64; BINS] = &mut self.next[before];
                    row[bin] += 1.0;
                }
            }
            before = Some(bin);
            if let Some(label) = label {
                let [count, accepted, ends] = &mut self.judged[position.min(DEPTHS - 1)][bin];
                *count += 1.0;
                *accepted += label.accepted;
                *ends += f64::from(label.ends);
            }
        }
    }

    /// Acceptance of a token of this bin at a position of the draft. Positions borrow from each
    /// other what little they have seen.
    pub(super) fn acceptance(&self, position: usize, bin: usize) -> f64 {
        let all = self.pooled(bin, 1, self.believed(bin));
        let [count, accepted, _] = self.judged[position.min(DEPTHS - 1)][bin];
        (accepted + PRIOR * all) / (count + PRIOR)
    }

    /// Target tokens that end with a token of this bin: below 1 where many are pieces of n-grams.
    pub(super) fn ends(&self, bin: usize) -> f64 {
        self.pooled(bin, 2, 1.0)
    }

    fn pooled(&self, bin: usize, what: usize, prior: f64) -> f64 {
        let sum = |what: usize| self.judged.iter().map(|bins| bins[bin][what]).sum::<f64>();
        (sum(what) + PRIOR * prior) / (sum(0) + PRIOR)
    }

    fn believed(&self, bin: usize) -> f64 {
        if self.score == Score::Position {
            return 0.5;
        }
        let low = if bin == 0 { 0.0 } else { EDGES[bin - 1] };
        let high = EDGES.get(bin).copied().unwrap_or(1.0);
        0.5 * (low + high)
    }

    /// Law of the bin of a draft's first token.
    pub(super) fn first(&self) -> [f64; BINS] {
        let prior = match self.score {
            Score::Position => at(0),
            _ => [1.0 / BINS as f64; BINS],
        };
        law(&self.first, &prior)
    }

    /// Law of the bin that follows a token of this one.
    pub(super) fn next(&self, bin: usize) -> [f64; BINS] {
        let prior = match self.score {
            Score::Position => at((bin + 1).min(BINS - 1)),
            // Neighbours are alike until something else was seen.
            _ => at(bin),
        };
        law(&self.next[bin], &prior)
    }
}

fn at(bin: usize) -> [f64; BINS] {
    let mut law = [0.0; BINS];
    law[bin] = 1.0;
    law
}

fn law(counts: &[f64; BINS], prior: &[f64; BINS]) -> [f64; BINS] {
    let total = counts.iter().sum::<f64>() + PRIOR;
    std::array::from_fn(|bin| (counts[bin] + PRIOR * prior[bin]) / total)
}
