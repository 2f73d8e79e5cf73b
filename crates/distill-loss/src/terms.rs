//! The terms of the objective (Eq. 3-4): which losses a learner minimises, and how they are weighted.

use crate::direct::DirectLoss;
use crate::ngram::NgramLoss;

/// The loss that a learner minimises, in nats.
///
/// ```
/// use distill_loss::{DirectLoss, NgramLoss, PAPER_LAMBDA, Terms};
///
/// // Eq. 4 as the paper has it.
/// let terms = Terms::hybrid(DirectLoss::ReverseKl, NgramLoss::Nll, PAPER_LAMBDA);
/// assert!(terms.reads_direct_law() && !terms.reads_ngram_law());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Terms {
    /// `L_DM + lambda L_N-gram` (Eq. 3), at least one of them.
    Hybrid {
        /// L_DM, the term at tokens that both vocabularies have.
        direct: Option<DirectLoss>,
        /// L_N-gram, the term at target tokens that are merged from several draft tokens.
        ngram: Option<NgramLoss>,
        /// The weight of L_N-gram, 0 or more; [`NgramLoss::Pointwise`] has its own.
        lambda: f64,
    },
    /// Approximate likelihood matching (arXiv 2503.20083) in the place of both terms.
    Alm {
        /// Its temperature, above 0.
        tau: f64,
    },
}

impl Terms {
    /// Hybrid distillation with both terms (Eq. 4).
    pub fn hybrid(direct: DirectLoss, ngram: NgramLoss, lambda: f64) -> Self {
        Self::Hybrid {
            direct: Some(direct),
            ngram: Some(ngram),
            lambda,
        }
    }

    /// True if L_N-gram can be learnt in a sample of the columns.
    pub(crate) fn samples_ngrams(self) -> bool {
        matches!(
            self,
            Self::Hybrid {
                ngram: Some(NgramLoss::Nll | NgramLoss::Pointwise | NgramLoss::ScaledPointwise),
                ..
            }
        )
    }

    /// The same terms without L_N-gram.
    pub fn without_ngrams(self) -> Self {
        match self {
            Self::Hybrid { direct, lambda, .. } => Self::Hybrid {
                direct,
                ngram: None,
                lambda,
            },
            Self::Alm { .. } => self,
        }
    }

    /// True if the target's distribution is wanted where one draft token is one target token.
    pub fn reads_direct_law(self) -> bool {
        matches!(self, Self::Hybrid { direct: Some(direct), .. } if direct.reads_law())
    }

    /// True if the target's distribution is wanted where several draft tokens are one target token.
    pub fn reads_ngram_law(self) -> bool {
        matches!(
            self,
            Self::Hybrid {
                ngram: Some(NgramLoss::ApproximateKl),
                ..
            }
        )
    }
}
