//! One prompt with its answer and the target's distribution at every position.

use half::f16;
use sha2::{Digest, Sha256};

use crate::error::RowFault;
use crate::{Law, TraceInfo, Values};

/// Names of the columns, in the order in which they are stored and hashed.
pub const COLUMNS: [&str; 9] = [
    "id",
    "prompt",
    "prompt_ids",
    "answer_ids",
    "tail_ids",
    "top_ids",
    "values",
    "rest",
    "sha256",
];

/// Number of columns that are text. They come first; the others hold little-endian numbers, or a
/// hash.
pub(crate) const TEXTS: usize = 2;

/// The fields of a row as bytes, without the checksum.
pub(crate) type Fields = [Vec<u8>; 8];

/// One prompt, its greedy answer, and the distribution that determined every token.
///
/// The *path* is the greedy continuation of the prompt: the answer, then the tail. The tail is no
/// part of the answer; a round at the end of the answer may still verify it. It has 1 token after a
/// stop token, and up to [`TraceInfo::tail`] after an answer that the limit cut. Row `i` is the
/// distribution of path token `i`, given the prompt and the path before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Id of the prompt in its task.
    pub id: String,
    /// The text that the model read, template included.
    pub prompt: String,
    /// Tokens of that text, at least one.
    pub prompt_ids: Vec<u32>,
    /// Tokens of the answer, at least one, including a final stop token.
    pub answer: Vec<u32>,
    /// Tokens that the target emits after the answer.
    pub tail: Vec<u32>,
    /// Distributions, one row per token of the path.
    pub law: Law,
}

impl Record {
    /// The path: the answer and its tail.
    pub fn path(&self) -> impl Iterator<Item = u32> + '_ {
        self.answer.iter().chain(&self.tail).copied()
    }

    /// Checks the record against the metadata of its file.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, info: &TraceInfo) -> Result<(), RowFault> {
        if self.prompt_ids.is_empty() {
            return Err(RowFault::Empty("prompt"));
        }
        if self.answer.is_empty() {
            return Err(RowFault::Empty("answer"));
        }
        let (found, expected) = (self.law.len(), self.answer.len() + self.tail.len());
        if found != expected {
            return Err(RowFault::Length {
                column: COLUMNS[6],
                found,
                expected,
            });
        }
        let vocab = info.vocab_size;
        let ids = self.prompt_ids.iter().copied().chain(self.path());
        for token in ids.chain(self.law.tokens()) {
            if token as usize >= vocab {
                return Err(RowFault::Token { token, vocab });
            }
        }
        self.law.check(self.path())
    }

    pub(crate) fn fields(&self) -> Fields {
        let (ids, values, rest) = match &self.law {
            Law::Top {
                ids,
                log_probs,
                rest,
                ..
            } => (
                le(ids, |id| id.to_le_bytes()),
                le(log_probs, |x| x.to_le_bytes()),
                le(rest, |x| x.to_le_bytes()),
            ),
            Law::Full { logits, .. } => (Vec::new(), le(logits, |x| x.to_le_bytes()), Vec::new()),
        };
        let tokens = |ids: &[u32]| le(ids, |id| id.to_le_bytes());
        [
            self.id.clone().into_bytes(),
            self.prompt.clone().into_bytes(),
            tokens(&self.prompt_ids),
            tokens(&self.answer),
            tokens(&self.tail),
            ids,
            values,
            rest,
        ]
    }

    /// The record that is stored in these fields, checked.
    pub(crate) fn of_fields(fields: &Fields, info: &TraceInfo) -> Result<Self, RowFault> {
        let [id, prompt, prompt_ids, answer, tail, top_ids, values, rest] = fields;
        let tokens = |column: usize, bytes: &[u8]| tokens(COLUMNS[column], bytes);
        let (answer, tail) = (tokens(3, answer)?, tokens(4, tail)?);
        let positions = answer.len() + tail.len();
        let cells = positions * info.top;
        let sized = |column: usize, bytes: &[u8], expected: usize| match bytes.len() {
            found if found != expected => Err(RowFault::Length {
                column: COLUMNS[column],
                found,
                expected,
            }),
            _ => Ok(()),
        };
        let law = match info.values {
            Values::LogProbs => {
                sized(5, top_ids, 4 * cells)?;
                sized(6, values, 2 * cells)?;
                sized(7, rest, 4 * positions)?;
                Law::Top {
                    vocab: info.vocab_size,
                    top: info.top,
                    ids: tokens(5, top_ids)?,
                    log_probs: numbers(values, f16::from_le_bytes),
                    rest: numbers(rest, f32::from_le_bytes),
                }
            }
            Values::Logits => {
                sized(5, top_ids, 0)?;
                sized(6, values, 4 * cells)?;
                sized(7, rest, 0)?;
                Law::Full {
                    vocab: info.vocab_size,
                    logits: numbers(values, f32::from_le_bytes),
                }
            }
        };
        let record = Self {
            id: text(0, id)?,
            prompt: text(1, prompt)?,
            prompt_ids: tokens(2, prompt_ids)?,
            answer,
            tail,
            law,
        };
        record.check(info)?;
        Ok(record)
    }
}

/// SHA-256 over the fields, each preceded by its length as u64.
pub(crate) fn checksum(fields: &Fields) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for field in fields {
        hasher.update((field.len() as u64).to_le_bytes());
        hasher.update(field);
    }
    hasher.finalize().into()
}

pub(crate) fn text(column: usize, bytes: &[u8]) -> Result<String, RowFault> {
    let text = std::str::from_utf8(bytes).map_err(|_| RowFault::Text(COLUMNS[column]))?;
    Ok(text.to_owned())
}

pub(crate) fn tokens(column: &'static str, bytes: &[u8]) -> Result<Vec<u32>, RowFault> {
    if !bytes.len().is_multiple_of(4) {
        return Err(RowFault::Length {
            column,
            found: bytes.len(),
            expected: bytes.len().next_multiple_of(4),
        });
    }
    Ok(numbers(bytes, u32::from_le_bytes))
}

fn numbers<T, const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|chunk| read(*chunk)).collect()
}

fn le<T: Copy, const N: usize>(values: &[T], write: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| write(*value)).collect()
}
