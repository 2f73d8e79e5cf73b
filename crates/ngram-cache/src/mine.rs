//! Finding n-grams in verified text.

use vocab_align::{AlignedSpan, DraftId, TargetId};

/// The n-grams of a text that was tokenised both ways: every aligned span in which exactly one target
/// token meets two or more draft tokens, in text order, repetitions included.
///
/// `spans` come from [`vocab_align::align_offsets`]: minimal chunks that end at the same byte offset in
/// both tokenisations. A chunk with several target tokens is no n-gram, since no single target token is
/// spelled by whole draft tokens there. An n-gram is mined even if the target token also has a direct
/// mapping: the drafter's tokenizer chose the longer spelling in this context, so a drafter that learned
/// its tokenizer's habits will propose it.
///
/// Spans that point outside the two slices are passed over.
pub fn mine<'a>(
    spans: &'a [AlignedSpan],
    draft: &'a [DraftId],
    target: &'a [TargetId],
) -> impl Iterator<Item = (&'a [DraftId], TargetId)> {
    spans.iter().filter_map(move |span| {
        let spelling = draft.get(span.draft.clone())?;
        match target.get(span.target.clone())? {
            [token] if spelling.len() >= 2 => Some((spelling, *token)),
            _ => None,
        }
    })
}
