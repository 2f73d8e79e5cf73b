//! The distribution of one draft token, as far as verification knows it.

use std::collections::BTreeSet;

use vocab_align::{DraftId, TokenId};

use crate::draft::Draft;
use crate::error::LawError;
use crate::sampling::sum;

/// The known distribution of one draft token: the drafter's, without tokens that are ruled out.
pub(super) struct Known<'a> {
    law: &'a [f64],
    excluded: BTreeSet<DraftId>,
    /// Sum of the remaining probabilities.
    total: f64,
    /// Its index in the draft.
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

    /// Tokens that are ruled out.
    pub(super) fn excluded(&self) -> impl Iterator<Item = DraftId> {
        self.excluded.iter().copied()
    }

    /// Draft tokens of positive probability.
    pub(super) fn possible(&self) -> impl Iterator<Item = DraftId> {
        let positive = self.law.iter().enumerate().filter(|(_, q)| **q > 0.0);
        let tokens = positive.map(|(column, _)| DraftId::new(column as u32));
        tokens.filter(|draft| !self.excluded.contains(draft))
    }

    /// Number of draft tokens that the distribution covers.
    pub(super) fn width(&self) -> usize {
        self.law.len()
    }

    pub(super) fn probability(&self, draft: DraftId) -> f64 {
        if self.excluded.contains(&draft) {
            return 0.0;
        }
        self.law.get(draft.index()).copied().unwrap_or(0.0) / self.total
    }

    /// Probability of all tokens but these, which are given in ascending order. It is correct only
    /// while no token is ruled out.
    pub(super) fn without(&self, tokens: impl Iterator<Item = DraftId> + Clone) -> f64 {
        remaining(self.law, tokens)
    }
}

/// Probability of all tokens but some, which are given in ascending order.
///
/// If at least half is left, it is the complement: the distribution sums to 1 within the rounding
/// tolerance, so the relative error of the result is at most twice that. Otherwise it is the sum of
/// the rest, because the complement of a sum near 1 would be rounding noise.
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
