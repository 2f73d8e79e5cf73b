//! Verification: the accepted proposals of a round, and the one token that follows them.
//!
//! Every mode fills the same [`Verdict`]. At temperature 0 all modes share one path: a proposal is
//! accepted if it is the target's argmax.

mod block;
mod chain;
mod choice;
mod drafted;
mod exact;
mod fork;
pub(crate) mod greedy;
mod groups;
mod known;
mod matching;
mod score;
mod sparse;
mod tokenwise;

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use vocab_align::{TargetId, TokenId};

use crate::Chance;
use crate::draft::Draft;
use crate::error::LawError;
use crate::lexicon::Lexicon;
use crate::model::Rows;
use crate::residual::path_probability;
use crate::sampling::{Sampling, argmax};
use crate::translate::Proposal;

pub use groups::Groups;
pub use score::{ChoiceScore, ChoiceScores, Score};
pub use sparse::{SparseChoice, SparseDraft, SparseFault, SparseOutcome};

use chain::Laws;
use choice::OpenPaths;

/// Verification mode: the rule by which tokens are drafted and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum VerifyMode {
    /// Algorithm 1 with Eq. 1-2. Makes the paper's tables; at temperatures well above 0 the output
    /// only approximates the target's distribution once n-grams are merged.
    Paper,
    /// Directly mapped tokens only (the paper's SpD_DM): the target's distribution exactly.
    Tli,
    /// Direct tokens and n-grams, merged so that the target's distribution is met exactly (the group
    /// rule with branch coupling).
    #[default]
    Exact,
    /// Drafts without a mask are compared as text, whatever tokens spell them: exact as well.
    Slem,
}

impl VerifyMode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Paper, Self::Tli, Self::Exact, Self::Slem];

    /// Name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Tli => "tli",
            Self::Exact => "exact",
            Self::Slem => "slem",
        }
    }

    /// True if drafting and translation consult the n-gram cache.
    pub fn uses_cache(self) -> bool {
        matches!(self, Self::Paper | Self::Exact)
    }
}

/// Writes and reads values by their names.
macro_rules! by_name {
    ($kind:ty) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $kind {
            type Err = serde::de::value::Error;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::deserialize(name.into_deserializer())
            }
        }
    };
}

by_name!(VerifyMode);
by_name!(Acceptance);

/// Acceptance rule for the choices of one draft above temperature 0.
///
/// The distribution of the output is the same. Modes whose proposals have a known distribution,
/// `tli` and `exact`, support both; `paper` and `slem` always verify token by token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Acceptance {
    /// One by one, up to the first that is rejected: min(1, p / q) (Algorithm 1).
    #[default]
    Token,
    /// All together, never fewer accepted in expectation (block verification, Sun et al. 2024,
    /// arXiv 2403.10444); modes `tli` and `exact`, the others go token by token.
    Block,
}

impl Acceptance {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Token, Self::Block];

    /// Name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Block => "block",
        }
    }
}

/// Inputs of verification.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The drafted tokens and their distributions.
    pub draft: &'a Draft,
    /// Their translation, m proposals.
    pub proposals: &'a [Proposal],
    /// The target's logits, penalised if there is a repetition penalty: row i decides proposal i,
    /// row m the bonus token.
    pub rows: Rows<'a>,
    /// Lexicon by which the draft was masked and translated.
    pub lexicon: Lexicon<'a>,
    /// Groups of the lexicon. Above temperature 0, mode `exact` reads them, and mode `tli` with block
    /// acceptance.
    pub groups: &'a Groups,
    /// Rule by which the target's distribution follows from its logits.
    pub sampling: Sampling,
}

/// Origin of the last token of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Origin {
    /// Bonus token: every proposal was accepted, and the token was drawn from p.
    #[default]
    Bonus,
    /// A proposal was rejected, and the token was drawn from the residual distribution (at
    /// temperature 0 it is the argmax, in mode `slem` the target's own draw).
    Residual,
    /// A token other than the proposal was drawn from p: one of the accepted group, or any token if
    /// the draft's distribution is unknown there (group rule only).
    Group,
}

/// Result of verification.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Number of leading proposals that are accepted.
    pub accepted: usize,
    /// The token after them.
    pub last: TargetId,
    /// Origin of that token.
    pub origin: Origin,
    /// Scores of the verified proposals. Token by token these are the accepted ones and the
    /// rejected one, if any. In a block, they are all up to the first that the draft's path does
    /// not take, because the target gives a choice probability 0 or another token was drawn from p.
    pub scores: Vec<Score>,
}

/// True if verification reads [`Evidence::groups`].
pub(crate) fn needs_groups(mode: VerifyMode, acceptance: Acceptance, sampling: Sampling) -> bool {
    let reads = match mode {
        VerifyMode::Exact => true,
        VerifyMode::Tli => acceptance == Acceptance::Block,
        VerifyMode::Paper | VerifyMode::Slem => false,
    };
    reads && !sampling.is_greedy()
}

/// Verifies the proposals of one round.
///
/// # Errors
/// [`LawError`] for impossible logits or probabilities. No value is corrected silently.
pub fn verify(
    mode: VerifyMode,
    acceptance: Acceptance,
    evidence: &Evidence<'_>,
    dice: &mut dyn Chance,
) -> Result<Verdict, LawError> {
    evidence.check(mode, acceptance)?;
    if evidence.sampling.is_greedy() {
        let best = |index| argmax(evidence.rows.row(index)).map(|best| best as u32);
        return greedy::verify(evidence.proposals.iter().map(|own| own.target), best);
    }
    let laws = Laws::new(evidence.rows, evidence.sampling);
    let proposals: Vec<TargetId> = evidence.proposals.iter().map(|own| own.target).collect();
    let mut open = OpenPaths::default();
    let begin = |index| drafted::begin(evidence, &laws, &mut open, index);
    match (mode, acceptance) {
        (VerifyMode::Slem, _) => matching::verify(evidence, dice),
        (VerifyMode::Tli | VerifyMode::Exact, Acceptance::Block) => {
            block::judge(&laws, &proposals, begin, dice)
        }
        (VerifyMode::Exact, Acceptance::Token) => exact::judge(&laws, &proposals, begin, dice),
        (VerifyMode::Paper | VerifyMode::Tli, _) => tokenwise::verify(evidence, dice),
    }
}

/// Checks that the target has the tokens of all proposals.
pub(crate) fn check_proposals(proposals: &[Proposal], vocab: usize) -> Result<(), LawError> {
    let outside = proposals.iter().find(|p| p.target.index() >= vocab);
    outside.map_or(Ok(()), |proposal| {
        Err(LawError::OutOfVocabulary {
            token: proposal.target.get(),
            vocab,
        })
    })
}

impl Evidence<'_> {
    fn check(&self, mode: VerifyMode, acceptance: Acceptance) -> Result<(), LawError> {
        let (vocab, positions) = (self.rows.vocab(), self.proposals.len() + 1);
        if self.rows.positions() != positions {
            return Err(LawError::RowShape {
                found: self.rows.positions() * vocab,
                positions,
                vocab,
            });
        }
        let (tokens, laws) = (self.draft.ids.len(), self.draft.laws.len());
        let ends = self.proposals.iter().map(|proposal| proposal.span.end);
        let spanned = ends.max().unwrap_or(0);
        let has_laws = self.sampling.is_greedy() || laws == tokens;
        if mode != VerifyMode::Slem && !(has_laws && spanned <= tokens) {
            return Err(LawError::DraftShape {
                tokens,
                laws,
                spanned,
            });
        }
        let found = self.groups.firsts().len();
        if tokens > 0 && needs_groups(mode, acceptance, self.sampling) && found != vocab {
            return Err(LawError::GroupShape { found, vocab });
        }
        check_proposals(self.proposals, vocab)
    }

    /// p and q' of a proposal, given the target's distribution there.
    fn score(&self, law: &[f64], proposal: &Proposal) -> Result<Score, LawError> {
        let target = law[proposal.target.index()];
        Ok(Score::new(target, path_probability(self.draft, proposal)?))
    }
}

impl Verdict {
    /// Verdict if all proposals were accepted. The bonus token after them is drawn from `law`,
    /// which is p there.
    fn all_accepted(
        accepted: usize,
        scores: Vec<Score>,
        law: &[f64],
        dice: &mut dyn Chance,
    ) -> Result<Self, LawError> {
        let free = dice.pick(law)?;
        Ok(Self {
            accepted,
            last: TargetId::new(free as u32),
            origin: Origin::Bonus,
            scores,
        })
    }
}
