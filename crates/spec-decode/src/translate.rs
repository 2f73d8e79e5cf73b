//! Translation of drafted tokens to proposed target tokens: Algorithm 1's translation, Eq. 1.

use ngram_cache::{Kind, Translated};
use vocab_align::{DraftId, TargetId};

use crate::lexicon::Lexicon;

/// A proposed target token, and the drafted tokens that it stands for.
pub type Proposal = Translated;

/// True if a proposal was looked up: it stands for no drafted token and is proposed with
/// probability 1.
pub fn is_looked_up(proposal: &Proposal) -> bool {
    proposal.span.is_empty()
}

/// Proposals of looked-up tokens.
pub(crate) fn looked_up(tokens: &[TargetId]) -> Vec<Proposal> {
    let proposal = |&target: &TargetId| Proposal {
        target,
        span: 0..0,
        kind: Kind::Direct,
    };
    tokens.iter().map(proposal).collect()
}

/// Translates by greedy longest match from left to right, up to the first token that starts
/// nothing.
///
/// Spans are adjacent and start at 0. A trailing path without a target token is left out.
pub fn translate(draft: &[DraftId], lexicon: &Lexicon<'_>) -> Vec<Proposal> {
    let direct = lexicon.direct();
    ngram_cache::translate(draft, |token| direct.target_of(token), lexicon.cache())
}
