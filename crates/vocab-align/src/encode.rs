//! Byte-exact encoding: the tokenizer's own pre-tokenizer and model, checked against the bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use tokenizers::{Model, ModelWrapper};

use crate::error::AlignError;
use crate::pieces::Splitter;
use crate::spelling::{SPACE_SIGN, Spelling, char_of_byte};
use crate::tables::Tables;

/// Tokens of a text with the boundaries of its independently tokenised pieces.
#[derive(Clone, Default, Debug)]
pub(crate) struct Segmentation {
    pub(crate) ids: Vec<u32>,
    pub(crate) pieces: Vec<PieceEnd>,
    splits: Vec<Range<usize>>,
    mapped: String,
}

/// Where a piece ends, in bytes and in tokens from the start of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PieceEnd {
    pub(crate) byte: usize,
    pub(crate) token: usize,
}

impl Segmentation {
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.pieces.clear();
    }

    fn end_piece(&mut self, bytes: usize) {
        let before = self.pieces.last().map_or(0, |end| end.byte);
        self.pieces.push(PieceEnd {
            byte: before + bytes,
            token: self.ids.len(),
        });
    }
}

pub(crate) struct Encoder {
    pub(crate) spelling: Spelling,
    splitter: Splitter,
    model: ModelWrapper,
    /// For every token, whether the model answers its own text with this token alone, as far as
    /// this has been asked. Most pieces are single tokens, so this spares most model runs.
    alone: Vec<AtomicU8>,
}

/// States of [`Encoder::alone`]. Races are harmless: every thread finds the same answer.
const UNKNOWN: u8 = 0;
const ALONE: u8 = 1;
const SEVERAL: u8 = 2;

impl Encoder {
    pub(crate) fn new(
        spelling: Spelling,
        splitter: Splitter,
        model: ModelWrapper,
        tokens: usize,
    ) -> Self {
        let alone = std::iter::repeat_with(|| AtomicU8::new(UNKNOWN))
            .take(tokens)
            .collect();
        Self {
            spelling,
            splitter,
            model,
            alone,
        }
    }

    /// Appends the tokens of `bytes`. Their bytes are `bytes`, whatever the model makes of them.
    pub(crate) fn encode(
        &self,
        tables: &Tables,
        bytes: &[u8],
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        for chunk in bytes.utf8_chunks() {
            self.encode_text(tables, chunk.valid(), out)?;
            if !chunk.invalid().is_empty() {
                self.encode_fragment(tables, chunk.invalid(), out)?;
            }
        }
        Ok(())
    }

    fn encode_text(
        &self,
        tables: &Tables,
        text: &str,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        if self.spelling != Spelling::SpaceSign {
            return self.encode_signed(tables, text, text, out);
        }
        // The sign itself is text too; as the model's input it would mean a space.
        for (i, part) in text.split(SPACE_SIGN).enumerate() {
            if i > 0 {
                let sign = SPACE_SIGN.to_string();
                tables.spell(&sign, &mut out.ids)?;
                out.end_piece(sign.len());
            }
            let signed = if part.contains(' ') {
                Cow::Owned(part.replace(' ', SPACE_SIGN.encode_utf8(&mut [0; 4])))
            } else {
                Cow::Borrowed(part)
            };
            self.encode_signed(tables, part, &signed, out)?;
        }
        Ok(())
    }

    /// Encodes `text`, whose spaces are signs in `signed`.
    fn encode_signed(
        &self,
        tables: &Tables,
        text: &str,
        signed: &str,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        let mut splits = std::mem::take(&mut out.splits);
        self.splitter.split(signed, &mut splits);
        let mut rest = text;
        let mut result = Ok(());
        for split in &splits {
            let input = &signed[split.clone()];
            let signs = match self.spelling {
                Spelling::SpaceSign => input.matches(SPACE_SIGN).count(),
                _ => 0,
            };
            let (piece, after) = rest.split_at(input.len() - signs * (SPACE_SIGN.len_utf8() - 1));
            rest = after;
            result = self.encode_piece(tables, piece, input, out);
            if result.is_err() {
                break;
            }
        }
        out.splits = splits;
        result
    }

    /// Encodes one piece, given as the model wants it in `input`.
    fn encode_piece(
        &self,
        tables: &Tables,
        piece: &str,
        input: &str,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        let whole = tables
            .find_bytes(piece.as_bytes())
            .and_then(|id| Some((id, self.alone.get(id as usize)?)));
        match whole {
            Some((id, state)) if state.load(Ordering::Relaxed) == ALONE => out.ids.push(id),
            _ => {
                let before = out.ids.len();
                self.encode_parts(tables, piece, input, out)?;
                if let Some((id, state)) = whole {
                    let alone = out.ids[before..] == [id];
                    state.store(if alone { ALONE } else { SEVERAL }, Ordering::Relaxed);
                }
            }
        }
        out.end_piece(piece.len());
        Ok(())
    }

    fn encode_parts(
        &self,
        tables: &Tables,
        piece: &str,
        input: &str,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        let exact = if self.spelling == Spelling::ByteLevel {
            self.encode_byte_level(tables, piece.as_bytes(), out)
        } else {
            self.run_model(tables, input, piece.as_bytes(), &mut out.ids)
        };
        if exact {
            Ok(())
        } else {
            tables.spell(piece, &mut out.ids)
        }
    }

    /// Bytes that are not UTF-8, most often the start of a character whose end is still to come.
    /// A byte-level model merges them as it would inside the whole character.
    fn encode_fragment(
        &self,
        tables: &Tables,
        bytes: &[u8],
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        let exact =
            self.spelling == Spelling::ByteLevel && self.encode_byte_level(tables, bytes, out);
        if !exact {
            tables.spell_bytes(bytes, &mut out.ids)?;
        }
        out.end_piece(bytes.len());
        Ok(())
    }

    fn encode_byte_level(&self, tables: &Tables, bytes: &[u8], out: &mut Segmentation) -> bool {
        out.mapped.clear();
        out.mapped
            .extend(bytes.iter().map(|byte| char_of_byte(*byte)));
        self.run_model(tables, &out.mapped, bytes, &mut out.ids)
    }

    /// Appends the model's tokens and returns true if they spell `expected`; otherwise appends
    /// nothing. They do not where the model answers with an unknown token, drops a character, or
    /// takes text for a special token of the same name.
    fn run_model(&self, tables: &Tables, input: &str, expected: &[u8], ids: &mut Vec<u32>) -> bool {
        let before = ids.len();
        let mut rest = expected;
        let spelled = self.model.tokenize(input).is_ok_and(|tokens| {
            tokens.iter().all(|token| {
                let after = tables
                    .bytes(token.id)
                    .and_then(|bytes| rest.strip_prefix(bytes));
                ids.push(token.id);
                after.map(|after| rest = after).is_some()
            })
        });
        let exact = spelled && rest.is_empty();
        if !exact {
            ids.truncate(before);
        }
        exact
    }
}
