//! Cutting text into pieces that the model tokenises independently.

use std::ops::Range;

use rustc_hash::FxHashSet;
use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::utils::SysRegex;
use tokenizers::{
    OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

use crate::error::AlignError;
use crate::file::TokenizerFile;
use crate::spelling::{SPACE_SIGN, Spelling, fallback_byte};

/// The split that a ByteLevel pre-tokenizer makes on its own (GPT-2's).
const BYTE_LEVEL_SPLIT: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The tokenizer's pre-tokenizer, reduced to the positions where it cuts: without a dummy prefix
/// and without rewriting bytes. Without a pre-tokenizer, [`Joints`] finds the cuts.
pub(crate) struct Splitter {
    stages: Vec<Stage>,
    joints: Option<Joints>,
}

enum Stage {
    /// Cuts around every match: the common case, without the bookkeeping of the general one.
    Regex(SysRegex),
    Any(Box<PreTokenizerWrapper>),
}

impl Splitter {
    pub(crate) fn new(file: &TokenizerFile) -> Result<Self, AlignError> {
        let mut stages = Vec::new();
        add_stages(&file.pre_tokenizer, file, &mut stages)?;
        let joints = (file.spelling != Spelling::ByteLevel).then(|| Joints::new(file));
        Ok(Self { stages, joints })
    }

    /// Replaces `pieces` by consecutive non-empty ranges that cover `text`.
    pub(crate) fn split(&self, text: &str, pieces: &mut Vec<Range<usize>>) {
        pieces.clear();
        if !text.is_empty() {
            pieces.push(0..text.len());
        }
        for stage in &self.stages {
            refine(pieces, |piece, out| stage.split(text, piece, out));
        }
        if let Some(joints) = &self.joints {
            refine(pieces, |piece, out| joints.split(text, piece, out));
        }
    }
}

fn refine(
    pieces: &mut Vec<Range<usize>>,
    mut cut: impl FnMut(Range<usize>, &mut Vec<Range<usize>>),
) {
    let coarse = std::mem::take(pieces);
    pieces.reserve(coarse.len());
    for piece in coarse {
        cut(piece, pieces);
    }
}

fn add_stages(
    component: &Value,
    file: &TokenizerFile,
    stages: &mut Vec<Stage>,
) -> Result<(), AlignError> {
    let invalid = |message: String| AlignError::Key {
        file: file.name.clone(),
        key: "pre_tokenizer".to_owned(),
        message,
    };
    let regex = |pattern: &str| {
        SysRegex::new(pattern)
            .map(Stage::Regex)
            .map_err(|error| invalid(error.to_string()))
    };
    match component["type"].as_str() {
        None if component.is_null() => {}
        None => return Err(invalid("has no type".to_owned())),
        Some("Sequence") => {
            let parts = component["pretokenizers"]
                .as_array()
                .ok_or_else(|| invalid("a Sequence needs `pretokenizers`".to_owned()))?;
            for part in parts {
                add_stages(part, file, stages)?;
            }
        }
        // The byte rewriting is done per piece, so only the split remains.
        Some("ByteLevel") => {
            if component["use_regex"].as_bool().unwrap_or(true) {
                stages.push(regex(BYTE_LEVEL_SPLIT)?);
            }
        }
        Some("Split")
            if component["behavior"] == "Isolated"
                && component["invert"] == false
                && component["pattern"]["Regex"].is_string() =>
        {
            stages.push(regex(
                component["pattern"]["Regex"].as_str().unwrap_or_default(),
            )?);
        }
        Some(kind) => {
            let mut component = component.clone();
            if kind == "Metaspace" {
                component["prepend_scheme"] = json!("never");
                component["add_prefix_space"] = json!(false);
            }
            let stage = PreTokenizerWrapper::deserialize(&component)
                .map_err(|error| invalid(error.to_string()))?;
            stages.push(Stage::Any(Box::new(stage)));
        }
    }
    Ok(())
}

impl Stage {
    fn split(&self, text: &str, piece: Range<usize>, out: &mut Vec<Range<usize>>) {
        let inside = &text[piece.clone()];
        let mut cursor = 0;
        // Text between matches, and text that a pre-tokenizer would drop, are pieces too.
        let mut cut_at = |start: usize, end: usize| {
            for part in [cursor..start, start..end] {
                if part.start < part.end {
                    out.push(piece.start + part.start..piece.start + part.end);
                }
            }
            cursor = cursor.max(end);
        };
        match self {
            Self::Regex(regex) => regex
                .find_iter(inside)
                .for_each(|(start, end)| cut_at(start, end)),
            Self::Any(pre_tokenizer) => {
                let mut splits = PreTokenizedString::from(inside);
                // A failed split leaves one long piece, which is slower and still exact.
                if pre_tokenizer.pre_tokenize(&mut splits).is_ok() {
                    for (_, (start, end), _) in
                        splits.get_splits(OffsetReferential::Original, OffsetType::Byte)
                    {
                        cut_at(start, end);
                    }
                }
            }
        }
        cut_at(inside.len(), inside.len());
    }
}

/// The pairs of neighbouring characters inside some token. Between two characters that are
/// neighbours in no token, no merge can happen, so BPE and Unigram treat both sides independently.
/// In SentencePiece vocabularies this cuts before nearly every word: short pieces, which the
/// model's cache knows, and boundaries that later text cannot move.
struct Joints {
    ascii: Box<[u128; 128]>,
    other: FxHashSet<(char, char)>,
}

impl Joints {
    fn new(file: &TokenizerFile) -> Self {
        let mut joints = Self {
            ascii: Box::new([0; 128]),
            other: FxHashSet::default(),
        };
        for (content, _) in &file.tokens {
            if file.byte_fallback && fallback_byte(content).is_some() {
                continue;
            }
            let content = content.chars();
            content
                .clone()
                .zip(content.skip(1))
                .for_each(|(left, right)| joints.insert(left, right));
        }
        joints
    }

    /// Where both characters sit in the ASCII table; `▁` takes the place of the space, which
    /// SentencePiece text does not contain any more.
    fn ascii_index(c: char) -> Option<usize> {
        match c {
            SPACE_SIGN => Some(usize::from(b' ')),
            ' ' => None,
            c if c.is_ascii() => Some(c as usize),
            _ => None,
        }
    }

    fn insert(&mut self, left: char, right: char) {
        match (Self::ascii_index(left), Self::ascii_index(right)) {
            (Some(left), Some(right)) => self.ascii[left] |= 1 << right,
            _ => {
                self.other.insert((left, right));
            }
        }
    }

    fn joined(&self, left: char, right: char) -> bool {
        match (Self::ascii_index(left), Self::ascii_index(right)) {
            (Some(left), Some(right)) => self.ascii[left] >> right & 1 == 1,
            _ => self.other.contains(&(left, right)),
        }
    }

    fn split(&self, text: &str, piece: Range<usize>, out: &mut Vec<Range<usize>>) {
        let mut start = piece.start;
        let mut previous = None;
        for (at, c) in text[piece.clone()].char_indices() {
            let at = piece.start + at;
            if previous.is_some_and(|left| !self.joined(left, c)) {
                out.push(start..at);
                start = at;
            }
            previous = Some(c);
        }
        out.push(start..piece.end);
    }
}
