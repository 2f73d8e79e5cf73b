//! The distribution of a proposal over target tokens (Eq. 2), and the residual distribution after a
//! rejection.

use ngram_cache::Kind;
use vocab_align::{TargetId, TokenId};

use crate::draft::{Draft, DraftLaw};
use crate::error::LawError;
use crate::lexicon::DirectMap;
use crate::translate::Proposal;

/// Largest rounding error of a sum of `vocab` f64 probabilities, with a factor for the rounding of
/// the softmax itself.
///
/// A softmax entry carries a relative error of a few ulps, a sum over the vocabulary at most one
/// ulp per term; so two distributions that are equal in exact arithmetic differ by less than this.
pub fn rounding_tolerance(vocab: usize) -> f64 {
    8.0 * f64::EPSILON * vocab.max(1) as f64
}

/// q' of Eq. 2 at one proposal: the drafter's distribution at the first token of its span, pushed
/// forward to target tokens.
///
/// Every canonical direct token keeps q. If the proposal is a merged n-gram, its target token gets
/// the product of q over the n-gram (in addition to its own direct mass, if any), and the direct
/// token of its first sub-token loses as much. Draft tokens without a direct token have no image,
/// so q' may sum to less than 1.
#[derive(Clone, Copy, Debug)]
pub struct Pushforward<'a> {
    direct: &'a DirectMap,
    law: &'a DraftLaw,
    merged: Option<Merged>,
}

#[derive(Clone, Copy, Debug)]
struct Merged {
    target: TargetId,
    first: Option<TargetId>,
    mass: f64,
}

impl<'a> Pushforward<'a> {
    /// The distribution q' at `proposal`, which must stand for tokens of `draft`, above temperature
    /// 0.
    ///
    /// # Errors
    /// [`LawError::DraftProbability`] if a token of the span was drafted with an impossible
    /// probability; [`LawError::NegativeProposal`] if Eq. 2 leaves the first sub-token a negative
    /// probability. The product of probabilities of at most 1 cannot exceed its first factor, not
    /// even in floating point, so this needs no tolerance.
    pub fn new(
        draft: &'a Draft,
        proposal: &Proposal,
        direct: &'a DirectMap,
    ) -> Result<Self, LawError> {
        let mass = path_probability(draft, proposal)?;
        let law = &draft.laws[proposal.span.start];
        let first = draft.ids[proposal.span.start];
        let merged = (proposal.kind == Kind::Ngram).then(|| Merged {
            target: proposal.target,
            first: direct.target_of(first),
            mass,
        });
        if let Some(Merged {
            first: Some(token),
            mass,
            ..
        }) = merged
        {
            let left = law.probability(first) - mass;
            if left.is_nan() || left < 0.0 {
                return Err(LawError::NegativeProposal { token, mass: left });
            }
        }
        Ok(Self {
            direct,
            law,
            merged,
        })
    }

    /// q'(t).
    pub fn probability(&self, target: TargetId) -> f64 {
        let own = self.direct.draft_of(target);
        let mut mass = own.map_or(0.0, |draft| self.law.probability(draft));
        if let Some(merged) = self.merged {
            if merged.first == Some(target) {
                mass -= merged.mass;
            }
            if merged.target == target {
                mass += merged.mass;
            }
        }
        mass
    }

    /// Replaces the target's distribution p by the unnormalised residual max(0, p - q').
    pub fn subtract_from(&self, law: &mut [f64]) {
        for &(draft, target) in self.direct.pairs() {
            let adjusted = self
                .merged
                .is_some_and(|m| m.target == target || m.first == Some(target));
            if !adjusted {
                lower(law, target, self.law.probability(draft));
            }
        }
        if let Some(merged) = self.merged {
            lower(law, merged.target, self.probability(merged.target));
            if let Some(first) = merged.first.filter(|&first| first != merged.target) {
                lower(law, first, self.probability(first));
            }
        }
    }
}

fn lower(law: &mut [f64], target: TargetId, mass: f64) {
    if let Some(entry) = law.get_mut(target.index()) {
        *entry = (*entry - mass).max(0.0);
    }
}

/// Eq. 1: the probability of drafting the tokens that a proposal stands for; 1 at temperature 0.
pub(crate) fn path_probability(draft: &Draft, proposal: &Proposal) -> Result<f64, LawError> {
    proposal.span.clone().try_fold(
        1.0,
        |mass, position| Ok(mass * draft.probability(position)?),
    )
}

/// Decides the meaning of an empty residual. `Ok` if the rejection is within rounding: p and q' are
/// then equal within the tolerance, and p itself may replace the residual.
pub(crate) fn check_empty_residual(
    token: TargetId,
    target: f64,
    proposal: f64,
    vocab: usize,
) -> Result<(), LawError> {
    if proposal - target <= rounding_tolerance(vocab) {
        return Ok(());
    }
    Err(LawError::EmptyResidual {
        token,
        target,
        proposal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab_align::DraftId;

    /// Draft tokens 0, 1, 2 are direct to 0, 1, 2; target token 3 is the n-gram 0 1.
    fn draft() -> (DirectMap, Draft) {
        let pairs: Vec<_> = (0..3).map(|i| (DraftId(i), TargetId(i))).collect();
        let draft = Draft {
            ids: vec![DraftId(0), DraftId(1)],
            laws: vec![
                DraftLaw::new(vec![0.5, 0.3, 0.2]),
                DraftLaw::new(vec![0.1, 0.8, 0.1]),
            ],
        };
        (DirectMap::from_pairs(&pairs, 3, 5), draft)
    }

    fn merged(target: u32) -> Proposal {
        Proposal {
            target: TargetId(target),
            span: 0..2,
            kind: Kind::Ngram,
        }
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        let near = found
            .iter()
            .zip(expected)
            .all(|(a, b)| (a - b).abs() < 1e-15);
        assert!(near, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn eq_2_by_hand() {
        let (direct, draft) = draft();
        let proposed = Pushforward::new(&draft, &merged(3), &direct).unwrap();
        let law: Vec<f64> = (0..5).map(|t| proposed.probability(TargetId(t))).collect();
        // 0.5 * 0.8 goes from the first sub-token to the n-gram.
        close(&law, &[0.1, 0.3, 0.2, 0.4, 0.0]);
        let mut residual = vec![0.3, 0.1, 0.1, 0.2, 0.3];
        proposed.subtract_from(&mut residual);
        close(&residual, &[0.2, 0.0, 0.0, 0.0, 0.3]);
    }

    #[test]
    fn a_merged_token_that_is_direct_as_well_keeps_both_masses() {
        let (direct, draft) = draft();
        let proposed = Pushforward::new(&draft, &merged(2), &direct).unwrap();
        assert!((proposed.probability(TargetId(2)) - 0.6).abs() < 1e-15);
        let mut residual = vec![0.2; 5];
        proposed.subtract_from(&mut residual);
        close(&residual, &[0.1, 0.0, 0.0, 0.2, 0.2]);
        // If the n-gram's target token is the direct token of its first sub-token, nothing changes.
        let same = Pushforward::new(&draft, &merged(0), &direct).unwrap();
        assert!((same.probability(TargetId(0)) - 0.5).abs() < 1e-15);
        let mut residual = vec![0.6; 5];
        same.subtract_from(&mut residual);
        close(&residual, &[0.1, 0.3, 0.4, 0.6, 0.6]);
    }

    #[test]
    fn impossible_draft_probabilities_are_errors() {
        let (direct, mut draft) = draft();
        for impossible in [0.0, -0.1, 1.5, f64::NAN] {
            draft.laws[1] = DraftLaw::new(vec![0.0, impossible, 0.0]);
            let error = Pushforward::new(&draft, &merged(3), &direct).unwrap_err();
            assert!(
                matches!(
                    error,
                    LawError::DraftProbability {
                        token: DraftId(1),
                        ..
                    }
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn an_empty_residual_passes_only_as_rounding() {
        let tolerance = rounding_tolerance(1000);
        assert!(tolerance < 1e-11);
        let check = |gap| check_empty_residual(TargetId(1), 0.5, 0.5 + gap, 1000);
        assert_eq!(check(tolerance / 2.0), Ok(()));
        assert!(matches!(
            check(1e-6),
            Err(LawError::EmptyResidual {
                token: TargetId(1),
                ..
            })
        ));
    }
}
