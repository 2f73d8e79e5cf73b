//! `tokenizer.model`, SentencePiece's own file, as the `tokenizer.json` that transformers 5 would make
//! of it.
//!
//! The file is a message of Protocol Buffers. Three parts of it are read: the pieces with their
//! scores and kinds, the kind of model with the names of its special tokens, and the normalisation
//! of text.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::error::AlignError;
use crate::file::{AddedToken, RawFile};
use crate::prefix::{ENDS, SIGN};

/// SentencePiece's own file. It is read if there is no `tokenizer.json`.
pub(crate) const PIECES: &str = "tokenizer.model";

/// Largest number of pieces; a file with more counts as damaged.
const MOST_PIECES: usize = 1 << 22;

/// Kinds of pieces, as the format numbers them.
const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Kinds of models, as the format numbers them.
const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

/// Keys of `tokenizer_config.json` for the tokens that the file names itself, in the order of the
/// numbers of their fields.
const NAMED: [&str; 3] = ["unk_token", "bos_token", "eos_token"];

/// A value of a field.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Four([u8; 4]),
}

/// The fields of a message, in order, with their numbers.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next field; `None` at the end, an error where the message breaks off.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, ()> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint().ok_or(())?;
        let field = match key & 7 {
            0 => self.varint().map(Field::Number),
            1 => self.take(8).map(Field::Bytes),
            2 => {
                let len = self.varint().and_then(|len| usize::try_from(len).ok());
                len.and_then(|len| self.take(len)).map(Field::Bytes)
            }
            5 => self
                .take(4)
                .and_then(|four| four.try_into().ok())
                .map(Field::Four),
            _ => None,
        };
        Ok(Some((key >> 3, field.ok_or(())?)))
    }
}

struct Piece {
    text: String,
    score: f32,
    kind: u64,
}

/// The parts of the file that are read.
struct Model {
    pieces: Vec<Piece>,
    kind: u64,
    byte_fallback: bool,
    /// Ids and pieces of the tokens in [`NAMED`]. A negative id says that there is none.
    named: [(i32, String); 3],
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    remove_spaces: bool,
    escape_spaces: bool,
}

impl Model {
    fn read(bytes: &[u8]) -> Result<Self, ()> {
        let mut model = Self {
            pieces: Vec::new(),
            kind: UNIGRAM,
            byte_fallback: false,
            named: [(0, "<unk>"), (1, "<s>"), (2, "</s>")]
                .map(|(id, piece)| (id, piece.to_owned())),
            charsmap: Vec::new(),
            dummy_prefix: true,
            remove_spaces: true,
            escape_spaces: true,
        };
        let mut message = Message(bytes);
        while let Some((number, field)) = message.next()? {
            match (number, field) {
                (1, Field::Bytes(piece)) if model.pieces.len() < MOST_PIECES => {
                    model.pieces.push(Self::piece(piece)?);
                }
                (1, _) => return Err(()),
                (2, Field::Bytes(trainer)) => model.trainer(trainer)?,
                (3, Field::Bytes(normalizer)) => model.normalizer(normalizer)?,
                _ => {}
            }
        }
        match model.pieces.is_empty() {
            true => Err(()),
            false => Ok(model),
        }
    }

    fn piece(bytes: &[u8]) -> Result<Piece, ()> {
        let mut piece = Piece {
            text: String::new(),
            score: 0.0,
            kind: NORMAL,
        };
        let mut message = Message(bytes);
        while let Some((number, field)) = message.next()? {
            match (number, field) {
                (1, Field::Bytes(text)) => {
                    piece.text = String::from_utf8(text.to_vec()).map_err(|_| ())?;
                }
                (2, Field::Four(score)) => piece.score = f32::from_le_bytes(score),
                (3, Field::Number(kind)) => piece.kind = kind,
                _ => {}
            }
        }
        Ok(piece)
    }

    fn trainer(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut message = Message(bytes);
        while let Some((number, field)) = message.next()? {
            match (number, field) {
                (3, Field::Number(kind)) => self.kind = kind,
                (35, Field::Number(on)) => self.byte_fallback = on != 0,
                // An int32, which a negative id fills to 64 bits.
                (40..=42, Field::Number(id)) => self.named[number as usize - 40].0 = id as i32,
                (45..=47, Field::Bytes(text)) if !text.is_empty() => {
                    let text = String::from_utf8(text.to_vec()).map_err(|_| ())?;
                    self.named[number as usize - 45].1 = text;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut message = Message(bytes);
        while let Some((number, field)) = message.next()? {
            match (number, field) {
                (2, Field::Bytes(map)) => self.charsmap = map.to_vec(),
                (3, Field::Number(on)) => self.dummy_prefix = on != 0,
                (4, Field::Number(on)) => self.remove_spaces = on != 0,
                (5, Field::Number(on)) => self.escape_spaces = on != 0,
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives pieces the names of the tokens that other files list with their ids, except names that
    /// a piece which is not listed has.
    fn rename(&mut self, names: &BTreeMap<u32, String>) {
        let free: Vec<(&u32, &String)> = {
            let pieces = self.pieces.iter().enumerate();
            let kept = pieces.filter(|(id, _)| !names.contains_key(&(*id as u32)));
            let kept: HashSet<&str> = kept.map(|(_, piece)| piece.text.as_str()).collect();
            let free = names
                .iter()
                .filter(|(_, name)| !kept.contains(name.as_str()));
            free.collect()
        };
        for (id, name) in free {
            if let Some(piece) = self.pieces.get_mut(*id as usize) {
                piece.text.clone_from(name);
            }
        }
    }

    fn vocabulary(&self) -> Map<String, Value> {
        let each = self.pieces.iter().enumerate();
        each.map(|(id, piece)| (piece.text.clone(), id.into()))
            .collect()
    }

    /// A `model` section whose merges follow the order of the pieces, as the tokenizer classes
    /// expect.
    fn ordered(&self) -> Value {
        let len = |text: &str| text.chars().count();
        let texts = self.pieces.iter().map(|piece| piece.text.as_str());
        let rank = |id: usize, [left, right]: [&str; 2]| (id, len(left), len(right));
        let merges = merges(texts.enumerate(), rank);
        json!({
            "type": "BPE", "vocab": self.vocabulary(), "merges": merges, "unk_token": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
        })
    }

    /// A `model` section that tokenises as SentencePiece does.
    fn own(&self) -> Value {
        let [(unknown, unknown_piece), ..] = &self.named;
        if self.kind == UNIGRAM {
            let each = self.pieces.iter();
            let vocab = each.map(|piece| json!([piece.text, f64::from(piece.score)]));
            return json!({
                "type": "Unigram", "vocab": vocab.collect::<Vec<_>>(), "unk_id": unknown,
                "byte_fallback": self.byte_fallback,
            });
        }
        let pieces = self.pieces.iter().enumerate();
        let normal = pieces.filter(|(_, piece)| piece.kind == NORMAL);
        let texts = normal.map(|(id, piece)| (id, piece.text.as_str()));
        let merges = merges_by_score(texts, |id| self.pieces[id].score);
        json!({
            "type": "BPE", "vocab": self.vocabulary(), "merges": merges,
            "unk_token": unknown_piece, "fuse_unk": true, "byte_fallback": self.byte_fallback,
            "ignore_merges": false,
        })
    }

    /// The pipeline for a file without a class, from SentencePiece's own settings.
    fn pipeline(&self, raw: &mut RawFile, legacy: bool) {
        let replace = |pattern: Value, content: &str| json!({ "type": "Replace", "pattern": pattern, "content": content });
        let regex = |pattern: &str| json!({ "Regex": pattern });
        let mut normalizers = Vec::new();
        if !self.charsmap.is_empty() {
            normalizers.push(json!({
                "type": "Precompiled", "precompiled_charsmap": base64(&self.charsmap),
            }));
        }
        if self.remove_spaces {
            normalizers.push(replace(regex(ENDS), ""));
            normalizers.push(replace(regex(" {2,}"), " "));
        }
        if self.escape_spaces {
            normalizers.push(replace(json!({ "String": " " }), "▁"));
        }
        if self.dummy_prefix && legacy {
            normalizers.push(replace(regex(SIGN), "▁▁"));
        }
        raw.normalizer = json!({ "type": "Sequence", "normalizers": normalizers });
        if self.dummy_prefix {
            let scheme = if legacy { "always" } else { "first" };
            let spaces = json!({
                "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false,
            });
            raw.pre_tokenizer = json!({ "type": "Sequence", "pretokenizers": [spaces] });
        }
        let mut decoders = vec![replace(json!({ "String": "▁" }), " ")];
        if self.byte_fallback {
            decoders.push(json!({ "type": "ByteFallback" }));
        }
        decoders.push(json!({ "type": "Fuse" }));
        raw.decoder = json!({ "type": "Sequence", "decoders": decoders });
    }
}

/// Pairs of pieces whose concatenation is a piece, by ascending `rank` of the piece and its parts,
/// then by the ids of the parts.
fn merges<'a, K: Ord>(
    pieces: impl Iterator<Item = (usize, &'a str)>,
    rank: impl Fn(usize, [&str; 2]) -> K,
) -> Vec<[&'a str; 2]> {
    let ids: HashMap<&'a str, usize> = pieces.map(|(id, text)| (text, id)).collect();
    let mut pairs = Vec::new();
    for (&text, &id) in &ids {
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            if let (Some(a), Some(b)) = (ids.get(left), ids.get(right)) {
                pairs.push((rank(id, [left, right]), (*a, *b), [left, right]));
            }
        }
    }
    pairs.sort();
    pairs.into_iter().map(|(.., pair)| pair).collect()
}

/// Merges of a SentencePiece BPE, whose pieces have ids and scores: pairs of pieces whose
/// concatenation is a piece, by descending score of the piece, then by its id and those of its
/// parts.
pub fn merges_by_score<'a>(
    pieces: impl Iterator<Item = (usize, &'a str)>,
    score: impl Fn(usize) -> f32,
) -> Vec<[&'a str; 2]> {
    // Scores of normal numbers are ordered as their bits are.
    let order = |score: f32| {
        let bits = (-score).to_bits();
        match bits >> 31 {
            0 => bits | 1 << 31,
            _ => !bits,
        }
    };
    merges(pieces, |id, _| (order(score(id)), id))
}

/// Settings for reading a file.
pub(crate) struct Reading {
    /// True if a tokenizer class gives the pipeline, and the file only its pieces.
    pub(crate) classed: bool,
    /// True if text after every added token has a dummy prefix.
    pub(crate) legacy: bool,
    /// The token that opens a text, if there is one.
    pub(crate) opening: Option<String>,
    /// Tokens that other files list, by id.
    pub(crate) names: BTreeMap<u32, String>,
}

/// The special tokens that a `tokenizer.model` names itself, with their keys in
/// `tokenizer_config.json`; none of a file that cannot be read.
pub(crate) fn named(bytes: &[u8]) -> Vec<(&'static str, String)> {
    let Ok(model) = Model::read(bytes) else {
        return Vec::new();
    };
    let named = NAMED.into_iter().zip(model.named);
    let named = named.filter(|(_, (id, _))| *id >= 0);
    named.map(|(key, (_, piece))| (key, piece)).collect()
}

/// Converts a `tokenizer.model` to a `tokenizer.json`.
pub(crate) fn read(bytes: &[u8], name: &str, how: &Reading) -> Result<RawFile, AlignError> {
    let fault = |key: &str, message: &str| AlignError::Key {
        file: name.to_owned(),
        key: key.to_owned(),
        message: message.to_owned(),
    };
    let mut model =
        Model::read(bytes).map_err(|()| fault("(file)", "is no SentencePiece model"))?;
    if ![UNIGRAM, BPE].contains(&model.kind) {
        let message = "a model of words or characters is not read (BPE and Unigram are)";
        return Err(fault("trainer_spec.model_type", message));
    }
    if how.classed && model.kind != BPE {
        let message = "is Unigram, but tokenizer_class in tokenizer_config.json is a class of BPE";
        return Err(fault("trainer_spec.model_type", message));
    }
    let user_defined = model.pieces.iter().any(|piece| piece.kind == USER_DEFINED);
    if user_defined && !how.classed {
        let message = "user-defined symbols are read from a tokenizer.json only: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers writes one";
        return Err(fault("pieces", message));
    }
    if !how.classed && model.kind == BPE {
        model.rename(&how.names);
    }
    let mut raw = RawFile {
        model: match how.classed {
            true => model.ordered(),
            false => model.own(),
        },
        ..RawFile::default()
    };
    if !how.classed {
        model.pipeline(&mut raw, how.legacy);
    }
    let pieces = model.pieces.iter().enumerate();
    let added = pieces.filter(|(_, piece)| [CONTROL, USER_DEFINED].contains(&piece.kind));
    raw.added_tokens = added
        .map(|(id, piece)| AddedToken {
            special: piece.kind == CONTROL,
            ..AddedToken::plain(id as u32, &piece.text)
        })
        .collect();
    if let Some(opening) = &how.opening {
        let id = model.pieces.iter().position(|piece| piece.text == *opening);
        let id = id.ok_or_else(|| fault("pieces", "have no token that opens a text"))?;
        raw.open_with(opening, id);
    }
    Ok(raw)
}

/// Bytes in base64, for JSON.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            match i <= chunk.len() {
                true => out.push(char::from(LETTERS[(word >> (18 - 6 * i) & 63) as usize])),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_letters() {
        for (bytes, letters) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), letters);
        }
    }
}
