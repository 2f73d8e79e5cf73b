//! The data of an answer for metrics, and sums over answers.

use std::sync::Arc;

use crate::{PromptRow, TextFacts};

/// An answer with all data that metrics need.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its row, without the ids of the answer.
    pub row: PromptRow,
    /// The row of plain decoding of the same prompt in the same cell.
    pub plain: Option<Arc<PromptRow>>,
    /// Properties of the answer's text.
    pub text: Option<TextFacts>,
    /// True if this is an answer of plain decoding.
    pub is_plain: bool,
    /// Cost of decoding a token plainly, at the costs of its arm.
    pub plain_step: f64,
    /// True if the cell's times are valid.
    pub timed: bool,
    /// True if the arm's draft tokens were looked up, which needs no forward of a drafter.
    pub looks_up: bool,
    /// c of the modelled speedups: [`StepLatency::ratio`](crate::StepLatency::ratio).
    pub latency_ratio: f64,
    /// o of the implied speedup: overhead of a drafting round, in steps of the target, beside its
    /// own step and those of the drafter.
    pub round_overhead: f64,
    /// Number of entries of the n-gram cache after the cell's last prompt, or after the segment's
    /// if the page shows segments.
    pub end_ngrams: u32,
    /// Bytes of the n-gram cache after the same prompt.
    pub end_bytes: u64,
}

impl Answer {
    /// Its row; `None` for plain decoding.
    pub(crate) fn drafted(&self) -> Option<&PromptRow> {
        (!self.is_plain).then_some(&self.row)
    }

    /// Cost of `rounds` in steps of the target if only steps cost time: one each, and c for every
    /// forward of the drafter. A drafted token takes one forward, a copied token none.
    pub(crate) fn steps(&self, rounds: u32, drafted: u32) -> f64 {
        f64::from(rounds) + self.latency_ratio * f64::from(self.forwards(drafted))
    }

    /// Like [`steps`](Self::steps), plus o for every round in which the drafter ran. Rows do not
    /// give the number of these rounds if other rounds copied: it is taken as the number of rounds
    /// with proposals, at most that of the drafter's forwards.
    pub(crate) fn dearer_steps(&self, rounds: u32, proposing: u32, drafted: u32) -> f64 {
        let drafting = proposing.min(self.forwards(drafted));
        self.steps(rounds, drafted) + self.round_overhead * f64::from(drafting)
    }

    fn forwards(&self, drafted: u32) -> u32 {
        if self.looks_up { 0 } else { drafted }
    }
}

/// A ratio of sums, divided by another one if there is a reference.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// Numerator.
    pub above: f64,
    /// Denominator.
    pub below: f64,
    /// Numerator of the reference.
    pub base_above: f64,
    /// Denominator of the reference.
    pub base_below: f64,
}

impl Sums {
    /// A ratio without a reference.
    pub fn of(above: f64, below: f64) -> Self {
        Self {
            above,
            below,
            base_above: 1.0,
            base_below: 1.0,
        }
    }

    /// The same ratio divided by that of a reference.
    pub fn over(self, base_above: f64, base_below: f64) -> Self {
        Self {
            base_above,
            base_below,
            ..self
        }
    }

    /// Adds the sums of another prompt, weighted by `times`.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.above += times * other.above;
        self.below += times * other.below;
        self.base_above += times * other.base_above;
        self.base_below += times * other.base_below;
    }

    /// The ratio; `None` if it is not defined.
    pub fn value(&self) -> Option<f64> {
        let value = (self.above / self.below) / (self.base_above / self.base_below);
        value.is_finite().then_some(value)
    }

    /// The ratio over a whole group.
    pub fn total(items: impl IntoIterator<Item = Self>) -> Option<f64> {
        let mut sums = Self::default();
        for item in items {
            sums.add(&item, 1.0);
        }
        sums.value()
    }
}

/// The sums of a ratio without a reference.
pub(crate) fn ratio(above: impl Into<f64>, below: impl Into<f64>) -> Option<Sums> {
    Some(Sums::of(above.into(), below.into()))
}
