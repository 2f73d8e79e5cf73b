//! Masked drafting: which draft tokens keep the draft translatable.
//!
//! A [`Walk`] reads the drafted tokens as the greedy longest-match translation will. Its pending
//! path may still grow into an n-gram; should it not, the longest token-bearing prefix is cut off
//! and the rest is read again from the root. The mask is every token for which one of these
//! readings goes on, so no drafted token is ever untranslatable in the middle of a draft; at worst
//! the last few form a path that no n-gram has completed yet.

use vocab_align::{DraftId, TokenId};

use crate::lexicon::{Lexicon, Place};

/// Drafted tokens whose translation is still open.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The pending path, every prefix of it: `path[i]` has depth `i + 1`.
    path: Vec<(DraftId, Place)>,
}

impl Walk {
    /// Reads one more drafted token; `None` where that makes the draft untranslatable.
    pub fn advance(&self, lexicon: &Lexicon<'_>, draft: DraftId) -> Option<Self> {
        let next = match self.path.last() {
            None => lexicon.enter(draft),
            Some(&(_, place)) => lexicon.step(place, draft),
        };
        match next {
            Some(place) => {
                let mut path = self.path.clone();
                path.push((draft, place));
                Some(Self { path })
            }
            None => self.fall_back(lexicon)?.advance(lexicon, draft),
        }
    }

    /// The reading in which the pending path does not grow: cuts its longest token-bearing prefix
    /// and reads the rest from the root. `None` at the root and where the rest cannot be read.
    fn fall_back(&self, lexicon: &Lexicon<'_>) -> Option<Self> {
        let cut = self.longest_token(lexicon)?;
        self.path[cut..]
            .iter()
            .try_fold(Self::default(), |walk, &(draft, _)| {
                walk.advance(lexicon, draft)
            })
    }

    fn longest_token(&self, lexicon: &Lexicon<'_>) -> Option<usize> {
        let carries = |&(_, place): &(DraftId, Place)| lexicon.token(place).is_some();
        self.path.iter().rposition(carries).map(|last| last + 1)
    }

    /// Draft tokens at the end that no translation covers if the draft stops here.
    pub fn dangling(&self, lexicon: &Lexicon<'_>) -> usize {
        let mut rest: Vec<DraftId> = self.path.iter().map(|&(draft, _)| draft).collect();
        while !rest.is_empty() {
            let walk = Self::read(lexicon, &rest);
            match walk.longest_token(lexicon) {
                Some(cut) => drop(rest.drain(..cut)),
                None => return rest.len(),
            }
        }
        0
    }

    /// The longest path from the root that `drafts` starts with.
    fn read(lexicon: &Lexicon<'_>, drafts: &[DraftId]) -> Self {
        let mut path: Vec<(DraftId, Place)> = Vec::new();
        for &draft in drafts {
            let next = match path.last() {
                None => lexicon.enter(draft),
                Some(&(_, place)) => lexicon.step(place, draft),
            };
            match next {
                Some(place) => path.push((draft, place)),
                None => break,
            }
        }
        Self { path }
    }

    /// Raw ids of every token [`advance`](Self::advance) can read, ascending without repetition.
    /// `roots` is the lexicon's [`root_children`](Lexicon::root_children).
    pub fn mask(&self, lexicon: &Lexicon<'_>, roots: &[u32]) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut reading = Some(self.clone());
        while let Some(walk) = reading {
            match walk.path.last() {
                Some(&(_, place)) => {
                    ids.extend(lexicon.children(place).map(|(draft, _)| draft.get()));
                }
                None => {
                    ids.extend_from_slice(roots);
                    break;
                }
            }
            reading = walk.fall_back(lexicon);
        }
        if !self.path.is_empty() {
            ids.sort_unstable();
            ids.dedup();
        }
        ids
    }
}
