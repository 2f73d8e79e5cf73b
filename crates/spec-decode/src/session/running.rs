//! The response in progress.

use std::collections::BTreeSet;

use vocab_align::{TargetId, TokenId};

use super::Finish;
use super::reading::Reading;
use crate::{Chance, Purpose, StreamName};

/// The response in progress.
pub(super) struct Running {
    /// The session's number at the beginning of the round.
    pub(super) serial: u64,
    /// Length of the prompt in draft tokens.
    pub(super) prompt_draft: usize,
    /// The prompt in target tokens.
    pub(super) prompt: Vec<TargetId>,
    pub(super) response: Vec<TargetId>,
    /// Number of the response's last tokens that are not in the draft context yet.
    pub(super) untranslated: usize,
    /// Distinct tokens of prompt and response, if there is a repetition penalty.
    pub(super) seen: Option<BTreeSet<TargetId>>,
    /// The last token, which is not in the target's cache yet.
    pub(super) pending: TargetId,
    /// Tokens that the drafter has read.
    pub(super) reading: Reading,
    pub(super) round: usize,
    /// Generation of the n-gram cache at the beginning of the round; `None` without a cache.
    pub(super) cache: Option<u64>,
    pub(super) finish: Option<Finish>,
    pub(super) mined: Mined,
    pub(super) draft_dice: Box<dyn Chance + Send>,
    pub(super) verify_dice: Box<dyn Chance + Send>,
}

/// End of the mined part of the response: a byte offset common to both tokenisations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mined {
    /// Number of draft tokens after the prompt.
    pub(super) draft: usize,
    /// Number of target tokens of the response.
    pub(super) target: usize,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("round", &self.round)
            .field("response", &self.response)
            .field("finish", &self.finish)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// A response that ended before it began.
    pub(super) fn ended() -> Self {
        let dice = || Box::new(StreamName::new(0, 0).dice(Purpose::Plain));
        Self {
            serial: 0,
            prompt_draft: 0,
            prompt: Vec::new(),
            response: Vec::new(),
            untranslated: 0,
            seen: None,
            pending: TargetId::new(0),
            reading: Reading::default(),
            round: 0,
            cache: None,
            finish: Some(Finish::MaxNewTokens),
            mined: Mined::default(),
            draft_dice: dice(),
            verify_dice: dice(),
        }
    }

    /// Reason why the response ends with its present tokens, if it does. `room` is the number of
    /// tokens that the target's cache has room for.
    pub(super) fn finish_of(
        &self,
        stop: &BTreeSet<TargetId>,
        max_new_tokens: usize,
        room: usize,
    ) -> Option<Finish> {
        let last = self.response.last();
        if let Some(end) = last.filter(|last| stop.contains(*last)) {
            Some(Finish::Stop(*end))
        } else if self.response.len() >= max_new_tokens {
            Some(Finish::MaxNewTokens)
        } else {
            (room == 0).then_some(Finish::ContextFull)
        }
    }
}
