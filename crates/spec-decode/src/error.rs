//! Errors of the loop, with the round in which they occur.

use thiserror::Error;
use vocab_align::{AlignError, DraftId, TargetId};

use crate::ModelError;

/// One of the two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The small model that proposes (M_q).
    Drafter,
    /// The large model that decides (M_p).
    Target,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Drafter => "drafter",
            Self::Target => "target",
        })
    }
}

/// An impossible probability distribution.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum LawError {
    /// A logit is NaN or `+inf`.
    #[error("logit of token {token} is {value}")]
    Logit {
        /// Raw token id (column of the logits row).
        token: usize,
        /// The value found.
        value: f32,
    },
    /// No token has positive probability.
    #[error("no token of {candidates} candidates has positive probability")]
    NoMass {
        /// Number of tokens that were allowed.
        candidates: usize,
    },
    /// The drafter is said to have sampled a token that its own distribution excludes.
    #[error("draft token {token} was drafted with probability {probability}")]
    DraftProbability {
        /// The drafted token.
        token: DraftId,
        /// Its probability, which is not in `(0, 1]`.
        probability: f64,
    },
    /// A verdict from elsewhere says that a proposal has an impossible probability under the target.
    #[error("a verified proposal is said to have the probability {probability}")]
    TargetProbability {
        /// The probability, which is not in `[0, 1]`.
        probability: f64,
    },
    /// Eq. 2 gave the first sub-token of a merged n-gram a negative probability.
    #[error("Eq. 2 leaves target token {token} the proposal probability {mass}")]
    NegativeProposal {
        /// Direct token of the first sub-token.
        token: TargetId,
        /// q(d_1) minus the n-gram's product.
        mass: f64,
    },
    /// A proposal was rejected although the target's distribution exceeds the proposal's nowhere.
    #[error(
        "token {token} was rejected with p = {target} < q' = {proposal}, but the residual is empty"
    )]
    EmptyResidual {
        /// The rejected target token.
        token: TargetId,
        /// Its probability under the target.
        target: f64,
        /// Its probability under the proposal.
        proposal: f64,
    },
    /// A token id does not fit the logits row.
    #[error("token {token} does not exist in a vocabulary of {vocab}")]
    OutOfVocabulary {
        /// Raw id of the token.
        token: u32,
        /// Width of the row of logits.
        vocab: usize,
    },
    /// A draft has no distribution for some of its tokens, or proposals span tokens that it has not.
    #[error(
        "a draft of {tokens} tokens has {laws} distributions, and its proposals span {spanned}"
    )]
    DraftShape {
        /// Number of draft tokens.
        tokens: usize,
        /// Number of their distributions.
        laws: usize,
        /// Number of draft tokens up to the end of the last proposal.
        spanned: usize,
    },
    /// Groups of another vocabulary, or none, where verification reads them.
    #[error("groups for {found} tokens instead of {vocab}")]
    GroupShape {
        /// Number of tokens that the groups are for.
        found: usize,
        /// Width of a row.
        vocab: usize,
    },
    /// A forward returned a number of logits other than positions times vocabulary.
    #[error("{found} logits instead of {positions} rows of {vocab}")]
    RowShape {
        /// Number of values returned.
        found: usize,
        /// Number of positions asked for.
        positions: usize,
        /// Width of a row.
        vocab: usize,
    },
}

/// Failure of a prompt or of a round.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The prompt is empty on one side; the first round needs at least one token on both.
    #[error("the prompt has no {0} token")]
    EmptyPrompt(Role),
    /// The prompt does not fit the model's KV cache.
    #[error("the prompt has {tokens} {role} tokens, the {role} holds {max_len}")]
    PromptTooLong {
        /// The model.
        role: Role,
        /// Number of tokens of the prompt.
        tokens: usize,
        /// Capacity of the KV cache.
        max_len: usize,
    },
    /// A round was asked for without a response in progress.
    #[error("the session has no running response")]
    NotRunning,
    /// A model failed while the prompt was read.
    #[error("{role} failed in prefill")]
    Prefill {
        /// The model.
        role: Role,
        /// Its error.
        #[source]
        source: ModelError,
    },
    /// A model failed in a round.
    #[error("round {round}: {role} failed")]
    Model {
        /// Round of this response, from 0.
        round: usize,
        /// The model.
        role: Role,
        /// Its error.
        #[source]
        source: ModelError,
    },
    /// A probability is impossible.
    #[error("round {round}: {role} law: {source}")]
    Law {
        /// Round of this response, from 0.
        round: usize,
        /// The model whose distribution it is.
        role: Role,
        /// The fault.
        #[source]
        source: LawError,
    },
    /// Accepted text could not be translated between the vocabularies.
    #[error("round {round}: cannot align accepted text")]
    Align {
        /// Round of this response, from 0.
        round: usize,
        /// The alignment's error.
        #[source]
        source: AlignError,
    },
    /// The [generation](ngram_cache::NgramCache::generation) of the n-gram cache has changed since
    /// the draft. Verification with other n-grams would break the target's distribution.
    #[error("round {round}: the n-gram cache has changed since the draft")]
    CacheChanged {
        /// Round of this response, from 0.
        round: usize,
    },
    /// The round was not begun by this session, or another response or other settings have begun
    /// since.
    #[error("round {round} does not belong to the session's present response and settings")]
    OtherRound {
        /// Round of its response, from 0.
        round: usize,
    },
    /// Drafts of this mode cannot be verified without the drafter's distributions.
    #[error(
        "round {round}: drafts of mode {mode} cannot be verified elsewhere, only `exact` and `tli`"
    )]
    NotSparse {
        /// Round of this response, from 0.
        round: usize,
        /// Name of the mode.
        mode: &'static str,
    },
    /// The length of a model's KV cache is not the number of tokens that it was fed.
    #[error("round {round}: {role} cache holds {found} tokens, expected {expected}")]
    CacheDrift {
        /// Round of this response, from 0.
        round: usize,
        /// The model.
        role: Role,
        /// Length that the model reports.
        found: usize,
        /// Length that the session expects.
        expected: usize,
    },
}

impl SpecError {
    /// Names the model and the round in which it failed.
    pub(crate) fn model(role: Role, round: usize) -> impl Fn(ModelError) -> Self + Copy {
        move |source| Self::Model {
            round,
            role,
            source,
        }
    }

    /// Names the round, and the model whose probability is impossible.
    pub(crate) fn law(role: Role, round: usize) -> impl Fn(LawError) -> Self + Copy {
        move |source| Self::Law {
            round,
            role,
            source,
        }
    }

    /// Names the round.
    pub(crate) fn align(round: usize) -> impl Fn(AlignError) -> Self + Copy {
        move |source| Self::Align { round, source }
    }
}
