//! The drafter's gain by learning, and the cost of updates.

use serde::{Deserialize, Serialize};

/// Scale of the curve, in answers learnt from.
const BEND: f64 = 8.0;
/// Prior mean and standard deviation of the slope, in shares of plain decoding's time per e-fold of
/// learning.
const SLOPE: [f64; 2] = [0.05, 0.05];
/// Standard deviation of an answer's saving.
const NOISE: f64 = 0.15;
/// Weight of a comparison on the same text, in answers.
const COMPARED: f64 = 8.0;
/// Number of comparisons in the mean distance from the curve.
const FEW: f64 = 4.0;
/// Standard deviation of the saving before any learning.
const START: f64 = 1.0;
/// Number of answers after which an observation has weight 1/e.
const MEMORY: f64 = 256.0;
/// Number of standard errors added to the slope.
const HOPES: f64 = 0.5;
/// Least number of answers that are planned ahead.
const LEAST_AHEAD: f64 = 16.0;
/// Candidate shares of the answers to learn from.
const DUTIES: [f64; 3] = [0.25, 0.5, 1.0];
/// Number of points at which the stream ahead is evaluated.
const POINTS: usize = 8;
/// Largest cost of learning from the first answers, in mean answers.
const ALLOWANCE: f64 = 2.0;
/// Weight of earlier updates in the mean cost after one from other answers.
const KEEP: f64 = 0.9;
/// Number of answers after which an update has weight 1/e in the mean cost.
const UPDATES: f64 = 64.0;
/// Number of answers in the short mean of the saving, and in the long one.
const SHORT: f64 = 8.0;
const LONG: f64 = 48.0;
/// Number of standard errors by which the short mean must be below the long one to signal a change.
const FALLEN: f64 = 3.0;

/// The curve of savings over learning, fitted by least squares: `a + b ln(1 + u / 8)` after u
/// answers, because acceptance was observed to rise in this way. Answers by the frozen weights are
/// at u = 0. Once learner and frozen weights have been compared on the same text, the points are
/// these comparisons instead.
///
/// Learning continues while it is expected to save more than it costs over as many answers as were
/// seen so far: a stream that has lasted so long is expected to last as long again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learning {
    /// Sums of 1, x, x x, y, x y over answers, or over comparisons.
    sums: [f64; 5],
    /// True if the points are comparisons. Then y is the saving beyond that of the frozen weights,
    /// which save `base`.
    compares: bool,
    base: f64,
    /// Number of answers learnt from in total, and since the last change.
    learnt: u64,
    since: f64,
    /// Number of answers since the last change.
    answers: f64,
    /// Number of recorded answers that no update has used yet.
    recorded: f64,
    /// Seconds of updates and the number of answers they used, faded; and all seconds.
    costs: [f64; 2],
    spent: f64,
    /// Savings of the drafter: short and long mean, and number of answers in them. With
    /// comparisons, `short` is the mean distance of the last ones above the curve.
    short: f64,
    long: f64,
    drafted: f64,
    /// Turns saved up. An answer is learnt from if there is at least one.
    turns: f64,
    /// Share of the answers that are worth learning from, as of the last decision.
    duty: f64,
}

impl Learning {
    /// True if an update was ever taken.
    pub(super) fn has_learnt(&self) -> bool {
        self.learnt > 0
    }

    /// Seconds that learning from one answer takes; 0 before the first.
    pub(super) fn cost(&self) -> f64 {
        let [seconds, answers] = self.costs;
        if answers > 0.0 {
            seconds / answers
        } else {
            0.0
        }
    }

    /// True if learning from one more of the first answers is allowed, given that a mean answer
    /// takes `mean` seconds.
    pub(super) fn within_first(&self, mean: f64) -> bool {
        mean == 0.0 || self.spent + self.cost() <= ALLOWANCE * mean
    }

    /// True if the next answers are worth learning from.
    pub(super) fn is_worth(&self) -> bool {
        self.answers == 0.0 || self.duty > 0.0
    }

    /// True if the next answer is learnt from. This uses up its turn.
    pub(super) fn takes_turn(&mut self) -> bool {
        let turn = self.answers == 0.0 || self.turns >= 1.0;
        if turn {
            self.turns = (self.turns - 1.0).max(0.0);
            self.recorded += 1.0;
        }
        turn
    }

    /// Removes a recorded answer that is not learnt from, such as one that had nothing to teach.
    /// With `again` the next answer takes its turn.
    pub(super) fn drop_recording(&mut self, again: bool) {
        self.turns += f64::from(u8::from(again));
        self.recorded = (self.recorded - 1.0).max(0.0);
    }

    /// Adds the saving of an answer that the learner or the frozen weights drafted.
    pub(super) fn observe(&mut self, learner: bool, saved: f64, weight: f64) {
        // Comparisons are more precise, both for the curve and to notice a loss of acceptance.
        if self.compares {
            return;
        }
        let learnt = if learner { self.since } else { 0.0 };
        self.add(learnt, saved, weight);
        if !learner {
            return;
        }
        self.drafted += 1.0;
        self.short += (saved - self.short) / self.drafted.min(SHORT);
        self.long += (saved - self.long) / self.drafted.min(LONG);
        let doubt = NOISE / SHORT.sqrt();
        if self.drafted > 2.0 * SHORT && self.short < self.long - FALLEN * doubt {
            self.drift();
        }
    }

    /// Adds a comparison on a text that the learner has not learnt from yet: it would save `more`
    /// than the frozen weights, which save `base`. `weight` is that of the text, 1 for a usual one.
    pub(super) fn compare(&mut self, base: f64, more: f64, weight: f64) {
        if !std::mem::replace(&mut self.compares, true) {
            // Before any learning the learner had the frozen weights: a gain of 0 at u = 0.
            (self.sums, self.short) = ([0.0; 5], 0.0);
            self.add(0.0, 0.0, COMPARED);
        }
        self.base = base;
        let (start, slope) = self.line();
        let short = more - start - slope * curve(self.since);
        self.short += weight.min(1.0) * (short - self.short) / FEW;
        let doubt = NOISE / (COMPARED * FEW).sqrt();
        if self.short < -FALLEN * doubt {
            self.drift();
            self.short = 0.0;
        }
        self.add(self.since, more, weight * COMPARED);
    }

    fn add(&mut self, learnt: f64, y: f64, weight: f64) {
        let x = curve(learnt);
        for (sum, new) in self.sums.iter_mut().zip([1.0, x, x * x, y, x * y]) {
            *sum += weight * new;
        }
    }

    /// Drops the curve, because the task or the target changed or acceptance has fallen.
    pub(super) fn drift(&mut self) {
        self.sums = [0.0; 5];
        (self.since, self.answers) = (0.0, 1.0);
        (self.drafted, self.long) = (0.0, self.short);
    }

    /// Adds an answer that was made in any way.
    pub(super) fn pass(&mut self) {
        self.sums
            .iter_mut()
            .for_each(|sum| *sum *= 1.0 - 1.0 / MEMORY);
        self.answers += 1.0;
        // While learning rests, nothing corrects a cost that was over-estimated, and learning would
        // rest for ever. The estimate falls slowly. Its weight falls sooner, so that a single
        // update then says if learning is still as dear.
        let keep = 1.0 - 1.0 / UPDATES;
        self.costs[0] *= keep * (1.0 - 1.0 / MEMORY);
        self.costs[1] *= keep;
    }

    /// Decides if learning pays, given that a mean answer takes `mean` seconds by plain decoding,
    /// of which copies without the drafter save a share `copies`.
    pub(super) fn weigh(&mut self, mean: f64, copies: f64) {
        let cost = if mean > 0.0 { self.cost() / mean } else { 0.0 };
        let ahead = self.answers.max(LEAST_AHEAD);
        let (start, slope) = self.line();
        let base = self.base;
        let saves = |learnt: f64| (base + start + slope * curve(learnt)).max(copies);
        let now = saves(self.since);
        let gain = |duty: f64| {
            let point = |i: usize| ahead * (i as f64 + 0.5) / POINTS as f64;
            let gains = (0..POINTS).map(|i| saves(self.since + duty * point(i)) - now);
            ahead * (gains.sum::<f64>() / POINTS as f64 - cost * duty)
        };
        let none = (0.0, 0.0);
        let best = DUTIES.into_iter().map(|duty| (duty, gain(duty)));
        let best = best.fold(none, |best, own| if own.1 > best.1 { own } else { best });
        // Drafts that save less than copies must come to save more while there is time to use them.
        let overtakes = saves(self.since + ahead / 2.0) > copies;
        self.duty = if overtakes { best.0 } else { 0.0 };
        self.turns = (self.turns + self.duty).min(1.0 + self.duty);
    }

    /// Adds an update. It has learnt from the answers recorded since the last one; if there are
    /// none, from more of the same answers.
    pub(super) fn learnt(&mut self, seconds: f64) {
        let answers = if self.learnt == 0 {
            self.recorded.max(1.0)
        } else {
            self.recorded
        };
        // Several updates in one answer add up to its cost.
        let keep = if answers > 0.0 { KEEP } else { 1.0 };
        self.costs = [
            keep * self.costs[0] + seconds,
            keep * self.costs[1] + answers,
        ];
        self.spent += seconds;
        self.learnt += answers as u64;
        self.since += answers;
        self.recorded = 0.0;
    }

    /// Adds seconds of recording an answer, which are part of the cost of learning from it.
    pub(super) fn recording_took(&mut self, seconds: f64) {
        self.costs[0] += seconds;
        self.spent += seconds;
    }

    /// The expected saving of the learner's next answer; once comparisons are the points, that
    /// beyond the saving of the frozen weights.
    pub(super) fn expected(&self) -> f64 {
        let (start, slope) = self.line();
        start + slope * curve(self.since)
    }

    /// The saving before any learning, and the slope with some standard errors added.
    fn line(&self) -> (f64, f64) {
        let [n, x, xx, y, xy] = self.sums.map(|sum| sum / (NOISE * NOISE));
        let (n, xx) = (n + START.powi(-2), xx + SLOPE[1].powi(-2));
        let xy = xy + SLOPE[0] * SLOPE[1].powi(-2);
        let determinant = (n * xx - x * x).max(1e-12);
        let slope = (n * xy - x * y) / determinant;
        let start = (xx * y - x * xy) / determinant;
        let doubt = (n / determinant).sqrt();
        // The line still passes through the present saving.
        let hope = HOPES * doubt;
        (start - hope * curve(self.since), slope + hope)
    }
}

fn curve(learnt: f64) -> f64 {
    (1.0 + learnt / BEND).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_was_over_estimated_is_forgotten() {
        let mut learning = Learning::default();
        assert!(learning.takes_turn());
        learning.learnt(100.0);
        assert_eq!(learning.cost(), 100.0);
        for _ in 0..600 {
            learning.pass();
        }
        assert!(learning.cost() < 10.0, "{}", learning.cost());
        // The next update says what learning costs now.
        learning.recorded = 1.0;
        learning.learnt(1.0);
        assert!((learning.cost() - 1.0).abs() < 0.01, "{}", learning.cost());
    }

    #[test]
    fn updates_within_an_answer_are_the_cost_of_one_answer() {
        let mut learning = Learning::default();
        assert!(learning.takes_turn());
        for _ in 0..4 {
            learning.learnt(0.5);
        }
        assert_eq!((learning.learnt, learning.since), (1, 1.0));
        assert_eq!(learning.cost(), 2.0);
    }
}
