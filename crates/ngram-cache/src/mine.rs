//! Mining of n-grams from verified text.

use vocab_align::{AlignedSpan, DraftId, TargetId};

/// The n-grams of a text in two tokenisations: every aligned span of exactly one target token and
/// two or more draft tokens, in text order, repetitions included.
///
/// `spans` come from [`vocab_align::align_offsets`]: minimal chunks that end at the same byte
/// offset in both tokenisations. A chunk with several target tokens is no n-gram, because no single
/// target token equals whole draft tokens there. An n-gram is mined even if the target token also
/// has a direct mapping: the drafter's tokenizer chose the longer sequence in this context, so a
/// drafter trained on such text will propose it.
///
/// Spans that point outside the two slices are skipped.
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
