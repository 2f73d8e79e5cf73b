//! The proposal's law in target space (Eq. 2) and the residual distribution after a rejection.

use ngram_cache::Kind;
use vocab_align::{TargetId, TokenId};

use crate::draft::{Draft, DraftLaw};
use crate::error::LawError;
use crate::lexicon::DirectMap;
use crate::translate::Proposal;

/// How far rounding alone can push a sum of `vocab` f64 probabilities off, with a factor for the
/// rounding of the softmax itself.
///
/// A softmax entry carries a relative error of a few ulps, a sum over the vocabulary at most one
/// ulp per term; so two laws that are equal in exact arithmetic differ by less than this.
pub fn rounding_tolerance(vocab: usize) -> f64 {
    8.0 * f64::EPSILON * vocab.max(1) as f64
}

/// q' of Eq. 2 at one proposal: the drafter's law at the first token of its span, pushed forward
/// to target tokens.
///
/// Every canonical direct token keeps q. Where the proposal is a merged n-gram its target token
/// gets the product of q over the n-gram (on top of its own direct mass, where it has any), and
/// the direct token of its first sub-token loses as much. Draft tokens that are no direct token
/// have no image, so q' may sum to less than 1.
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
    /// The law at `proposal`.
    ///
    /// # Errors
    /// [`LawError::DraftProbability`] where a token of the span was drafted with an impossible
    /// probability, [`LawError::NegativeProposal`] where Eq. 2 leaves the first sub-token less
    /// than nothing (the product of probabilities at most 1 cannot exceed its first factor, in
    /// floating point either, so this needs no tolerance).
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

    /// Turns the target's law p into the unnormalised residual max(0, p - q').
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

/// Eq. 1: the probability of drafting the tokens a proposal stands for; 1 at temperature 0.
pub(crate) fn path_probability(draft: &Draft, proposal: &Proposal) -> Result<f64, LawError> {
    proposal.span.clone().try_fold(
        1.0,
        |mass, position| Ok(mass * draft.probability(position)?),
    )
}

/// Decides what an empty residual means: `Ok` where rejection was a matter of rounding (p and q'
/// are then equal within the tolerance, and p itself may stand for the residual).
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
