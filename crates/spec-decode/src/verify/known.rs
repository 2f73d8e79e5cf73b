//! The law one draft token was drawn from, as far as verification knows it.

use std::collections::BTreeSet;

use vocab_align::{DraftId, TokenId};

use crate::draft::Draft;
use crate::error::LawError;
use crate::sampling::sum;

/// The known law of one draft token: the drafter's, without what is already ruled out.
pub(super) struct Known<'a> {
    law: &'a [f64],
    excluded: BTreeSet<DraftId>,
    /// What the remaining probabilities add up to.
    total: f64,
    /// Its place in the draft.
    pub(super) at: usize,
    /// The token that was drawn.
    pub(super) token: DraftId,
}

impl<'a> Known<'a> {
    pub(super) fn new(
        draft: &'a Draft,
        at: usize,
        excluded: BTreeSet<DraftId>,
    ) -> Result<Self, LawError> {
        let (law, token) = (draft.laws[at].probabilities(), draft.ids[at]);
        let total = if excluded.is_empty() {
            1.0
        } else {
            remaining(law, excluded.iter().copied())
        };
        let known = Self {
            law,
            excluded,
            total,
            at,
            token,
        };
        let probability = known.probability(token);
        if probability > 0.0 {
            Ok(known)
        } else {
            Err(LawError::DraftProbability { token, probability })
        }
    }

    /// What is ruled out.
    pub(super) fn excluded(&self) -> impl Iterator<Item = DraftId> {
        self.excluded.iter().copied()
    }

    /// Draft tokens of positive probability.
    pub(super) fn possible(&self) -> impl Iterator<Item = DraftId> {
        let positive = self.law.iter().enumerate().filter(|(_, q)| **q > 0.0);
        let tokens = positive.map(|(column, _)| DraftId::new(column as u32));
        tokens.filter(|draft| !self.excluded.contains(draft))
    }

    /// Draft tokens the law is over.
    pub(super) fn width(&self) -> usize {
        self.law.len()
    }

    pub(super) fn probability(&self, draft: DraftId) -> f64 {
        if self.excluded.contains(&draft) {
            return 0.0;
        }
        self.law.get(draft.index()).copied().unwrap_or(0.0) / self.total
    }

    /// Probability of all tokens but these, which come in ascending order.
    pub(super) fn without(&self, tokens: impl Iterator<Item = DraftId> + Clone) -> f64 {
        remaining(self.law, tokens)
    }
}

/// What a law leaves to all tokens but some, which come in ascending order.
///
/// The complement, where at least half is left: the law sums to 1 within the rounding tolerance, so
/// what is left is off by at most twice that relative to itself. Else the sum of the rest: the
/// complement of a sum near 1 would be rounding noise.
fn remaining(law: &[f64], without: impl Iterator<Item = DraftId> + Clone) -> f64 {
    let probability = |draft: DraftId| law.get(draft.index()).copied().unwrap_or(0.0);
    let taken: f64 = without.clone().map(probability).sum();
    if taken <= 0.5 {
        return 1.0 - taken;
    }
    let mut start = 0;
    let mut left = 0.0;
    for draft in without {
        let end = draft.index().min(law.len());
        left += sum(&law[start..end]);
        start = (end + 1).min(law.len());
    }
    left + sum(&law[start..])
}
