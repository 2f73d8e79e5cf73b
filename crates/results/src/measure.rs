//! An answer with all that metrics are made of, and the sums that they are.

use std::sync::Arc;

use crate::{PromptRow, TextFacts};

/// An answer with everything a metric may ask about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its row. The ids of the answer are not needed.
    pub row: PromptRow,
    /// The row of plain decoding of the same prompt in the same cell.
    pub plain: Option<Arc<PromptRow>>,
    /// Facts of the answer's text.
    pub text: Option<TextFacts>,
    /// Whether this is plain decoding itself.
    pub is_plain: bool,
    /// The cost of plain decoding of one token, at the costs that its arm counts with.
    pub plain_step: f64,
    /// Whether the cell's times mean anything.
    pub timed: bool,
    /// Whether the arm's draft tokens were looked up, which takes no forward of a drafter.
    pub looks_up: bool,
    /// c of the modelled speedups: [`StepLatency::ratio`](crate::StepLatency::ratio).
    pub latency_ratio: f64,
    /// o of the implied speedup: what a round that drafts costs in steps of the target, beside its
    /// own step and those of the drafter.
    pub round_overhead: f64,
    /// Entries of the n-gram cache when the cell's last prompt was done.
    pub end_ngrams: u32,
    /// Bytes of the n-gram cache when the cell's last prompt was done.
    pub end_bytes: u64,
}

impl Answer {
    /// Its row, unless it is plain decoding.
    pub(crate) fn drafted(&self) -> Option<&PromptRow> {
        (!self.is_plain).then_some(&self.row)
    }

    /// What `rounds` cost in steps of the target if only steps cost time: one each, and c for every
    /// forward of the drafter, of which a drafted token takes one and a copied token none.
    pub(crate) fn steps(&self, rounds: u32, drafted: u32) -> f64 {
        f64::from(rounds) + self.latency_ratio * f64::from(self.forwards(drafted))
    }

    /// The same with o for every round that drafted. Rows do not say which rounds those are where others
    /// copied: they are the ones that proposed, but no more than there were forwards.
    pub(crate) fn dearer_steps(&self, rounds: u32, proposing: u32, drafted: u32) -> f64 {
        let drafting = proposing.min(self.forwards(drafted));
        self.steps(rounds, drafted) + self.round_overhead * f64::from(drafting)
    }

    fn forwards(&self, drafted: u32) -> u32 {
        if self.looks_up { 0 } else { drafted }
    }
}

/// A ratio of sums, over another one where there is a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
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

    /// The same over the ratio of a reference.
    pub fn over(self, base_above: f64, base_below: f64) -> Self {
        Self {
            base_above,
            base_below,
            ..self
        }
    }

    /// Nothing summed yet.
    pub fn zero() -> Self {
        Self {
            above: 0.0,
            below: 0.0,
            base_above: 0.0,
            base_below: 0.0,
        }
    }

    /// Adds another prompt's sums `times` over.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.above += times * other.above;
        self.below += times * other.below;
        self.base_above += times * other.base_above;
        self.base_below += times * other.base_below;
    }

    /// The ratio; `None` where it is not defined.
    pub fn value(&self) -> Option<f64> {
        let value = (self.above / self.below) / (self.base_above / self.base_below);
        value.is_finite().then_some(value)
    }

    /// The ratio of a whole group.
    pub fn total<'a>(items: impl IntoIterator<Item = &'a Self>) -> Option<f64> {
        let mut sums = Self::zero();
        for item in items {
            sums.add(item, 1.0);
        }
        sums.value()
    }
}

/// The sums of a ratio without a reference.
pub(crate) fn ratio(above: impl Into<f64>, below: impl Into<f64>) -> Option<Sums> {
    Some(Sums::of(above.into(), below.into()))
}
