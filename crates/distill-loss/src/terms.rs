//! The terms of the objective (Eq. 3-4): which losses a learner minimises, and how they are weighted.

use crate::direct::DirectLoss;
use crate::ngram::NgramLoss;

/// The number that the sums of both terms are divided by ([written out](crate#the-objective)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum Normaliser {
    /// Both by the number of all draft tokens of a batch that some term looks at (Eq. 4).
    #[default]
    Tokens,
    /// Each term by the number of its own, which multiplies `lambda` by the ratio of the two.
    Terms,
}

/// The draft tokens that L_DM compares the two distributions on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum Columns {
    /// Those with a target token of their own, at positions where such a token was emitted.
    #[default]
    Shared,
    /// All that drafting may begin with, those that only begin a cached n-gram among them. Each
    /// stands for its group of target tokens, as in `verify = "exact"`, and the first draft token
    /// of an n-gram is a position too.
    Roots,
}

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
        /// L_N-gram, the term at target tokens that several draft tokens spell.
        ngram: Option<NgramLoss>,
        /// The weight of L_N-gram, 0 or more; [`NgramLoss::Pointwise`] has its own.
        lambda: f64,
        /// The number that the sums of both are divided by.
        normaliser: Normaliser,
        /// The draft tokens that the direct term ranges over.
        columns: Columns,
    },
    /// Approximate likelihood matching (arXiv 2503.20083) in the place of both terms.
    Alm {
        /// Its temperature, above 0.
        tau: f64,
    },
}

impl Terms {
    /// Hybrid distillation (Eq. 4) on the shared tokens, both terms divided by the number of all tokens.
    pub fn hybrid(direct: DirectLoss, ngram: NgramLoss, lambda: f64) -> Self {
        Self::Hybrid {
            direct: Some(direct),
            ngram: Some(ngram),
            lambda,
            normaliser: Normaliser::Tokens,
            columns: Columns::Shared,
        }
    }

    /// True if the target's distribution is wanted where one draft token is one target token.
    pub fn reads_direct_law(self) -> bool {
        matches!(self, Self::Hybrid { direct: Some(direct), .. } if direct.reads_law())
    }

    /// True if it is wanted where several draft tokens are one target token.
    pub fn reads_ngram_law(self) -> bool {
        let approximate = matches!(
            self,
            Self::Hybrid {
                ngram: Some(NgramLoss::ApproximateKl),
                ..
            }
        );
        approximate || (self.reads_direct_law() && self.columns() == Columns::Roots)
    }

    /// The draft tokens that the direct term ranges over.
    pub fn columns(self) -> Columns {
        match self {
            Self::Hybrid { columns, .. } => columns,
            Self::Alm { .. } => Columns::Shared,
        }
    }
}
