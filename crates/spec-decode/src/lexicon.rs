//! Lexicon of a draft's translations: direct tokens and cached n-grams as one trie.

use ngram_cache::{NgramCache, NodeId};
use vocab_align::{DraftId, TargetId, TokenId};

/// The canonical direct mapping t <-> d, dense in both directions.
///
/// It is one-to-one, so that every target token gets its proposal mass from exactly one draft
/// token.
#[derive(Clone, Debug, Default)]
pub struct DirectMap {
    pairs: Vec<(DraftId, TargetId)>,
    target_of: Vec<Option<TargetId>>,
    draft_of: Vec<Option<DraftId>>,
}

impl DirectMap {
    /// The one-to-one mapping of `pairs`, in any order. Pairs outside the vocabularies are dropped,
    /// and of several pairs for one token the first counts.
    pub fn from_pairs(
        pairs: &[(DraftId, TargetId)],
        draft_vocab: usize,
        target_vocab: usize,
    ) -> Self {
        let mut map = Self {
            pairs: Vec::with_capacity(pairs.len()),
            target_of: vec![None; draft_vocab],
            draft_of: vec![None; target_vocab],
        };
        for &(draft, target) in pairs {
            let (Some(forth), Some(back)) = (
                map.target_of.get_mut(draft.index()),
                map.draft_of.get_mut(target.index()),
            ) else {
                continue;
            };
            if forth.is_none() && back.is_none() {
                (*forth, *back) = (Some(target), Some(draft));
                map.pairs.push((draft, target));
            }
        }
        map.pairs.sort_unstable();
        map
    }

    /// The pairs, sorted by draft id.
    pub fn pairs(&self) -> &[(DraftId, TargetId)] {
        &self.pairs
    }

    /// Target token of a draft token.
    pub fn target_of(&self, draft: DraftId) -> Option<TargetId> {
        self.target_of.get(draft.index()).copied().flatten()
    }

    /// Draft token of a target token.
    pub fn draft_of(&self, target: TargetId) -> Option<DraftId> {
        self.draft_of.get(target.index()).copied().flatten()
    }
}

/// Merges ascending `more` into ascending `ids`. Since `more` is short, the ids between two of its
/// entries move as a block, from the end.
fn merge(ids: &mut Vec<u32>, more: &[u32]) {
    let mut end = ids.len();
    ids.resize(end + more.len(), 0);
    for (left, &id) in more.iter().enumerate().rev() {
        let place = ids[..end].partition_point(|&other| other < id);
        ids.copy_within(place..end, place + left + 1);
        ids[place + left] = id;
        end = place;
    }
}

/// A node of the joint trie: a non-empty path of draft tokens.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    first: DraftId,
    depth: usize,
    node: Option<NodeId>,
}

impl Place {
    /// Number of draft tokens on the path, at least 1.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The node of the path in the n-gram cache; `None` if no n-gram starts like this.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }
}

/// Direct mapping and n-gram cache as one trie over draft tokens.
///
/// A path of one token has its direct target token, if any; a longer one has the target token of
/// the cached n-gram, if any. Without a cache this is plain token-level intersection.
#[derive(Clone, Copy, Debug)]
pub struct Lexicon<'a> {
    direct: &'a DirectMap,
    cache: Option<&'a NgramCache>,
}

impl<'a> Lexicon<'a> {
    /// Joins both. Without a cache it is the lexicon of mode `tli`.
    pub fn new(direct: &'a DirectMap, cache: Option<&'a NgramCache>) -> Self {
        Self { direct, cache }
    }

    /// The direct mapping.
    pub fn direct(&self) -> &'a DirectMap {
        self.direct
    }

    /// The n-gram cache.
    pub fn cache(&self) -> Option<&'a NgramCache> {
        self.cache
    }

    /// Raw ids of all draft tokens with which a translation can start, ascending.
    pub fn root_children(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.direct.pairs.iter().map(|(d, _)| d.get()).collect();
        if let Some(cache) = self.cache {
            let roots = cache.children(cache.root()).map(|(d, _)| d);
            let more: Vec<u32> = roots
                .filter(|&d| self.direct.target_of(d).is_none())
                .map(DraftId::get)
                .collect();
            merge(&mut ids, &more);
        }
        ids
    }

    /// The path of one token.
    pub fn enter(&self, draft: DraftId) -> Option<Place> {
        let node = self
            .cache
            .and_then(|cache| cache.child(cache.root(), draft));
        (node.is_some() || self.direct.target_of(draft).is_some()).then_some(Place {
            first: draft,
            depth: 1,
            node,
        })
    }

    /// The path extended by one token.
    pub fn step(&self, place: Place, draft: DraftId) -> Option<Place> {
        let node = self.cache?.child(place.node?, draft)?;
        Some(place.below(node))
    }

    /// The path of several tokens; `None` if there are none, or if no entry starts like this.
    pub fn read(&self, drafts: &[DraftId]) -> Option<Place> {
        let (&first, rest) = drafts.split_first()?;
        rest.iter()
            .try_fold(self.enter(first)?, |place, &draft| self.step(place, draft))
    }

    /// The target token that a path stands for.
    pub fn token(&self, place: Place) -> Option<TargetId> {
        if place.depth == 1 {
            return self.direct.target_of(place.first);
        }
        self.cache?.token(place.node?)
    }

    /// All extensions of a path by one token, ascending by that token.
    pub fn children(&self, place: Place) -> impl Iterator<Item = (DraftId, Place)> + use<'a> {
        let pair = self.cache.zip(place.node);
        pair.into_iter()
            .flat_map(|(cache, node)| cache.children(node))
            .map(move |(draft, node)| (draft, place.below(node)))
    }
}

impl Place {
    fn below(self, node: NodeId) -> Self {
        Self {
            first: self.first,
            depth: self.depth + 1,
            node: Some(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn merging_is_sorting(
            ids in proptest::collection::btree_set(0u32..40, 0..30),
            more in proptest::collection::btree_set(0u32..40, 0..30),
        ) {
            let more: Vec<u32> = more.difference(&ids).copied().collect();
            let all: BTreeSet<u32> = ids.iter().chain(&more).copied().collect();
            let mut merged: Vec<u32> = ids.into_iter().collect();
            merge(&mut merged, &more);
            prop_assert_eq!(merged, all.into_iter().collect::<Vec<_>>());
        }
    }
}
