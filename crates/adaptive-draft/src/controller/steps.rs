//! Estimate of the time of a plain step from rounds of any length.

use serde::{Deserialize, Serialize};

use crate::Costs;
use crate::measured::add;

/// Weight of the default costs of the target's forwards, in rounds.
const PRIOR: f64 = 3.0;
/// Number of plain steps among rounds of one length after which one has weight 1/e.
const MEMORY: f64 = 500.0;
/// Longest round that is counted separately, in positions.
const LONGEST: usize = 32;
/// Weight of the last answer's plain step, in rounds.
const BEFORE: f64 = 2.0;
/// Largest ratio of a round's time to its expectation. A round above it was disturbed, and counts
/// as that many.
const DISTURBED: f64 = 4.0;

/// Rounds of one answer by positions of the target's forward, from 1: number of rounds, and their
/// seconds without the drafter's; and the same for plain steps between speculated rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums(Vec<[f64; 2]>, [f64; 2]);

impl Sums {
    pub(super) fn add(&mut self, positions: usize, seconds: f64) {
        add(&mut self.0, place(positions), 1.0, seconds);
    }

    /// Adds a plain step between speculated rounds, separately from [`add`](Self::add). Plain steps
    /// made while speculation is stopped belong to another period, which may have been disturbed.
    // Without this separation a busy moment after the end of drafting made plain steps look 30% slower
    // and drafts better than they were: results/LOG.md, 2026-11-26.
    pub(super) fn beside(&mut self, seconds: f64) {
        self.1[0] += 1.0;
        self.1[1] += seconds;
    }

    /// Number of plain steps between speculated rounds, and their seconds.
    pub(super) fn plain(&self) -> [f64; 2] {
        self.1
    }
}

/// Costs of rounds in plain steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Steps {
    /// By positions, from 1: seconds of rounds, and of as many plain steps of the same answers.
    ratios: Vec<[f64; 2]>,
    /// Number of plain steps within speculated answers.
    seen: f64,
    /// Seconds of a plain step in the last answer; 0 before the first.
    last: f64,
    /// Number of plain steps that are due, carried over from the last answer.
    #[serde(default)]
    due: f64,
}

impl Steps {
    /// Cost of a round over so many positions in plain steps, without the drafter.
    pub(super) fn ratio(&self, positions: usize) -> f64 {
        let at = place(positions);
        if at == 0 {
            return 1.0;
        }
        let given = Costs::default().verify(at + 1);
        let [seconds, plain] = self.ratios.get(at).copied().unwrap_or_default();
        let prior = PRIOR * if self.last > 0.0 { self.last } else { 1.0 };
        (seconds + prior * given) / (plain + prior)
    }

    /// Seconds of a plain step in an answer with these rounds; 0 if nothing is known.
    pub(super) fn plain_step(&self, sums: &Sums) -> f64 {
        let (mut seconds, mut steps) = (0.0, 0.0);
        for (at, [rounds, took]) in sums.0.iter().enumerate() {
            seconds += took;
            steps += rounds * self.ratio(at + 1);
        }
        if self.last > 0.0 {
            seconds += BEFORE * self.last;
            steps += BEFORE;
        }
        if steps > 0.0 { seconds / steps } else { 0.0 }
    }

    /// Number of plain steps within speculated answers.
    pub(super) fn seen(&self) -> f64 {
        self.seen
    }

    /// Number of plain steps that were due when the last answer ended.
    pub(super) fn due(&self) -> f64 {
        self.due
    }

    /// Seconds of a round, limited if it was disturbed.
    pub(super) fn settled(&self, seconds: f64, expected: f64) -> f64 {
        match self.seen > 4.0 && expected > 0.0 {
            true => seconds.min(DISTURBED * expected),
            false => seconds,
        }
    }

    /// Adds an answer's rounds; `due` plain steps were due at its end.
    pub(super) fn close(&mut self, sums: &Sums, due: f64) {
        self.due = due;
        let [count, seconds] = sums.plain();
        let others: f64 = sums.0.iter().skip(1).map(|[rounds, _]| rounds).sum();
        if count > 0.0 && others > 0.0 {
            self.seen += count;
            let step = seconds / count;
            if self.ratios.len() < sums.0.len() {
                self.ratios.resize(sums.0.len(), [0.0; 2]);
            }
            for (own, [rounds, took]) in self.ratios.iter_mut().zip(&sums.0).skip(1) {
                if *rounds == 0.0 {
                    continue;
                }
                // The weight of a comparison of two means.
                let weight = rounds * count / (rounds + count);
                let keep = (1.0 - weight / MEMORY).max(0.0);
                own[0] = keep * own[0] + weight * took / rounds;
                own[1] = keep * own[1] + weight * step;
            }
        }
        let step = self.plain_step(sums);
        if step > 0.0 {
            self.last = step;
        }
    }
}

fn place(positions: usize) -> usize {
    positions.clamp(1, LONGEST) - 1
}
