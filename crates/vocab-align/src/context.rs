//! The drafter's view of the target's text, kept up to date token by token.

use std::sync::Arc;

use crate::alignment::Alignment;
use crate::error::AlignError;
use crate::ids::{DraftId, TargetId, TokenId};
use crate::pipeline::{PieceEnd, Segmentation};
use crate::prefix::Opening;
use crate::vocabulary::Vocabulary;

/// Number of pieces at the end of the window that are kept open.
///
/// In the patterns of GPT-2, Llama-3, Qwen2 and similar tokenizers the last match may grow or
/// split, and a run of spaces before it may join it if a line break follows. A vocabulary without
/// pre-tokenizer is cut between characters that are neighbours in no token; such a cut is final at
/// once. An unfinished UTF-8 character makes one more piece. The first piece of the window is its
/// margin and the next one its guard (see [`DraftContext`]).
const OPEN_PIECES: usize = 5;

/// Number of bytes that are also kept open, for pre-tokenizers with very short pieces.
const OPEN_BYTES: usize = 16;

/// Number of bytes kept open after a cut inside a piece that is too long.
const OPEN_BYTES_FORCED: usize = 256;

/// The drafter's context: a fixed prompt and the response in the drafter's canonical tokens
/// (the "translate back" step of Algorithm 1).
///
/// The response's tokens are those of encoding its text as a whole, as the drafter's own library
/// does. Text is normalised, gets a dummy prefix if the tokenizer writes one, and becomes an
/// unknown token or nothing if the drafter has no token for it. [`lengths`](Self::lengths) gives
/// the number of bytes of the target's tokens that each draft token stands for.
///
/// Special target tokens become the draft token of their role. If there is none, the name of a
/// [marker](Vocabulary::marker) is tokenised as text. Other special tokens (padding, unknown) and
/// ids without a token, such as padding rows of the target's head, contribute nothing. The text
/// before and after a special token is tokenised separately.
///
/// A push re-tokenises a *window*: the pushed text and the last few pieces (words) before it. The
/// window's first piece is a margin, which gives the next ones their left context; its own tokens
/// are ignored. The piece after it is the guard. If the guard's tokens change, the new text has
/// moved earlier cuts, and the window grows to the left until its guard stays the same, at most to
/// the start of the response.
#[derive(Clone, Debug)]
pub struct DraftContext {
    draft: Vocabulary<DraftId>,
    target: Vocabulary<TargetId>,
    alignment: Arc<Alignment>,
    ids: Vec<DraftId>,
    /// Number of bytes of the response that each of its tokens stands for.
    lengths: Vec<usize>,
    section: Section,
    grown: usize,
    scratch: Segmentation,
}

/// Text between two special tokens, the last one of the response.
#[derive(Clone, Debug, Default)]
struct Section {
    text: Vec<u8>,
    /// Index in the response of its first token.
    first: usize,
    /// Number of bytes before the section that no token stands for. They count as part of its first
    /// token.
    carried: usize,
    /// The kind of text before it in the drafter's context.
    opening: Opening,
    /// True if its first space is the target's dummy prefix, which is not text.
    dummy: bool,
    /// True if the special token before it absorbs white space.
    stripped: bool,
    /// Ends of its pieces.
    pieces: Vec<PieceEnd>,
    /// Number of pieces before the window.
    closed: usize,
}

impl Section {
    /// Start of the window.
    fn window(&self) -> PieceEnd {
        self.end_of(self.closed)
    }

    /// End of the first `pieces` pieces.
    fn end_of(&self, pieces: usize) -> PieceEnd {
        let last = pieces.checked_sub(1).and_then(|i| self.pieces.get(i));
        last.copied().unwrap_or_default()
    }

    /// Number of bytes after its last token.
    fn unspelled(&self) -> usize {
        match self.pieces.last() {
            Some(last) => self.text.len() - last.byte,
            None => self.carried + self.text.len(),
        }
    }

    /// Number of bytes at its start that are not text for the drafter.
    fn skipped(&self) -> usize {
        let dummy = usize::from(self.dummy && self.text.first() == Some(&b' '));
        let rest = &self.text[dummy..];
        match (self.stripped, rest.utf8_chunks().next()) {
            (true, Some(chunk)) => {
                let text = chunk.valid();
                dummy + text.len() - text.trim_start().len()
            }
            _ => dummy,
        }
    }
}

impl DraftContext {
    /// An empty context.
    ///
    /// # Errors
    /// [`AlignError::StaleAlignment`] for an alignment of other vocabularies.
    pub fn new(
        draft: Vocabulary<DraftId>,
        target: Vocabulary<TargetId>,
        alignment: Arc<Alignment>,
    ) -> Result<Self, AlignError> {
        alignment.check(&draft, &target)?;
        let mut context = Self {
            draft,
            target,
            alignment,
            ids: Vec::new(),
            lengths: Vec::new(),
            section: Section::default(),
            grown: 0,
            scratch: Segmentation::default(),
        };
        context.start(&[], &[]);
        Ok(context)
    }

    /// Begins a new response after a prompt, which is given in both models' tokens. The draft
    /// tokens are never re-tokenised; the target's only determine the opening of the response.
    pub fn start(&mut self, draft: &[DraftId], target: &[TargetId]) {
        self.ids.clear();
        self.ids.extend_from_slice(draft);
        self.lengths.clear();
        let opening = self.draft.opening_after(draft);
        let target = self.target.opening_after(target);
        self.open(opening, target, 0);
    }

    /// Appends target tokens. Returns the number of leading draft tokens that stayed the same: the
    /// length to which the drafter's KV cache is rolled back.
    ///
    /// # Errors
    /// [`AlignError::Tokenise`] if the drafter's tokenizer refuses the text.
    pub fn push(&mut self, tokens: &[TargetId]) -> Result<usize, AlignError> {
        let mut unchanged = self.ids.len();
        for id in tokens {
            if let Some(bytes) = self.target.bytes(*id) {
                self.section.text.extend_from_slice(bytes);
            } else if let Some(counterpart) = self.alignment.special_of(*id) {
                let (lstrip, _) = self.draft.strips(counterpart);
                unchanged = unchanged.min(self.retokenise(lstrip)?);
                self.ids.push(counterpart);
                // Bytes before it that no token stands for are counted with it.
                self.lengths.push(self.section.unspelled());
                let opening = self.draft.opening_after(&self.ids);
                self.open(opening, Opening::Added, 0);
            } else if let Some(name) = self.target.marker(*id) {
                let name = name.to_owned();
                unchanged = unchanged.min(self.retokenise(false)?);
                self.section = Section {
                    text: name.into_bytes(),
                    first: self.lengths.len(),
                    carried: self.section.unspelled(),
                    ..Section::default()
                };
                self.retokenise(false)?;
                self.open(Opening::Middle, Opening::Added, self.section.unspelled());
            }
        }
        unchanged = unchanged.min(self.retokenise(false)?);
        self.slide();
        Ok(unchanged)
    }

    /// The whole context: prompt and response.
    pub fn ids(&self) -> &[DraftId] {
        &self.ids
    }

    /// Number of bytes of the pushed tokens, as counted by [`Alignment::spelled_lengths`], that
    /// each token after the prompt stands for. It may differ from the draft token's own length: see
    /// [`Vocabulary::encode_with_lengths`].
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Number of bytes at the end of the response that the next push may tokenise differently.
    pub fn open_bytes(&self) -> usize {
        self.section.text.len() - self.section.window().byte
    }

    /// Number of times that a window had to grow, because text moved a cut further back than
    /// expected.
    pub fn grown_windows(&self) -> usize {
        self.grown
    }

    /// Begins a section; nothing before it changes any more.
    fn open(&mut self, opening: Opening, target: Opening, carried: usize) {
        self.section = Section {
            first: self.lengths.len(),
            carried,
            opening,
            // A space that opens the target's text by rule is not text if the drafter's text opens
            // here too.
            dummy: opening != Opening::Middle && self.target.prefixes(target),
            stripped: match (opening, self.ids.last()) {
                (Opening::Added, Some(last)) => self.draft.strips(*last).1,
                _ => false,
            },
            ..Section::default()
        };
    }

    /// Replaces the window's tokens by those of its bytes, with white space at its end removed if
    /// `trimmed`. Returns the number of tokens of the context that stayed.
    fn retokenise(&mut self, trimmed: bool) -> Result<usize, AlignError> {
        loop {
            self.segment_window(trimmed)?;
            match self.guarded() {
                Some(from) => return Ok(self.replace(from)),
                None => self.grow(),
            }
        }
    }

    fn segment_window(&mut self, trimmed: bool) -> Result<(), AlignError> {
        let section = &self.section;
        let start = section.window().byte;
        let (skipped, opening) = match start {
            0 => (section.skipped(), section.opening),
            _ => (0, Opening::Middle),
        };
        let mut text = &section.text[start + skipped..];
        if trimmed && let Ok(valid) = std::str::from_utf8(text) {
            text = valid.trim_end().as_bytes();
        }
        self.draft.segment(text, opening, &mut self.scratch)?;
        let shift = start + skipped;
        self.scratch.ends.iter_mut().for_each(|end| *end += shift);
        for piece in &mut self.scratch.pieces {
            piece.byte += shift;
        }
        Ok(())
    }

    /// The first token of the new segmentation that enters the context, and the first token of the
    /// response that it replaces. `None` if the margin's end or the guard changed.
    fn guarded(&self) -> Option<(usize, usize)> {
        let section = &self.section;
        if section.closed == 0 {
            return Some((0, section.first));
        }
        let margin = section.pieces.get(section.closed)?;
        let guard = section.pieces.get(section.closed + 1)?;
        let new = &self.scratch;
        let same_end = new.pieces.iter().find(|piece| piece.byte == margin.byte);
        let behind_margin = same_end?.token;
        let first = self.prompt_len() + section.first;
        let old = &self.ids[first + margin.token..first + guard.token];
        let guarded = behind_margin..behind_margin + old.len();
        let mut same = new.ids.get(guarded.clone())?.iter().zip(old);
        let held = same.all(|(new, old)| *new == old.get())
            && new.ends[..guarded.end].last() == Some(&guard.byte);
        held.then_some((behind_margin, section.first + margin.token))
    }

    /// Doubles the window.
    fn grow(&mut self) {
        self.grown += 1;
        let section = &mut self.section;
        let start = section.window().byte;
        let wanted = start.saturating_sub(section.text.len() - start);
        section.closed = section.pieces[..section.closed - 1]
            .iter()
            .rposition(|piece| piece.byte <= wanted)
            .map_or(0, |i| i + 1);
    }

    /// Replaces the response's tokens from `old` on by the new ones from `new` on. Returns the
    /// number of tokens of the context that stayed.
    fn replace(&mut self, (new, old): (usize, usize)) -> usize {
        let prompt = self.prompt_len();
        let (section, scratch) = (&mut self.section, &self.scratch);
        let common = self.ids[prompt + old..]
            .iter()
            .zip(&scratch.ids[new..])
            .take_while(|(old, new)| old.get() == **new)
            .count();
        self.ids.truncate(prompt + old + common);
        let added = scratch.ids[new + common..].iter().map(|id| DraftId(*id));
        self.ids.extend(added);

        let kept = if section.closed == 0 {
            0
        } else {
            section.closed + 1
        };
        let mut before = section.end_of(kept).byte;
        let mut carried = if kept == 0 { section.carried } else { 0 };
        self.lengths.truncate(old);
        for end in &scratch.ends[new..] {
            self.lengths
                .push(end - before + std::mem::take(&mut carried));
            before = *end;
        }
        section.pieces.truncate(kept);
        for piece in scratch.pieces.iter().filter(|piece| piece.token > new) {
            section.pieces.push(PieceEnd {
                token: old - section.first + piece.token - new,
                ..*piece
            });
        }
        prompt + old + common
    }

    /// Closes the pieces that later text cannot change.
    fn slide(&mut self) {
        let far_sighted = self.draft.far_sighted();
        let section = &mut self.section;
        let Some(last) = section.pieces.len().checked_sub(OPEN_PIECES) else {
            return;
        };
        let closed = (0..last).rposition(|i| {
            let piece = section.pieces[i];
            let enough = if piece.forced {
                OPEN_BYTES_FORCED
            } else {
                OPEN_BYTES
            };
            let guard = section.end_of(i + 3).byte;
            let bounded = || section.text[guard..].iter().any(u8::is_ascii_whitespace);
            section.text.len() - piece.byte >= enough && (!far_sighted || bounded())
        });
        if let Some(last) = closed {
            section.closed = section.closed.max(last + 1);
        }
    }

    fn prompt_len(&self) -> usize {
        self.ids.len() - self.lengths.len()
    }
}
