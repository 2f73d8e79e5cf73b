//! Mining of n-grams from verified text (the last step of Algorithm 1).

use ngram_cache::{Insertion, NgramCache, mine};
use vocab_align::{DraftContext, DraftId, TargetId, align_offsets};

use super::running::Running;
use super::{CachedGroups, Pair};

impl Running {
    /// Inserts the n-grams of text that has become final; once the response has ended, those of all
    /// remaining text. Returns the number of n-grams that were new to the cache.
    ///
    /// Draft tokens inside the context's re-tokenisation window are not final yet. An n-gram from
    /// there might occur in no complete text.
    pub(super) fn mine(
        &mut self,
        context: &DraftContext,
        pair: &Pair,
        cache: &mut NgramCache,
        groups: &mut CachedGroups,
    ) -> usize {
        let draft: &[DraftId] = &context.ids()[self.prompt_draft + self.mined.draft..];
        let target: &[TargetId] = &self.response[self.mined.target..];
        let draft_bytes = &context.lengths()[self.mined.draft..];
        let target_bytes = pair.alignment.spelled_lengths(&pair.target, target);
        let open = if self.finish.is_some() {
            0
        } else {
            context.open_bytes()
        };
        let final_bytes = draft_bytes.iter().sum::<usize>().saturating_sub(open);

        let mut spans = align_offsets(draft_bytes, &target_bytes);
        let mut end = 0;
        spans.retain(|span| {
            end += draft_bytes[span.draft.clone()].iter().sum::<usize>();
            end <= final_bytes
        });
        let mut inserted = 0;
        for (spelling, token) in mine(&spans, draft, target) {
            let (drafted, emitted) = ((&pair.draft, spelling), (&pair.target, &[token][..]));
            if !pair.alignment.same_text(drafted, emitted) {
                // The drafter reads another text than the target wrote: it is normalised, or has
                // unknown characters.
                continue;
            }
            let before = cache.generation();
            let insertion = cache.insert(spelling, token);
            if insertion == Insertion::New {
                groups.learn(cache, before, spelling, token);
            }
            let is_new = matches!(insertion, Insertion::New | Insertion::Evicted(_));
            inserted += usize::from(is_new);
        }
        if let Some(last) = spans.last() {
            self.mined.draft += last.draft.end;
            self.mined.target += last.target.end;
        }
        inserted
    }
}
