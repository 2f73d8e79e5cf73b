//! The drafter's KV cache, and the part of a long context that it holds.

use vocab_align::{DraftId, raw_ids};

use super::common_prefix;
use crate::LanguageModel;
use crate::error::{Role, SpecError};

/// Number of pending tokens beyond which, in a response, all but the last are read without
/// computing their logits.
pub(super) const FEW: usize = 16;

/// The part of the draft context that the drafter reads.
///
/// This view is all of the context if that fits. Otherwise it is the first token, if that is
/// special (models expect a beginning of text there), and a tail of the context. The start of the
/// tail moves in steps of a quarter of the drafter's capacity, so that the cache is not rebuilt in
/// every round; at least three quarters of the drafter's positions are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// Number of tokens kept from the beginning: 0 or 1.
    head: usize,
    /// Start of the tail; `head` while everything fits.
    start: usize,
}

impl Window {
    /// Number of tokens of the view of a context.
    fn len(self, context: usize) -> usize {
        self.head + context.saturating_sub(self.start)
    }

    /// The view of a context.
    fn of(self, context: &[DraftId]) -> Vec<DraftId> {
        let end = context.get(self.start..).unwrap_or_default();
        [&context[..self.head], end].concat()
    }

    /// Moves the window if the view leaves no room in `max_len` positions to draft `wanted` tokens,
    /// or an eighth of `max_len` if that is less. The last drafted token needs no position.
    fn fit(&mut self, context: usize, max_len: usize, wanted: usize) {
        let stride = (max_len / 4).max(1);
        let room = max_len.saturating_add(1).saturating_sub(self.len(context));
        if room >= wanted.clamp(1, (stride / 2).max(1)) {
            return;
        }
        let kept = max_len.saturating_add(1).saturating_sub(stride + self.head);
        let kept = kept.max(1);
        self.start = context.saturating_sub(kept).max(self.head);
    }
}

/// The tokens in the drafter's cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    fed: Vec<DraftId>,
    window: Window,
}

/// Tokens that are still to be read before drafting.
pub(super) struct Pending {
    /// Tokens of the view that are not in the cache, at least the last one.
    pub(super) tokens: Vec<DraftId>,
    /// Number of tokens that the cache has room to draft after them.
    pub(super) room: usize,
}

impl Reading {
    /// Begins a new context, which keeps its first token in view if `keep_first`. The content of
    /// the cache is kept.
    pub(super) fn begin(&mut self, keep_first: bool) {
        let head = usize::from(keep_first);
        self.window = Window { head, start: head };
    }

    /// Records that the cache has been emptied.
    pub(super) fn forget(&mut self) {
        self.fed.clear();
    }

    /// Reads the context's view except the last token, if more than `few` tokens before that are
    /// unread; otherwise these stay pending with it. `wanted` is the number of tokens to be
    /// drafted. Errors name the `round`.
    pub(super) fn catch_up(
        &mut self,
        drafter: &mut impl LanguageModel,
        context: &[DraftId],
        (wanted, few): (usize, usize),
        round: usize,
    ) -> Result<Pending, SpecError> {
        self.window.fit(context.len(), drafter.max_len(), wanted);
        let view = self.roll_back(drafter, context, round)?;
        let last = view.len().saturating_sub(1);
        if last - self.fed.len() > few {
            let tokens = &view[self.fed.len()..last];
            let read = drafter.prefill(&raw_ids(tokens));
            read.map_err(SpecError::model(Role::Drafter, round))?;
            self.fed.extend_from_slice(tokens);
        }
        Ok(Pending {
            tokens: view[self.fed.len()..].to_vec(),
            room: drafter
                .max_len()
                .saturating_add(1)
                .saturating_sub(view.len()),
        })
    }

    /// Records tokens that the drafter was fed.
    pub(super) fn fed(&mut self, tokens: impl Iterator<Item = DraftId>) {
        self.fed.extend(tokens);
    }

    /// Keeps the longest common prefix of the tokens that the drafter was fed and the context's
    /// view. At least one token is always left to feed, because its logits start the next draft.
    /// Returns the view.
    pub(super) fn roll_back(
        &mut self,
        drafter: &mut impl LanguageModel,
        context: &[DraftId],
        round: usize,
    ) -> Result<Vec<DraftId>, SpecError> {
        check_len(Role::Drafter, round, drafter.len(), self.fed.len())?;
        let view = self.window.of(context);
        let common = common_prefix(&self.fed, &view[..view.len().saturating_sub(1)]);
        self.fed.truncate(common);
        drafter.truncate(common);
        check_len(Role::Drafter, round, drafter.len(), common)?;
        Ok(view)
    }
}

pub(super) fn check_len(
    role: Role,
    round: usize,
    found: usize,
    expected: usize,
) -> Result<(), SpecError> {
    if found == expected {
        Ok(())
    } else {
        Err(SpecError::CacheDrift {
            round,
            role,
            found,
            expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_in_strides_and_leaves_room() {
        for (head, max_len) in [(0, 1), (1, 1), (0, 2), (1, 5), (0, 16), (1, 64), (1, 2048)] {
            let mut window = Window { head, start: head };
            let mut moves = 0;
            let tokens = 3 * max_len + 50;
            for context in 1..tokens {
                let before = window;
                window.fit(context, max_len, 6);
                moves += usize::from(window != before);
                let len = window.len(context);
                assert!(len <= max_len + head, "{len} of {max_len}");
                assert!(len >= 1 && window.start < context.max(1) + head);
                assert!(2 * len >= max_len.min(context), "{len} of {max_len}");
            }
            let most = (tokens * 10).div_ceil(max_len) + 1;
            assert!(moves <= most.min(tokens), "{moves} moves, {max_len}");
        }
    }

    #[test]
    fn what_fits_is_read_whole() {
        let mut window = Window { head: 1, start: 1 };
        let context: Vec<DraftId> = (0..20).map(DraftId).collect();
        window.fit(context.len(), 32, 4);
        assert_eq!(window.of(&context), context);
        window.fit(context.len(), 16, 4);
        let view = window.of(&context);
        assert_eq!((view[0], view[1], view.len()), (DraftId(0), DraftId(8), 13));
    }
}
