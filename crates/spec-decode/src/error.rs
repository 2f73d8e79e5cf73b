//! Everything that can go wrong in the loop, with the round in which it did.

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

/// A probability law that cannot be.
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
        /// How many tokens were allowed.
        candidates: usize,
    },
    /// The drafter is said to have sampled a token its own law rules out.
    #[error("draft token {token} was drafted with probability {probability}")]
    DraftProbability {
        /// The drafted token.
        token: DraftId,
        /// Its probability: not in `(0, 1]`.
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
    /// A proposal was rejected although nothing of the target's law exceeds the proposal's.
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
        /// Raw token id.
        token: u32,
        /// Width of the logits row.
        vocab: usize,
    },
    /// A forward returned another number of logits than positions times vocabulary.
    #[error("{found} logits instead of {positions} rows of {vocab}")]
    RowShape {
        /// Values returned.
        found: usize,
        /// Positions asked for.
        positions: usize,
        /// Width of a row.
        vocab: usize,
    },
}

/// Failure of a prompt or a round.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A prompt needs at least one token on both sides, from which the first round starts.
    #[error("the prompt has no {0} token")]
    EmptyPrompt(Role),
    /// The prompt does not fit the model's KV cache.
    #[error("the prompt has {tokens} {role} tokens, the {role} holds {max_len}")]
    PromptTooLong {
        /// Which model.
        role: Role,
        /// Tokens of the prompt.
        tokens: usize,
        /// Capacity of the KV cache.
        max_len: usize,
    },
    /// A round was asked of a session that has not started or has already ended.
    #[error("the session has no running response")]
    NotRunning,
    /// A model failed while the prompt was read.
    #[error("{role} failed in prefill")]
    Prefill {
        /// Which model.
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
        /// Which model.
        role: Role,
        /// Its error.
        #[source]
        source: ModelError,
    },
    /// An impossible probability.
    #[error("round {round}: {role} law: {source}")]
    Law {
        /// Round of this response, from 0.
        round: usize,
        /// Whose law.
        role: Role,
        /// What is wrong with it.
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
    /// A model's KV cache is not as long as the tokens it was fed.
    #[error("round {round}: {role} cache holds {found} tokens, expected {expected}")]
    CacheDrift {
        /// Round of this response, from 0.
        round: usize,
        /// Which model.
        role: Role,
        /// Length reported by the model.
        found: usize,
        /// Length the session counted.
        expected: usize,
    },
}
