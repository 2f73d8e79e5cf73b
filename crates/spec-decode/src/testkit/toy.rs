//! Byte-level tokenizers small enough to reason about.

use std::fmt::Write;

use vocab_align::{AlignError, TokenId, Vocabulary, char_of_byte};

use crate::Pair;

/// A byte-level BPE: ids 0..=255 are the bytes, then the merged tokens in order, then one special
/// token that ends a turn, then the added tokens in order.
#[derive(Clone, Copy, Debug)]
pub struct ToyVocab<'a> {
    /// Merges as (left, right); each adds the token `left + right`, ASCII letters only.
    pub merges: &'a [(&'a str, &'a str)],
    /// Added tokens, ASCII without quotes, each with true if it is special (without bytes).
    pub added: &'a [(&'a str, bool)],
}

impl ToyVocab<'_> {
    /// Id of the special token.
    pub fn end_of_turn(&self) -> u32 {
        256 + self.merges.len() as u32
    }

    /// Id of the token with the text `text`, or of the added token of that name.
    pub fn id(&self, text: &str) -> Option<u32> {
        let added = self.added.iter().position(|(name, _)| *name == text);
        if let Some(index) = added {
            return Some(self.end_of_turn() + 1 + index as u32);
        }
        if let [byte] = text.as_bytes() {
            return Some(u32::from(*byte));
        }
        let merged = self
            .merges
            .iter()
            .position(|(left, right)| text.strip_prefix(left).is_some_and(|rest| rest == *right));
        merged.map(|index| 256 + index as u32)
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        257 + self.merges.len() + self.added.len()
    }

    /// False, because the byte tokens are always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The vocabulary, loaded from its `tokenizer.json`.
    ///
    /// # Errors
    /// Merges that are no valid BPE.
    pub fn load<I: TokenId>(&self) -> Result<Vocabulary<I>, AlignError> {
        Vocabulary::from_json(self.json(), "toy tokenizer")
    }

    fn json(&self) -> String {
        let mut vocab = String::new();
        for byte in 0..=255u8 {
            let separator = if byte == 0 { "" } else { "," };
            let token = char_of_byte(byte);
            let escape = if matches!(token, '"' | '\\') {
                "\\"
            } else {
                ""
            };
            let _ = write!(vocab, "{separator}\"{escape}{token}\":{byte}");
        }
        let mut merges = Vec::new();
        for (index, (left, right)) in self.merges.iter().enumerate() {
            let _ = write!(vocab, ",\"{left}{right}\":{}", 256 + index);
            merges.push(format!("[\"{left}\",\"{right}\"]"));
        }
        let end = [("<|im_end|>", true)];
        let added: Vec<String> = end
            .iter()
            .chain(self.added)
            .zip(self.end_of_turn()..)
            .map(|((content, special), id)| {
                format!(
                    "{{\"id\":{id},\"content\":\"{content}\",\"special\":{special},\
                     \"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}}"
                )
            })
            .collect();
        format!(
            "{{\"added_tokens\":[{}],\
             \"pre_tokenizer\":{{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\
             \"trim_offsets\":true,\"use_regex\":true}},\
             \"model\":{{\"type\":\"BPE\",\"vocab\":{{{vocab}}},\"merges\":[{}]}}}}",
            added.join(","),
            merges.join(","),
        )
    }
}

/// Both vocabularies and their byte alignment.
///
/// # Errors
/// As [`ToyVocab::load`].
pub fn toy_pair(draft: &ToyVocab<'_>, target: &ToyVocab<'_>) -> Result<Pair, AlignError> {
    Ok(Pair::new(&draft.load()?, &target.load()?))
}
