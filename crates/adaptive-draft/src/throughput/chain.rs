//! Statistics of the scores of consecutive draft tokens and of their acceptance.

use super::file::Counts;
use super::{BINS, EDGES, Score, bin_of};
use serde::{Deserialize, Serialize};
use spec_decode::RoundOutcome;

use crate::Label;
use crate::labels::labels;

/// Number of rounds after which an observation has weight 1/e: some fifty prompts. A drafter that
/// learns doubles its acceptance within two hundred.
// 4000 rounds made no significant difference: results/LOG.md, 2026-11-22.
const MEMORY: f64 = 1000.0;
/// Weight of a bin's prior, in tokens.
const PRIOR: f64 = 4.0;
/// Number of positions that are distinguished; deeper ones count as the last. The same score need
/// not mean the same deep in a draft, where the drafter continues its own text.
const DEPTHS: usize = 4;
/// Weight of the prior that a position makes no difference, in accepted tokens.
const DEPTH_PRIOR: f64 = 20.0;
/// Weight of the prior that a token's bin says nothing about the next one's, in tokens.
const NEXT_PRIOR: f64 = 10.0;

/// Running counts over the draft tokens of verified rounds, by bin of their score.
///
/// A bin's acceptance is what was measured in it, so a badly calibrated head is corrected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Counts", try_from = "Counts")]
pub struct Chain {
    pub(super) score: Score,
    /// Bins of the first tokens of drafts.
    pub(super) first: [f64; BINS],
    /// Pairs of bins of neighbouring tokens.
    pub(super) next: [[f64; BINS]; BINS],
    /// Verified tokens by position and bin: their number, the sum of their labels, and the number
    /// of target tokens that end with them.
    pub(super) judged: [[[f64; 3]; BINS]; DEPTHS],
}

impl Chain {
    /// An empty chain. Until it has counts, a score counts as the acceptance it predicts, and a
    /// position is accepted as often as the one before it, the first one in half of all cases.
    pub fn new(score: Score) -> Self {
        Self {
            score,
            first: [0.0; BINS],
            next: [[0.0; BINS]; BINS],
            judged: [[[0.0; 3]; BINS]; DEPTHS],
        }
    }

    /// The score of its bins.
    pub fn score(&self) -> Score {
        self.score
    }

    /// Adds a round, given the scores of its drafted tokens in order.
    pub fn learn(&mut self, scores: &[f64], outcome: &RoundOutcome) {
        let bins = scores.iter().map(|score| bin_of(*score));
        self.observe(bins, &labels(outcome));
    }

    /// Adds a round, given the bins and the labels of its drafted tokens in order.
    pub(crate) fn observe(
        &mut self,
        bins: impl IntoIterator<Item = usize>,
        labels: &[Option<Label>],
    ) {
        let keep = 1.0 - 1.0 / MEMORY;
        self.counts().for_each(|count| *count *= keep);
        let mut before: Option<usize> = None;
        for (position, bin) in bins.into_iter().enumerate() {
            let bin = bin.min(BINS - 1);
            match before {
                None => self.first[bin] += 1.0,
                Some(before) => self.next[before][bin] += 1.0,
            }
            before = Some(bin);
            if let Some(Some(label)) = labels.get(position) {
                let [count, accepted, ends] = &mut self.judged[position.min(DEPTHS - 1)][bin];
                *count += 1.0;
                *accepted += label.accepted;
                *ends += f64::from(label.ends);
            }
        }
    }

    /// Acceptance by position, up to `longest`, and bin.
    ///
    /// A plan chooses the option with the best estimate. If every bin of every position had its own
    /// estimate, the best one would mostly be noise. A position therefore only scales the
    /// acceptances of all bins. These rise with the score: bins that do not are pooled.
    pub(super) fn acceptances(&self, longest: usize) -> Vec<[f64; BINS]> {
        let seen = |bin| [0, 1].map(|what| self.total(bin, what));
        if self.score == Score::Position {
            let mut before = 0.5;
            let by_bin = std::array::from_fn(|bin| {
                let [count, accepted] = seen(bin);
                before = (accepted + PRIOR * before) / (count + PRIOR);
                before
            });
            return vec![by_bin; longest];
        }
        let sums: [(f64, f64); BINS] = std::array::from_fn(|bin| {
            let [count, accepted] = seen(bin);
            (accepted + PRIOR * believed(bin), count + PRIOR)
        });
        let by_bin = rising(&sums);
        let at = |position: usize| {
            let seen = &self.judged[position.min(DEPTHS - 1)];
            let accepted: f64 = seen.iter().map(|bin| bin[1]).sum();
            let expected: f64 = seen.iter().zip(&by_bin).map(|(bin, a)| bin[0] * a).sum();
            let ratio = (accepted + DEPTH_PRIOR) / (expected + DEPTH_PRIOR);
            by_bin.map(|a| (a * ratio).min(1.0))
        };
        (0..longest).map(at).collect()
    }

    /// Mean number of target tokens that end with a token of this bin. It is below 1 if many are
    /// pieces of n-grams.
    pub(super) fn ends(&self, bin: usize) -> f64 {
        (self.total(bin, 2) + PRIOR) / (self.total(bin, 0) + PRIOR)
    }

    fn total(&self, bin: usize, what: usize) -> f64 {
        self.judged.iter().map(|bins| bins[bin][what]).sum()
    }

    /// Distribution of the bin of a draft's first token.
    pub(super) fn first(&self) -> [f64; BINS] {
        let prior = match self.score {
            Score::Position => at(0),
            _ => [1.0 / BINS as f64; BINS],
        };
        law(&self.first, &prior, PRIOR)
    }

    /// Distribution of the bin after a token of this one.
    pub(super) fn next(&self, bin: usize) -> [f64; BINS] {
        if self.score == Score::Position {
            return law(&self.next[bin], &at((bin + 1).min(BINS - 1)), PRIOR);
        }
        // The prior is the distribution after any token.
        let mut all = [0.0; BINS];
        for row in &self.next {
            for (sum, count) in all.iter_mut().zip(row) {
                *sum += count;
            }
        }
        let all = law(&all, &self.first(), PRIOR);
        law(&self.next[bin], &all, NEXT_PRIOR)
    }
}

/// Prior acceptance of a score's bin: the score itself.
fn believed(bin: usize) -> f64 {
    let low = if bin == 0 { 0.0 } else { EDGES[bin - 1] };
    let high = EDGES.get(bin).copied().unwrap_or(1.0);
    0.5 * (low + high)
}

/// Ratios of the pairs, pooled with their neighbours until none falls below the one before.
fn rising(sums: &[(f64, f64); BINS]) -> [f64; BINS] {
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for &(accepted, count) in sums {
        let mut pool = (accepted, count, 1);
        while let Some(before) = pools.last()
            && before.0 * pool.1 >= pool.0 * before.1
        {
            pool = (pool.0 + before.0, pool.1 + before.1, pool.2 + before.2);
            pools.pop();
        }
        pools.push(pool);
    }
    let mut ratios = [0.0; BINS];
    let mut bin = 0;
    for (accepted, count, width) in pools {
        ratios[bin..bin + width].fill(accepted / count);
        bin += width;
    }
    ratios
}

fn at(bin: usize) -> [f64; BINS] {
    let mut law = [0.0; BINS];
    law[bin] = 1.0;
    law
}

fn law(counts: &[f64; BINS], prior: &[f64; BINS], weight: f64) -> [f64; BINS] {
    let total = counts.iter().sum::<f64>() + weight;
    std::array::from_fn(|bin| (counts[bin] + weight * prior[bin]) / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_that_fall_are_pooled() {
        let mut sums = [(0.0, 0.0); BINS];
        for (bin, sum) in sums.iter_mut().enumerate() {
            *sum = (bin as f64, BINS as f64);
        }
        let straight = rising(&sums);
        assert!(straight.windows(2).all(|pair| pair[0] < pair[1]));
        // A long pool: bin 5 has the mass that bins 2 to 4 lack.
        sums[2].0 = 4.0;
        sums[5].0 = 0.0;
        let pooled = rising(&sums);
        assert!(
            pooled.windows(2).all(|pair| pair[0] <= pair[1]),
            "{pooled:?}"
        );
        assert!((pooled[5] - (4.0 + 3.0 + 4.0) / 48.0).abs() < 1e-12);
        assert_eq!(pooled[2], pooled[5]);
        assert_eq!((pooled[1], pooled[6]), (straight[1], straight[6]));
    }

    #[test]
    fn a_position_scales_what_its_scores_promise() {
        let mut chain = Chain::new(Score::Confidence);
        let label = |accepted| Some(Label { accepted, ends: 1 });
        for i in 0..2000 {
            // The same scores, accepted half as often at the second position.
            let first = f64::from(u8::from(i % 10 < 8));
            let second = f64::from(u8::from(i % 10 < 4));
            chain.observe([8, 8], &[label(first), label(second)]);
        }
        let found = chain.acceptances(6);
        assert!((found[0][8] - 0.8).abs() < 0.03, "{}", found[0][8]);
        assert!((found[1][8] - 0.4).abs() < 0.03, "{}", found[1][8]);
    }
}
