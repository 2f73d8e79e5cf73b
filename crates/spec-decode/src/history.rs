//! Earlier text, from which a draft can be copied at no cost.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use vocab_align::{TargetId, TokenId};

/// Longest run of tokens that is looked up. The length of a match is measured up to [`MEASURED`].
const LONGEST: usize = 4;
/// Largest measured length of a match.
const MEASURED: usize = 16;
/// Default number of tokens of earlier answers to keep.
const KEPT: usize = 1 << 16;
/// Marks the boundary of two texts; it is not a token.
const SEAM: u32 = u32::MAX;

/// The prompt, the response so far and earlier answers of the stream, in target tokens, indexed by
/// their last few tokens.
///
/// The longest suffix of the text, of at most four tokens, that occurred before is looked up. The
/// tokens after its latest occurrence can be proposed (prompt lookup). They need no drafter and no
/// translation, because they are target tokens. The text determines them, so their q is 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct History {
    kept: usize,
    tokens: Vec<u32>,
    /// Index of the token after the latest occurrence of a run, by length and hash of the run.
    #[serde(skip_serializing)]
    index: HashMap<(u8, u64), u32>,
    /// Start of the present prompt.
    #[serde(skip_serializing)]
    present: usize,
}

/// A history in a file: its tokens, with marks between texts, from which the index is made again.
#[derive(Deserialize)]
struct Written {
    kept: usize,
    tokens: Vec<u32>,
}

impl From<Written> for History {
    fn from(written: Written) -> Self {
        let mut history = Self::new(written.kept);
        let tokens = written.tokens.into_iter();
        tokens.for_each(|token| history.append(token));
        history
    }
}

/// Earlier text that continues a match with the end of the present text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of last tokens that agree, at least 1. [`History`] counts at most 16 of them.
    pub matched: usize,
    /// Tokens that followed them.
    pub tokens: Vec<TargetId>,
}

impl Default for History {
    fn default() -> Self {
        Self::new(KEPT)
    }
}

impl History {
    /// A history that keeps at least the last `kept` tokens of earlier prompts and answers, and at
    /// most twice as many. With 0 it keeps only the present prompt and response.
    pub fn new(kept: usize) -> Self {
        Self {
            kept,
            tokens: Vec::new(),
            index: HashMap::new(),
            present: 0,
        }
    }

    /// Begins a new text after all others.
    pub fn start(&mut self, prompt: &[TargetId]) {
        if self.tokens.len() > self.kept.saturating_mul(2) {
            let first = self.tokens.len() - self.kept;
            let last = self.tokens.split_off(first);
            self.tokens.clear();
            self.index.clear();
            last.into_iter().for_each(|token| self.append(token));
        }
        if !self.tokens.is_empty() {
            self.append(SEAM);
        }
        self.present = self.tokens.len();
        self.extend(prompt);
    }

    /// Appends tokens to the present text.
    pub fn extend(&mut self, tokens: &[TargetId]) {
        tokens.iter().for_each(|token| self.append(token.get()));
    }

    /// Continuation of the longest suffix of the text at its latest earlier occurrence: at most
    /// `most` tokens, and none beyond its own text. If the occurrence overlaps the end, the copied
    /// tokens are copied on.
    pub fn find(&self, most: usize) -> Option<Found> {
        self.find_after(&[], most)
    }

    /// As [`find`](Self::find) if `ahead` stood at the end of the text.
    pub fn find_after(&self, ahead: &[TargetId], most: usize) -> Option<Found> {
        let present = self.tokens[self.present..].iter().copied();
        let end = || ahead.iter().map(|token| token.get()).rev();
        let mut run: Vec<u32> = end().chain(present.rev()).take(LONGEST).collect();
        run.reverse();
        let source = (1..=run.len())
            .rev()
            .find_map(|length| self.occurrence(&run[run.len() - length..]))?;
        let mut tokens: Vec<TargetId> = Vec::new();
        while tokens.len() < most {
            let at = source + tokens.len();
            let after = || ahead.iter().chain(&tokens).nth(at - self.tokens.len());
            let token = match self.tokens.get(at) {
                Some(token) => *token,
                None => after().map_or(SEAM, |token| token.get()),
            };
            if token == SEAM {
                break;
            }
            tokens.push(TargetId::new(token));
        }
        (!tokens.is_empty()).then(|| Found {
            matched: self.matched(ahead, source),
            tokens,
        })
    }

    /// Index of the token after the latest earlier occurrence of a run.
    fn occurrence(&self, run: &[u32]) -> Option<usize> {
        let at = *self.index.get(&key(run))? as usize;
        let earlier = self.tokens.get(at.checked_sub(run.len())?..at)?;
        (earlier == run).then_some(at)
    }

    fn matched(&self, ahead: &[TargetId], source: usize) -> usize {
        let present = self.tokens[self.present..].iter().copied().rev();
        let end = ahead.iter().map(|token| token.get()).rev();
        let earlier = self.tokens[..source].iter().copied().rev();
        let same = end.chain(present).zip(earlier).take(MEASURED);
        same.take_while(|(a, b)| a == b && *a != SEAM).count()
    }

    fn append(&mut self, token: u32) {
        // The runs that end before this token now have a continuation.
        let end = self.tokens.len();
        if token != SEAM {
            for length in 1..=LONGEST.min(end) {
                let run = &self.tokens[end - length..];
                if run.contains(&SEAM) {
                    break;
                }
                self.index.insert(key(run), end as u32);
            }
        }
        self.tokens.push(token);
    }
}

/// Length and FNV-1a hash of a run. Occurrences are compared before they are used.
fn key(run: &[u32]) -> (u8, u64) {
    let hash = run.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, token| {
        (hash ^ u64::from(*token)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (run.len() as u8, hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(raw: &[u32]) -> Vec<TargetId> {
        raw.iter().copied().map(TargetId).collect()
    }

    fn found(texts: &[&[u32]], most: usize) -> Option<(usize, Vec<u32>)> {
        let mut history = History::default();
        texts.iter().for_each(|text| history.start(&ids(text)));
        let found = history.find(most)?;
        Some((found.matched, found.tokens.iter().map(|t| t.0).collect()))
    }

    #[test]
    fn the_longest_suffix_wins_then_its_latest_occurrence() {
        // "1 2" occurs twice, "5 1 2" once: the continuation of the longer one counts.
        let text = [5, 1, 2, 7, 3, 1, 2, 8, 5, 1, 2];
        assert_eq!(found(&[&text], 2), Some((3, vec![7, 3])));
        assert_eq!(
            found(&[&[1, 2, 7, 3, 1, 2, 8, 4, 1, 2]], 1),
            Some((2, vec![8]))
        );
        assert_eq!(found(&[&[1, 2, 3]], 4), None);
        assert_eq!(found(&[&[1]], 4), None);
        assert_eq!(found(&[&text], 0), None);
    }

    #[test]
    fn what_overlaps_the_end_is_copied_on() {
        assert_eq!(found(&[&[4, 4]], 3), Some((1, vec![4, 4, 4])));
        assert_eq!(
            found(&[&[9, 1, 2, 1, 2]], 5),
            Some((2, vec![1, 2, 1, 2, 1]))
        );
    }

    #[test]
    fn earlier_texts_are_searched_and_end_where_they_end() {
        assert_eq!(found(&[&[1, 2, 3, 4], &[9, 2]], 8), Some((1, vec![3, 4])));
        // The end of a text has no continuation, and no match reaches across it.
        assert_eq!(found(&[&[1, 2], &[3, 2]], 8), None);
        assert_eq!(found(&[&[1, 2, 3], &[2]], 8), Some((1, vec![3])));
    }

    #[test]
    fn old_texts_are_forgotten() {
        let mut history = History::new(10);
        for text in 0..100 {
            history.start(&ids(&[1000 + text, 7, 8]));
            assert!(history.tokens.len() <= 2 * 10 + 8);
        }
        history.start(&ids(&[1099]));
        assert!(history.find(1).is_some());
        history.start(&ids(&[1000]));
        assert!(history.find(1).is_none());
    }

    proptest! {
        /// Compares the index with a search through the whole text.
        #[test]
        fn agrees_with_a_search(raw in prop::collection::vec(0u32..4, 1..60), most in 1usize..9) {
            let search = (1..=LONGEST.min(raw.len() - 1)).rev().find_map(|length| {
                let suffix = &raw[raw.len() - length..];
                (length..raw.len()).rev().find(|&at| &raw[at - length..at] == suffix)
            });
            let expected = search.map(|at| {
                let mut all = raw.clone();
                (0..most).for_each(|i| all.push(all[at + i]));
                all[raw.len()..].to_vec()
            });
            prop_assert_eq!(found(&[&raw], most).map(|f| f.1), expected);
        }

        /// Tokens ahead count as if they were text, apart from their own continuations.
        #[test]
        fn what_is_ahead_counts(raw in prop::collection::vec(0u32..4, 2..60), cut in 1usize..8) {
            let (text, ahead) = raw.split_at(raw.len().saturating_sub(cut).max(1));
            let mut history = History::default();
            history.start(&ids(text));
            let search = (1..=LONGEST.min(raw.len() - 1)).rev().find_map(|length| {
                let suffix = &raw[raw.len() - length..];
                let ends = (length..text.len()).rev();
                ends.into_iter().find(|&at| &raw[at - length..at] == suffix)
            });
            let expected = search.map(|at| {
                let mut all = raw.clone();
                (0..6).for_each(|i| all.push(all[at + i]));
                ids(&all[raw.len()..])
            });
            let found = history.find_after(&ids(ahead), 6);
            prop_assert_eq!(found.map(|found| found.tokens), expected);
        }
    }
}
