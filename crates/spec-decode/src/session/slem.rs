//! Mode `slem` (string-level exact match: Timor et al., arXiv 2502.05202): drafts as text. Any
//! token with bytes may be drafted, and the target's own tokenizer splits the drafted text into
//! proposals.

use std::collections::BTreeSet;
use std::ops::Range;

use ngram_cache::Kind;
use vocab_align::{AlignError, DraftId, TargetId, TokenId};

use super::Pair;
use crate::lexicon::DirectMap;
use crate::translate::Proposal;

/// Raw ids of the draft tokens that stand for text, and of those that stand for a stop token.
pub(super) fn spellable(
    pair: &Pair,
    direct: &DirectMap,
    stop: &BTreeSet<TargetId>,
    draft_vocab: usize,
) -> Vec<u32> {
    let known = pair.draft.len().min(draft_vocab);
    (0..known as u32)
        .filter(|&raw| {
            let token = DraftId::new(raw);
            let ends = direct
                .target_of(token)
                .is_some_and(|target| stop.contains(&target));
            ends || pair.draft.bytes(token).is_some()
        })
        .collect()
}

/// The drafted text in target tokens. A proposal's span covers the draft tokens with which it
/// shares bytes, so neighbouring spans may overlap in one token.
///
/// The text is tokenised on its own, so its first token starts where the target's last one ended.
pub(super) fn retokenise(
    draft: &[DraftId],
    pair: &Pair,
    direct: &DirectMap,
) -> Result<Vec<Proposal>, AlignError> {
    let mut proposals = Vec::new();
    let mut start = 0;
    while start < draft.len() {
        let text = draft[start..]
            .iter()
            .take_while(|&&d| pair.draft.bytes(d).is_some())
            .count();
        append_text(&draft[start..start + text], start, pair, &mut proposals)?;
        start += text;
        if let Some(&special) = draft.get(start) {
            let Some(target) = direct.target_of(special) else {
                break;
            };
            proposals.push(Proposal {
                target,
                span: start..start + 1,
                kind: Kind::Direct,
            });
            start += 1;
        }
    }
    Ok(proposals)
}

fn append_text(
    draft: &[DraftId],
    offset: usize,
    pair: &Pair,
    proposals: &mut Vec<Proposal>,
) -> Result<(), AlignError> {
    let lengths = pair.draft.byte_lengths(draft);
    let mut at = 0;
    for target in pair.target.spell(&pair.draft.decode_bytes(draft))? {
        let bytes = at..at + pair.target.bytes(target).map_or(0, <[u8]>::len);
        at = bytes.end;
        let span = covering(&lengths, bytes);
        proposals.push(Proposal {
            target,
            span: offset + span.start..offset + span.end,
            // Direct, whatever the number of draft tokens it covers, because no cache is involved.
            kind: Kind::Direct,
        });
    }
    Ok(())
}

/// Range of the tokens, given their byte lengths, that share bytes with a byte range.
fn covering(lengths: &[usize], bytes: Range<usize>) -> Range<usize> {
    let (mut at, mut start, mut end) = (0, lengths.len(), 0);
    for (token, length) in lengths.iter().enumerate() {
        let next = at + length;
        if next > bytes.start && at < bytes.end {
            start = start.min(token);
            end = token + 1;
        }
        at = next;
    }
    start.min(end)..end
}
