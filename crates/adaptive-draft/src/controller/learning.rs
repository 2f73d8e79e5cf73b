//! What the drafter gains by learning, and what an update costs.

use serde::{Deserialize, Serialize};

/// Answers learnt from after which the curve bends.
const BEND: f64 = 8.0;
/// What is believed of the slope before anything was seen: mean and standard deviation, in shares of
/// plain decoding's time per e-fold of what was learnt.
const SLOPE: [f64; 2] = [0.05, 0.05];
/// Standard deviation of an answer's saving.
const NOISE: f64 = 0.15;
/// Answers that a comparison on the same text is worth.
const COMPARED: f64 = 8.0;
/// Comparisons in the mean of how far they are from the curve.
const FEW: f64 = 4.0;
/// Standard deviation of the saving before anything was learnt.
const START: f64 = 1.0;
/// Answers after which one counts 1/e.
const MEMORY: f64 = 256.0;
/// Standard errors of the slope that are hoped for.
const HOPES: f64 = 0.5;
/// Fewest answers that are looked ahead.
const LEAST_AHEAD: f64 = 16.0;
/// Part of the answers that may be learnt from.
const DUTIES: [f64; 3] = [0.25, 0.5, 1.0];
/// Points at which the stream ahead is looked at.
const POINTS: usize = 8;
/// Seconds of learning, in mean answers, that the first answers may take in all.
const ALLOWANCE: f64 = 2.0;
/// What of an update's seconds is left in the mean after another one.
const KEEP: f64 = 0.9;
/// Answers in the short mean of the saving, and in the long one.
const SHORT: f64 = 8.0;
const LONG: f64 = 48.0;
/// Standard errors of the short mean by which it is below the long one where something has changed.
const FALLEN: f64 = 3.0;

/// The curve of savings over what was learnt, by least squares: `a + b ln(1 + u / 8)` behind u
/// answers, which is how acceptance was seen to rise; answers by the first weights are at u = 0. Where
/// the learner was held against these on the same text, the points are those comparisons instead.
///
/// Learning goes on while it is expected to save more than it costs over as many answers as were seen:
/// a stream that has lasted so long is expected to last as long again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learning {
    /// Sums of 1, x, x x, y, x y over answers, or over comparisons.
    sums: [f64; 5],
    /// True where they are comparisons: then y is what is saved more than by the first weights, which
    /// save `base`.
    compares: bool,
    base: f64,
    /// Answers learnt from in all, and since something changed.
    learnt: u64,
    since: f64,
    /// Answers since something changed.
    answers: f64,
    /// Recorded answers that no update has taken yet.
    recorded: f64,
    /// Seconds of updates and the answers they took, faded; and all seconds.
    costs: [f64; 2],
    spent: f64,
    /// Savings of the drafter: short and long mean, and answers in them. Of comparisons, the distance of the
    /// last ones above the curve.
    short: f64,
    long: f64,
    drafted: f64,
    /// Turns saved up: an answer is learnt from where there is one.
    turns: f64,
    /// Part of the answers that are worth learning from, as found at the last one.
    duty: f64,
}

impl Learning {
    /// Whether an update was ever taken.
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

    /// Whether learning from one more of the first answers is allowed where a mean one takes `mean`.
    pub(super) fn within_first(&self, mean: f64) -> bool {
        mean == 0.0 || self.spent + self.cost() <= ALLOWANCE * mean
    }

    /// Whether the next answers are worth learning from.
    pub(super) fn is_worth(&self) -> bool {
        self.answers == 0.0 || self.duty > 0.0
    }

    /// Whether the next answer is learnt from; it uses its turn up.
    pub(super) fn takes_turn(&mut self) -> bool {
        let turn = self.answers == 0.0 || self.turns >= 1.0;
        if turn {
            self.turns = (self.turns - 1.0).max(0.0);
            self.recorded += 1.0;
        }
        turn
    }

    /// The answer had nothing to teach.
    pub(super) fn give_turn_back(&mut self) {
        self.turns += 1.0;
        self.recorded = (self.recorded - 1.0).max(0.0);
    }

    /// Takes in what an answer saved whose drafts were the learner's or those of the first weights.
    pub(super) fn observe(&mut self, learner: bool, saved: f64, weight: f64) {
        // Comparisons tell both the curve and its end better.
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

    /// Takes in that the learner would save `more` than the first weights, which save `base`, on a text that it
    /// has not learnt from yet.
    pub(super) fn compare(&mut self, base: f64, more: f64) {
        if !std::mem::replace(&mut self.compares, true) {
            // Before it had learnt, it was the same.
            (self.sums, self.short) = ([0.0; 5], 0.0);
            self.add(0.0, 0.0, COMPARED);
        }
        self.base = base;
        let (start, slope) = self.line();
        let short = more - start - slope * curve(self.since);
        self.short += (short - self.short) / FEW;
        let doubt = NOISE / (COMPARED * FEW).sqrt();
        if self.short < -FALLEN * doubt {
            self.drift();
            self.short = 0.0;
        }
        self.add(self.since, more, COMPARED);
    }

    fn add(&mut self, learnt: f64, y: f64, weight: f64) {
        let x = curve(learnt);
        for (sum, new) in self.sums.iter_mut().zip([1.0, x, x * x, y, x * y]) {
            *sum += weight * new;
        }
    }

    /// The task or the target is another one, or acceptance has fallen: what was learnt of the curve does not
    /// hold any more.
    pub(super) fn drift(&mut self) {
        self.sums = [0.0; 5];
        (self.since, self.answers) = (0.0, 1.0);
        (self.drafted, self.long) = (0.0, self.short);
    }

    /// An answer was made, in whatever way.
    pub(super) fn pass(&mut self) {
        self.sums
            .iter_mut()
            .for_each(|sum| *sum *= 1.0 - 1.0 / MEMORY);
        self.answers += 1.0;
    }

    /// Looks whether learning pays, where a mean answer takes `mean` seconds by plain decoding.
    pub(super) fn weigh(&mut self, mean: f64) {
        let cost = if mean > 0.0 { self.cost() / mean } else { 0.0 };
        let ahead = self.answers.max(LEAST_AHEAD);
        let (start, slope) = self.line();
        let base = self.base;
        let saves = |learnt: f64| (base + start + slope * curve(learnt)).max(0.0);
        let now = saves(self.since);
        let gain = |duty: f64| {
            let point = |i: usize| ahead * (i as f64 + 0.5) / POINTS as f64;
            let gains = (0..POINTS).map(|i| saves(self.since + duty * point(i)) - now);
            ahead * (gains.sum::<f64>() / POINTS as f64 - cost * duty)
        };
        let none = (0.0, 0.0);
        let best = DUTIES.into_iter().map(|duty| (duty, gain(duty)));
        let best = best.fold(none, |best, own| if own.1 > best.1 { own } else { best });
        self.duty = best.0;
        self.turns = (self.turns + self.duty).min(1.0 + self.duty);
    }

    /// Takes in an update.
    pub(super) fn learnt(&mut self, seconds: f64) {
        let answers = self.recorded.max(1.0);
        self.costs = [
            KEEP * self.costs[0] + seconds,
            KEEP * self.costs[1] + answers,
        ];
        self.spent += seconds;
        self.learnt += answers as u64;
        self.since += answers;
        self.recorded = 0.0;
    }

    /// What the learner's next answer is expected to save.
    pub(super) fn expected(&self) -> f64 {
        let (start, slope) = self.line();
        start + slope * curve(self.since)
    }

    /// The saving before anything was learnt, and the slope with some hope.
    fn line(&self) -> (f64, f64) {
        let [n, x, xx, y, xy] = self.sums.map(|sum| sum / (NOISE * NOISE));
        let (n, xx) = (n + START.powi(-2), xx + SLOPE[1].powi(-2));
        let xy = xy + SLOPE[0] * SLOPE[1].powi(-2);
        let determinant = (n * xx - x * x).max(1e-12);
        let slope = (n * xy - x * y) / determinant;
        let start = (xx * y - x * xy) / determinant;
        let doubt = (n / determinant).sqrt();
        // The line still goes through what is seen now.
        let hope = HOPES * doubt;
        (start - hope * curve(self.since), slope + hope)
    }
}

fn curve(learnt: f64) -> f64 {
    (1.0 + learnt / BEND).ln()
}
