//! The drafter's view of the target's text, kept up to date token by token.

use std::sync::Arc;

use crate::alignment::Alignment;
use crate::encode::{PieceEnd, Segmentation};
use crate::error::AlignError;
use crate::ids::{DraftId, TargetId, TokenId};
use crate::vocabulary::Vocabulary;

/// Pieces at the end of the window that later text may still change.
///
/// A pre-tokenizer's cut is final once the pattern has matched past it without looking back. In
/// the patterns of GPT-2, Llama-3, Qwen2 and their kin the last match may grow or split, and a
/// run of spaces before it may join it when a line break follows; nothing earlier moves. A
/// vocabulary without pre-tokenizer is cut between characters that are neighbours in no token,
/// which is final at once. An unfinished UTF-8 character makes one more piece, and one is spare.
const OPEN_PIECES: usize = 4;

/// Bytes kept open besides, for pre-tokenizers with very short pieces.
const OPEN_BYTES: usize = 16;

/// A window longer than this, which takes a piece of that length (a run of letters or CJK without
/// any cut), is shortened inside the piece.
const MAX_WINDOW: usize = 512;

/// The drafter's context: a fixed prompt and the response in the drafter's canonical tokens
/// (the "translate back" step of Algorithm 1).
///
/// Invariant: the bytes of [`ids`](Self::ids) are those of the prompt and of all pushed tokens,
/// at all times, even where a target token ends inside a UTF-8 character. A marker without a
/// counterpart (below) contributes its name.
///
/// The tokens are those of encoding the response as a whole, provided no cut inside a piece longer
/// than 512 bytes moved one. Special target tokens become the draft token of their role. Where there
/// is none, a [marker](Vocabulary::marker) is spelled out in the drafter's tokens for its name, and
/// any other (padding, unknown) contributes nothing. The text before and after is tokenised
/// separately.
///
/// Cost of a push: re-tokenising the window, which is the pushed text and the last few pieces
/// (words) before it, at most 512 bytes.
#[derive(Clone, Debug)]
pub struct DraftContext {
    draft: Vocabulary<DraftId>,
    target: Vocabulary<TargetId>,
    alignment: Arc<Alignment>,
    ids: Vec<DraftId>,
    /// Bytes that are re-tokenised by the next push: those of `ids[settled..]`.
    window: Vec<u8>,
    settled: usize,
    scratch: Segmentation,
}

impl DraftContext {
    /// An empty context.
    ///
    /// # Errors
    /// [`AlignError::StaleAlignment`] for an alignment of other vocabularies, and
    /// [`AlignError::Unspellable`] for a drafter that cannot spell every byte: it could not follow
    /// every target.
    pub fn new(
        draft: Vocabulary<DraftId>,
        target: Vocabulary<TargetId>,
        alignment: Arc<Alignment>,
    ) -> Result<Self, AlignError> {
        alignment.check(&draft, &target)?;
        if let Some(byte) = draft.missing_byte() {
            return Err(AlignError::Unspellable {
                file: draft.file().to_owned(),
                byte,
            });
        }
        Ok(Self {
            draft,
            target,
            alignment,
            ids: Vec::new(),
            window: Vec::new(),
            settled: 0,
            scratch: Segmentation::default(),
        })
    }

    /// Begins a new response after `prompt`, which is never re-tokenised.
    pub fn start(&mut self, prompt: &[DraftId]) {
        self.ids.clear();
        self.ids.extend_from_slice(prompt);
        self.settle();
    }

    /// Appends target tokens and returns how many leading draft tokens stayed as they were: the
    /// length to which the drafter's KV cache is rolled back.
    ///
    /// # Errors
    /// [`AlignError::UnknownId`] for an id outside the target's vocabulary; the context is
    /// unchanged then.
    pub fn push(&mut self, tokens: &[TargetId]) -> Result<usize, AlignError> {
        tokens.iter().try_for_each(|id| self.target.check_id(*id))?;
        let mut unchanged = self.ids.len();
        for id in tokens {
            match self.target.bytes(*id) {
                Some(bytes) => self.window.extend_from_slice(bytes),
                None => {
                    unchanged = unchanged.min(self.retokenise()?);
                    match self.alignment.special_of(*id) {
                        Some(counterpart) => self.ids.push(counterpart),
                        None => {
                            let name = self.target.marker(*id).unwrap_or_default();
                            self.ids.extend(self.draft.encode_with_specials(name)?);
                        }
                    }
                    self.settle();
                }
            }
        }
        unchanged = unchanged.min(self.retokenise()?);
        self.slide();
        Ok(unchanged)
    }

    /// The whole context: prompt and response.
    pub fn ids(&self) -> &[DraftId] {
        &self.ids
    }

    /// The bytes at the end of the context that the next push may tokenise differently.
    pub fn window(&self) -> &[u8] {
        &self.window
    }

    /// Closes the window: nothing before this point changes any more.
    fn settle(&mut self) {
        self.window.clear();
        self.settled = self.ids.len();
    }

    /// Replaces the window's tokens by those of its bytes; returns the common prefix's length.
    fn retokenise(&mut self) -> Result<usize, AlignError> {
        self.draft.segment(&self.window, &mut self.scratch)?;
        let old = self.ids[self.settled..].iter();
        let common = old
            .zip(&self.scratch.ids)
            .take_while(|(old, new)| old.get() == **new)
            .count();
        let unchanged = self.settled + common;
        self.ids.truncate(unchanged);
        self.ids
            .extend(self.scratch.ids[common..].iter().map(|id| DraftId(*id)));
        Ok(unchanged)
    }

    /// Shortens the window to the part that later text may change.
    fn slide(&mut self) {
        if let Some(end) = self.last_final_cut() {
            self.cut(end);
        }
        // What is left may still be one long piece.
        if let Some(end) = self.forced_cut() {
            self.cut(end);
        }
    }

    fn cut(&mut self, end: PieceEnd) {
        self.window.drain(..end.byte);
        self.settled += end.token;
    }

    /// The last piece boundary with enough pieces and bytes after it.
    fn last_final_cut(&self) -> Option<PieceEnd> {
        let pieces = &self.scratch.pieces;
        let closed = pieces.len().checked_sub(OPEN_PIECES)?;
        pieces[..closed]
            .iter()
            .rev()
            .find(|end| self.window.len() - end.byte >= OPEN_BYTES)
            .copied()
    }

    /// For a window that is too long: the first token boundary that leaves at most half of the
    /// limit and does not cut a character.
    fn forced_cut(&self) -> Option<PieceEnd> {
        let enough = self.window.len().checked_sub(MAX_WINDOW)? + MAX_WINDOW / 2;
        let mut byte = 0;
        for (i, id) in self.ids[self.settled..].iter().enumerate() {
            byte += self.draft.bytes(*id).map_or(0, <[u8]>::len);
            let in_character = self
                .window
                .get(byte)
                .is_some_and(|next| next & 0xC0 == 0x80);
            if byte >= enough && !in_character {
                return Some(PieceEnd { byte, token: i + 1 });
            }
        }
        None
    }
}
