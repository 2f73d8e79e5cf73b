//! From drafted tokens to proposed target tokens: Algorithm 1's translation, Eq. 1.

use ngram_cache::{Kind, Translated, translate_with};
use vocab_align::{DraftId, TargetId};

use crate::lexicon::Lexicon;

/// A target token put to the target, and the drafted tokens it stands for.
pub type Proposal = Translated;

/// Whether a proposal was looked up: it stands for no drafted token and is proposed with
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

/// Greedy longest match from left to right; ends at the first token that starts nothing.
///
/// Spans are adjacent and start at 0. A trailing path without a token of its own is left out.
pub fn translate(draft: &[DraftId], lexicon: &Lexicon<'_>) -> Vec<Proposal> {
    let direct = lexicon.direct();
    translate_with(draft, |token| direct.target_of(token), lexicon.cache())
}
