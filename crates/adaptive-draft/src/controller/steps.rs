//! What a plain step takes, as rounds of any length show it.

use serde::{Deserialize, Serialize};

use crate::Costs;

/// Weight, in rounds, of the default costs of the target's forwards.
const PRIOR: f64 = 3.0;
/// Plain steps beside rounds of one length after which one counts 1/e.
const MEMORY: f64 = 500.0;
/// Longest round that is told from longer ones, in positions.
const LONGEST: usize = 32;
/// Weight, in rounds, of what the last answer's steps took.
const BEFORE: f64 = 2.0;
/// A round that takes so many times what is expected was disturbed, and counts as that many.
const DISTURBED: f64 = 4.0;

/// Rounds of one answer by positions of the target's forward, from 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums(Vec<Rounds>);

/// Rounds over so many positions.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rounds {
    /// Seconds of each, without those of the drafter.
    all: Vec<f64>,
    seconds: f64,
}

impl Rounds {
    fn count(&self) -> f64 {
        self.all.len() as f64
    }

    /// Seconds of the middle one: what disturbs some of them does not count. 0 without any.
    fn middle(&self) -> f64 {
        let mut all = self.all.clone();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

impl Sums {
    pub(super) fn add(&mut self, positions: usize, seconds: f64) {
        let at = place(positions);
        if self.0.len() <= at {
            self.0.resize(at + 1, Rounds::default());
        }
        self.0[at].all.push(seconds);
        self.0[at].seconds += seconds;
    }

    /// How many rounds were plain steps.
    pub(super) fn plain(&self) -> f64 {
        self.0.first().map_or(0.0, Rounds::count)
    }
}

/// What rounds take in plain steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Steps {
    /// By positions, from 1: seconds of rounds, and of as many plain steps of the same answers.
    ratios: Vec<[f64; 2]>,
    /// Plain steps within speculated answers.
    seen: f64,
    /// Seconds of a plain step in the last answer; 0 before the first.
    last: f64,
}

impl Steps {
    /// A round over so many positions, without the drafter, in plain steps.
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

    /// Seconds of a plain step in an answer with these rounds; 0 where nothing is known.
    pub(super) fn plain_step(&self, sums: &Sums) -> f64 {
        let (mut seconds, mut steps) = (0.0, 0.0);
        for (at, rounds) in sums.0.iter().enumerate() {
            seconds += rounds.seconds;
            steps += rounds.count() * self.ratio(at + 1);
        }
        if self.last > 0.0 {
            seconds += BEFORE * self.last;
            steps += BEFORE;
        }
        if steps > 0.0 { seconds / steps } else { 0.0 }
    }

    /// Plain steps beside which others were seen.
    pub(super) fn seen(&self) -> f64 {
        self.seen
    }

    /// Seconds of a round, a disturbed one as if it were not much so.
    pub(super) fn settled(&self, seconds: f64, expected: f64) -> f64 {
        match self.seen > 4.0 && expected > 0.0 {
            true => seconds.min(DISTURBED * expected),
            false => seconds,
        }
    }

    /// Takes in an answer's rounds.
    pub(super) fn close(&mut self, sums: &Sums) {
        let count = sums.plain();
        let others: f64 = sums.0.iter().skip(1).map(Rounds::count).sum();
        if let Some(plain) = sums.0.first().filter(|_| count > 0.0 && others > 0.0) {
            self.seen += count;
            // A stretch that was disturbed may hold rounds of one kind alone.
            let step = plain.middle();
            if self.ratios.len() < sums.0.len() {
                self.ratios.resize(sums.0.len(), [0.0; 2]);
            }
            for (own, rounds) in self.ratios.iter_mut().zip(&sums.0).skip(1) {
                if rounds.all.is_empty() {
                    continue;
                }
                // What two means are worth beside each other.
                let weight = rounds.count() * count / (rounds.count() + count);
                let keep = (1.0 - weight / MEMORY).max(0.0);
                own[0] = keep * own[0] + weight * rounds.middle();
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
