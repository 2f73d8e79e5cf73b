//! Rows of logits.

use crate::error::LawError;

/// The logits of one forward: `[positions, vocab]`, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    logits: &'a [f32],
    vocab: usize,
}

impl<'a> Rows<'a> {
    /// Views `logits` as rows of `vocab` entries; `None` unless there are exactly `positions`, and
    /// if `vocab` is 0.
    pub fn new(logits: &'a [f32], vocab: usize, positions: usize) -> Option<Self> {
        (vocab > 0 && logits.len() == positions.checked_mul(vocab)?)
            .then_some(Self { logits, vocab })
    }

    /// As [`new`](Self::new), with an error that says what was expected.
    pub(crate) fn checked(
        logits: &'a [f32],
        vocab: usize,
        positions: usize,
    ) -> Result<Self, LawError> {
        Self::new(logits, vocab, positions).ok_or(LawError::RowShape {
            found: logits.len(),
            positions,
            vocab,
        })
    }

    /// No rows.
    pub(crate) fn none(vocab: usize) -> Self {
        Self { logits: &[], vocab }
    }

    /// Row of one position; empty if there is no such position.
    pub fn row(&self, position: usize) -> &'a [f32] {
        let start = position.saturating_mul(self.vocab);
        let end = start.saturating_add(self.vocab);
        self.logits.get(start..end).unwrap_or(&[])
    }

    /// Row of the last position; empty if there is none.
    pub(crate) fn last(&self) -> &'a [f32] {
        self.row(self.positions().saturating_sub(1))
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.logits.len() / self.vocab
    }

    /// Number of entries of a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_not_there_are_empty() {
        for vocab in [1, 2, 3] {
            let logits = vec![0.5; 2 * vocab];
            let rows = Rows::new(&logits, vocab, 2).unwrap();
            assert_eq!((rows.row(1), rows.last()), (&logits[vocab..], rows.row(1)));
            for position in [2, 3, usize::MAX / 2, usize::MAX - 1, usize::MAX] {
                assert!(rows.row(position).is_empty(), "{position} of {vocab}");
            }
        }
    }
}
