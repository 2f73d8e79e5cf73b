//! Tokenisation by the pipeline of the `tokenizers` library, with the end of every token in the
//! text.
//!
//! Whole texts go through the library as they are. Text inside other text (tokens that a target has
//! just emitted) goes through the same stages without the dummy prefix.

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};

use serde::Deserialize;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::{
    AddedVocabulary, DecoderWrapper, Encoding, Model, ModelWrapper, NormalizedString,
    NormalizerWrapper, OffsetReferential, OffsetType, PostProcessorWrapper, PreTokenizedString,
    PreTokenizer, PreTokenizerWrapper, Token, TokenizerBuilder, TokenizerImpl,
};

use crate::error::AlignError;
use crate::file::{AddedToken, TokenizerFile};
use crate::joints::Joints;
use crate::prefix::{Bare, Opening, Prefix, looks_far_ahead};
use crate::spelling::{Spelling, char_of_byte};
use crate::tables::{Kind, Tables};

type Library = TokenizerImpl<
    ModelWrapper,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// Usual upper bound of the parts of a long piece, in bytes: such a piece is cut at the first end
/// of a token after half of this.
const LONG_PIECE: usize = 128;

/// Tokens of a part of a text.
#[derive(Clone, Default, Debug)]
pub(crate) struct Segmentation {
    pub(crate) ids: Vec<u32>,
    /// Offset in bytes of the end of each token, ascending. Tokens whose bytes differ from the
    /// text's (a normalised letter, an unknown token) end together, at the end of the text that
    /// they stand for.
    pub(crate) ends: Vec<usize>,
    pub(crate) pieces: Vec<PieceEnd>,
}

/// End of a piece, in bytes and in tokens from the start of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PieceEnd {
    pub(crate) byte: usize,
    pub(crate) token: usize,
    /// True for a cut inside a piece that is too long. The model may merge across such a cut.
    pub(crate) forced: bool,
}

impl Segmentation {
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.ends.clear();
        self.pieces.clear();
    }

    fn end_piece(&mut self, forced: bool) {
        let (byte, token) = (self.ends.last().copied().unwrap_or(0), self.ids.len());
        if self.pieces.last().is_none_or(|last| last.token < token) {
            self.pieces.push(PieceEnd {
                byte,
                token,
                forced,
            });
        }
    }

    fn push(&mut self, id: u32, end: usize) {
        self.ids.push(id);
        self.ends.push(end);
    }

    /// Length in bytes of the text that each token stands for.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        let mut before = 0;
        let length = |end: &usize| *end - std::mem::replace(&mut before, *end);
        self.ends.iter().map(length).collect()
    }
}

pub(crate) struct Pipeline {
    pub(crate) tables: Tables,
    pub(crate) spelling: Spelling,
    library: Library,
    /// Added tokens without the special ones, which are not looked up in text.
    text_only: AddedVocabulary,
    bare_normalizer: Option<NormalizerWrapper>,
    bare_pre_tokenizer: Option<PreTokenizerWrapper>,
    pub(crate) prefix: Prefix,
    /// True if text can hold added tokens that are not special.
    added_text: bool,
    /// Possible cuts inside pieces, if the vocabulary makes long ones.
    joints: Option<Joints>,
    /// True if a cut is final only once white space follows.
    pub(crate) far_sighted: bool,
    unknown: Option<u32>,
}

/// Stages of the pipeline that a part of a text goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stages {
    Whole,
    Bare,
}

impl Pipeline {
    pub(crate) fn new(file: &TokenizerFile, tables: Tables) -> Result<Self, AlignError> {
        let bare = Bare::of(&file.raw.normalizer, &file.raw.pre_tokenizer)
            .map_err(|what| file.unsupported("pre_tokenizer", what))?;
        let added = &file.raw.added_tokens;
        let library = library(file, added)?;
        // A marker in a model's text is ordinary text for a model that has no row for that token.
        let rowed = added.iter().filter(|token| file.has_row(token.id));
        let rowed: Vec<AddedToken> = rowed.cloned().collect();
        let mut text_only = match rowed.len() == added.len() {
            true => library.get_added_vocabulary().clone(),
            false => self::library(file, &rowed)?.get_added_vocabulary().clone(),
        };
        text_only.set_encode_special_tokens(true);
        let unknown = file.unk.as_ref().and_then(|unk| {
            let token = file.tokens.iter().find(|(content, _)| content == unk)?;
            Some(token.1)
        });
        Ok(Self {
            tables,
            spelling: file.spelling,
            text_only,
            bare_normalizer: file.component("normalizer", &bare.normalizer)?,
            bare_pre_tokenizer: file.component("pre_tokenizer", &bare.pre_tokenizer)?,
            prefix: bare.prefix,
            added_text: added.iter().any(|token| !token.special),
            joints: (file.spelling != Spelling::ByteLevel).then(|| Joints::new(file)),
            far_sighted: looks_far_ahead(&file.raw.pre_tokenizer),
            unknown,
            library,
        })
    }

    /// The library's ids of a whole text, in which added tokens are found by their names. With
    /// `frame`, they include the tokens that the post-processor adds (the beginning of text).
    pub(crate) fn whole(&self, text: &str, frame: bool) -> Result<Vec<u32>, AlignError> {
        let encoding = self.library.encode_fast(text, frame);
        Ok(encoding.map_err(|e| self.fault(&*e))?.get_ids().to_vec())
    }

    /// As [`Pipeline::whole`], except that the name of a special token is ordinary text if it
    /// touches one of `bodies`.
    pub(crate) fn whole_with_text(
        &self,
        text: &str,
        bodies: &[Range<usize>],
        frame: bool,
    ) -> Result<Vec<u32>, AlignError> {
        let mut ids = Vec::new();
        let mut opening = Opening::Text;
        let mut at = 0;
        let end = (text.len()..text.len(), None);
        for (range, id) in self.markers(text, bodies).into_iter().chain([end]) {
            for (_, encoding) in self.encodings(&text[at..range.start], opening)? {
                ids.extend_from_slice(encoding.get_ids());
            }
            ids.extend(id);
            (at, opening) = (range.end, Opening::Added);
        }
        if frame {
            let tokens = ids.iter().map(|id| Token::new(*id, String::new(), (0, 0)));
            let encoding = Encoding::from_tokens(tokens.collect(), 0);
            let framed = self.library.post_process(encoding, None, true);
            ids = framed.map_err(|e| self.fault(&*e))?.get_ids().to_vec();
        }
        Ok(ids)
    }

    /// The added tokens that the library finds in `text` before normalising it, without special
    /// ones that touch one of `bodies`.
    fn markers(&self, text: &str, bodies: &[Range<usize>]) -> Vec<(Range<usize>, Option<u32>)> {
        let added = self.library.get_added_vocabulary();
        let found = added.extract_and_normalize(None::<&NormalizerWrapper>, text);
        let splits = found.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let markers = splits.into_iter().filter_map(|(_, (start, end), tokens)| {
            let token = tokens.as_ref()?.first()?;
            let info = added.get_added_tokens_decoder().get(&token.id)?;
            // A marker absorbs the spaces around it, which may be the body's.
            let spaces = match info.lstrip {
                true => token.value.len() - token.value.trim_start().len(),
                false => 0,
            };
            let name = start + spaces..start + spaces + info.content.len();
            let touches = |body: &Range<usize>| name.start < body.end && name.end > body.start;
            let touches = bodies.iter().any(touches);
            let kept = if info.special {
                !touches
            } else {
                !info.normalized
            };
            kept.then_some((start..end, Some(token.id)))
        });
        markers.collect()
    }

    /// Appends the tokens of `bytes`. Names of special tokens are ordinary text.
    pub(crate) fn encode(
        &self,
        bytes: &[u8],
        opening: Opening,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        let mut opening = opening;
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            for (start, encoding) in self.encodings(chunk.valid(), opening)? {
                self.place(bytes, at + start, &encoding, out);
            }
            at += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                at += chunk.invalid().len();
                self.encode_fragment(chunk.invalid(), at, out)?;
                opening = Opening::Middle;
            }
        }
        Ok(())
    }

    /// The tokens of a part of a text, as one or two encodings with the offsets of their starts.
    fn encodings(
        &self,
        text: &str,
        opening: Opening,
    ) -> Result<Vec<(usize, Encoding)>, AlignError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        if self.prefix == Prefix::Never || self.prefix.applies(opening) {
            return Ok(vec![(0, self.run(text, Stages::Whole)?)]);
        }
        // Text after an added token has a dummy prefix again.
        let added = match self.prefix {
            Prefix::Always if self.added_text => self.first_added(text),
            _ => text.len(),
        };
        let mut parts = vec![(0, self.run(&text[..added], Stages::Bare)?)];
        if added < text.len() {
            parts.push((added, self.run(&text[added..], Stages::Whole)?));
        }
        Ok(parts)
    }

    /// Offset of the first added token that the library finds in text; the text's length if it
    /// finds none.
    fn first_added(&self, text: &str) -> usize {
        let found = self
            .text_only
            .extract_and_normalize(self.bare_normalizer.as_ref(), text);
        found
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .find(|(_, _, tokens)| tokens.is_some())
            .map_or(text.len(), |(_, (start, _), _)| start)
    }

    /// Runs the library on a text; names of special tokens are ordinary text.
    fn run(&self, text: &str, stages: Stages) -> Result<Encoding, AlignError> {
        let (normalizer, pre_tokenizer) = match stages {
            Stages::Whole => (
                self.library.get_normalizer(),
                self.library.get_pre_tokenizer(),
            ),
            Stages::Bare => (
                self.bare_normalizer.as_ref(),
                self.bare_pre_tokenizer.as_ref(),
            ),
        };
        let mut pieces: PreTokenizedString = self.text_only.extract_and_normalize(normalizer, text);
        let split = pre_tokenizer.map_or(Ok(()), |stage| stage.pre_tokenize(&mut pieces));
        let encoding = split
            .and_then(|()| pieces.tokenize(|piece| self.tokenize(piece)))
            .and_then(|()| pieces.into_encoding(None, 0, OffsetType::Byte));
        encoding.map_err(|e| self.fault(&*e))
    }

    /// The model's tokens of a piece. A BPE model skips characters that it does not know and counts
    /// offsets as if they were not there.
    fn tokenize(&self, piece: &NormalizedString) -> tokenizers::Result<Vec<Token>> {
        let text = piece.get();
        let mut tokens = self.library.get_model().tokenize(text)?;
        if tokens
            .last()
            .is_some_and(|last| last.offsets.1 != text.len())
        {
            let mut at = 0;
            for token in &mut tokens {
                // The model even merges across such characters, so a token is located character by
                // character.
                let mut start = None;
                for c in token.value.chars() {
                    if let Some(skipped) = text[at..].find(c) {
                        start.get_or_insert(at + skipped);
                        at += skipped + c.len_utf8();
                    }
                }
                token.offsets = (start.unwrap_or(at), at);
            }
        }
        Ok(tokens)
    }

    /// Appends the tokens of an encoding of the part of `bytes` that starts at `start`.
    fn place(&self, bytes: &[u8], start: usize, encoding: &Encoding, out: &mut Segmentation) {
        let (ids, offsets) = (encoding.get_ids(), encoding.get_offsets());
        let words = encoding.get_word_ids();
        let mut first = 0;
        while first < ids.len() {
            // Several tokens share characters of the text: the bytes of one character, or a
            // rewritten one.
            let done = out.ends.last().copied().unwrap_or(0);
            let mut end = offsets[first].1;
            let mut next = first + 1;
            while next < ids.len() && offsets[next].0 < end {
                end = end.max(offsets[next].1);
                next += 1;
            }
            let end = (start + end).clamp(done, bytes.len());
            self.place_group(&ids[first..next], &bytes[done..end], out);
            let cut = ids.get(next).is_none_or(|id| {
                words[next] != words[next - 1] || self.is_joint(ids[next - 1], *id)
            });
            if cut {
                out.end_piece(false);
            } else if out.ends.last().copied().unwrap_or(0)
                >= out.pieces.last().map_or(0, |piece| piece.byte) + LONG_PIECE / 2
            {
                out.end_piece(true);
            }
            first = next;
        }
    }

    /// Appends tokens that together stand for `text`.
    fn place_group(&self, ids: &[u32], text: &[u8], out: &mut Segmentation) {
        let mut at = out.ends.last().copied().unwrap_or(0);
        let end = at + text.len();
        if self.tables.spells(ids, text) {
            for id in ids {
                at += self.tables.bytes(*id).map_or(0, <[u8]>::len);
                out.push(*id, at);
            }
        } else if let Some((last, others)) = ids.split_last() {
            others.iter().for_each(|id| out.push(*id, at));
            out.push(*last, end);
        }
    }

    /// True if no token spans the boundary of two tokens of one piece.
    fn is_joint(&self, left: u32, right: u32) -> bool {
        let Some(joints) = &self.joints else {
            return false;
        };
        let tables = &self.tables;
        let kinds = (tables.kind(left), tables.kind(right));
        let edges = || {
            let left = tables.content(left)?.chars().next_back()?;
            Some((left, tables.content(right)?.chars().next()?))
        };
        match kinds {
            (Kind::Model, Kind::Model) => {
                edges().is_some_and(|(left, right)| !joints.joined(left, right))
            }
            // A character in byte tokens has no token of its own. Unknown characters may be joined.
            (Kind::Model | Kind::Byte, Kind::Model | Kind::Byte) => true,
            _ => false,
        }
    }

    /// Tokenises bytes that are not UTF-8, most often the start of a character whose end is still
    /// to come, as a piece that ends at `end`. A byte-level model merges them as it would inside
    /// the whole character. Bytes without a token become the unknown token, or nothing.
    fn encode_fragment(
        &self,
        bytes: &[u8],
        end: usize,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        let ids: Vec<u32> = if self.spelling == Spelling::ByteLevel {
            let mapped: String = bytes.iter().map(|byte| char_of_byte(*byte)).collect();
            let tokens = self.library.get_model().tokenize(&mapped);
            let tokens = tokens.map_err(|e| self.fault(&*e))?;
            tokens.iter().map(|token| token.id).collect()
        } else {
            let mut ids = Vec::new();
            match self.tables.spell_bytes(bytes, &mut ids) {
                true => ids,
                false => self.unknown.into_iter().collect(),
            }
        };
        let done = out.ends.last().copied().unwrap_or(0);
        if self.tables.spells(&ids, bytes) && done + bytes.len() == end {
            self.place_group(&ids, bytes, out);
        } else if let Some((last, others)) = ids.split_last() {
            others.iter().for_each(|id| out.push(*id, done));
            out.push(*last, end);
        }
        out.end_piece(false);
        Ok(())
    }

    fn fault(&self, error: &(dyn std::error::Error + Send + Sync)) -> AlignError {
        AlignError::Tokenise {
            file: self.tables.file.clone(),
            message: error.to_string(),
        }
    }
}

/// The library's tokenizer of a checked file: everything but truncation, padding and dropout.
fn library(file: &TokenizerFile, added: &[AddedToken]) -> Result<Library, AlignError> {
    let mut library = TokenizerBuilder::new()
        .with_model(model(file)?)
        .with_normalizer(file.component("normalizer", &file.raw.normalizer)?)
        .with_pre_tokenizer(file.component("pre_tokenizer", &file.raw.pre_tokenizer)?)
        .with_post_processor(file.component("post_processor", &file.raw.post_processor)?)
        .with_decoder(None)
        .build()
        .map_err(|error| file.key("model", error.to_string()))?;
    let tokens = added.iter().map(|token| tokenizers::AddedToken {
        content: token.content.clone(),
        single_word: token.single_word,
        lstrip: token.lstrip,
        rstrip: token.rstrip,
        normalized: token.normalized.unwrap_or(!token.special),
        special: token.special,
    });
    library
        .add_tokens(tokens)
        .map_err(|error| file.key("added_tokens", error.to_string()))?;
    for (i, token) in added.iter().enumerate() {
        match library.token_to_id(&token.content) {
            Some(id) if id != token.id => {
                return Err(file.key(
                    format!("added_tokens[{i}].id"),
                    format!(
                        "is {}, but the tokenizers library numbers added tokens without holes: {id}",
                        token.id
                    ),
                ));
            }
            _ => {}
        }
    }
    library.set_encode_special_tokens(file.splits_specials);
    // If a post-processor names a token that it does not define, the library indexes out of bounds
    // on any text.
    let framed = panic::catch_unwind(AssertUnwindSafe(|| library.encode_fast("", true).is_ok()));
    match framed {
        Ok(_) => Ok(library),
        Err(_) => Err(file.key(
            "post_processor",
            "names a sequence or a token that it does not hold".to_owned(),
        )),
    }
}

/// The `tokenizers` model of a checked file.
fn model(file: &TokenizerFile) -> Result<ModelWrapper, AlignError> {
    let section = &file.raw.model;
    let model = if section["merges"].is_array() {
        BPE::deserialize(section).map(ModelWrapper::BPE)
    } else {
        Unigram::deserialize(section).map(ModelWrapper::Unigram)
    };
    model.map_err(|error| file.key("model", error.to_string()))
}
