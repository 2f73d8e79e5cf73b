//! Positions inside a piece that no token spans.

use rustc_hash::FxHashSet;

use crate::file::TokenizerFile;
use crate::spelling::{SPACE_SIGN, fallback_byte};

/// Pairs of characters that are neighbours inside some token. Between two characters that are
/// neighbours in no token no merge can happen, so BPE and Unigram treat both sides independently.
/// In SentencePiece vocabularies without a pre-tokenizer such cuts lie before nearly every word,
/// and later text cannot move them.
pub(crate) struct Joints {
    ascii: Box<[u128; 128]>,
    other: FxHashSet<(char, char)>,
}

impl Joints {
    pub(crate) fn new(file: &TokenizerFile) -> Self {
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

    /// Index of a character in the ASCII table, if it is in it. `▁` has the index of the space,
    /// which SentencePiece text does not contain any more.
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

    /// True if some token has these two characters side by side.
    pub(crate) fn joined(&self, left: char, right: char) -> bool {
        match (Self::ascii_index(left), Self::ascii_index(right)) {
            (Some(left), Some(right)) => self.ascii[left] >> right & 1 == 1,
            _ => self.other.contains(&(left, right)),
        }
    }
}
