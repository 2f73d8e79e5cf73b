//! Groups of target tokens.

use ngram_cache::{EntryId, NgramCache};
use vocab_align::{DraftId, TargetId, TokenId};

use crate::lexicon::{Lexicon, Place};

/// Marks the absence of a draft token. Vocabularies are smaller.
const NONE: u32 = u32::MAX;

/// The partition of the target vocabulary on which the group rule is based.
///
/// The group of a draft token d is its direct token and the tokens of all n-grams that start with
/// d. A token with several n-grams must belong to only one of them, because its mass would count
/// twice otherwise. It belongs to its direct token if there is one, else to the first n-gram in the
/// cache's order (shorter before longer on one path, then by draft id), which depends only on the
/// cache's content and never on the draft. For the group rule the other n-grams have no token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The n-gram of every token without a direct one, by target id.
    spelled: Vec<Option<EntryId>>,
    /// First draft token of every token's mapping, by target id; [`NONE`] outside all groups.
    first: Vec<u32>,
}

impl Groups {
    /// Partitions `target_vocab` tokens. The cost is linear in vocabulary and cache. A session does
    /// this at the first use in a response and after evictions and replacements in the cache, and
    /// adds the other n-grams that it learns by [`insert`](Self::insert).
    pub fn new(lexicon: &Lexicon<'_>, target_vocab: usize) -> Self {
        let direct = lexicon.direct();
        let mut groups = Self {
            spelled: vec![None; target_vocab],
            first: vec![NONE; target_vocab],
        };
        for &(draft, target) in direct.pairs() {
            if let Some(first) = groups.first.get_mut(target.index()) {
                *first = draft.get();
            }
        }
        let Some(cache) = lexicon.cache() else {
            return groups;
        };
        for (draft, node) in cache.children(cache.root()) {
            for (spelling, target) in cache.subtree(node) {
                if let Some(first @ &mut NONE) = groups.first.get_mut(target.index()) {
                    *first = draft.get();
                    groups.spelled[target.index()] = cache.entry(spelling);
                }
            }
        }
        groups
    }

    /// Adds an n-gram that has just been inserted, without an eviction or replacement. It costs a
    /// look-up, and a comparison if the token has another n-gram.
    pub fn insert(&mut self, cache: &NgramCache, draft: &[DraftId], target: TargetId) {
        let (Some(entry), Some(&start)) = (cache.entry_of(draft), draft.first()) else {
            return;
        };
        let slots = (
            self.first.get_mut(target.index()),
            self.spelled.get_mut(target.index()),
        );
        let (Some(first), Some(spelled)) = slots else {
            return;
        };
        let owns = match (*first, &spelled) {
            (NONE, _) => true,
            (_, None) => false,
            (_, Some(owner)) => cache
                .spelling(*owner)
                .is_none_or(|owner| draft < owner.as_slice()),
        };
        if owns {
            (*first, *spelled) = (start.get(), Some(entry));
        }
    }

    /// The group of a target token, identified by its draft token; `None` outside all groups.
    pub fn of(&self, target: TargetId) -> Option<DraftId> {
        let first = self.first.get(target.index()).copied();
        first.filter(|first| *first != NONE).map(DraftId::new)
    }

    /// The group of every target token, by its id: a raw draft id, or an id outside every
    /// vocabulary.
    pub(super) fn firsts(&self) -> &[u32] {
        &self.first
    }

    /// The target token of a place; `None` if the token belongs to another place.
    pub fn token(&self, lexicon: &Lexicon<'_>, place: Place) -> Option<TargetId> {
        let token = lexicon.token(place)?;
        let owned = match place.depth() {
            1 => true,
            _ => {
                let here = lexicon.cache().zip(place.node());
                let here = here.and_then(|(cache, node)| cache.entry(node));
                self.spelled.get(token.index()).copied().flatten() == here
            }
        };
        owned.then_some(token)
    }

    /// Every target token at or below a place.
    pub fn below(&self, lexicon: &Lexicon<'_>, place: Place) -> Vec<TargetId> {
        let mut found = Vec::new();
        let mut open = vec![place];
        while let Some(place) = open.pop() {
            found.extend(self.token(lexicon, place));
            open.extend(lexicon.children(place).map(|(_, child)| child));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexicon::DirectMap;
    use ngram_cache::{CacheConfig, Insertion};

    proptest::proptest! {
        /// Inserting n-grams one by one gives the partition of the finished cache, whatever the
        /// order.
        #[test]
        fn insertion_equals_a_fresh_partition(
            ngrams in proptest::collection::vec(
                (proptest::collection::vec(0..4_u32, 2..5), 0..10_u32), 0..40),
        ) {
            let pairs: Vec<_> = (0..3).map(|i| (DraftId(i), TargetId(i))).collect();
            let direct = DirectMap::from_pairs(&pairs, 4, 9);
            let mut cache = NgramCache::new(CacheConfig::default());
            let mut groups = Groups::new(&Lexicon::new(&direct, Some(&cache)), 9);
            for (draft, target) in ngrams {
                let draft: Vec<DraftId> = draft.into_iter().map(DraftId).collect();
                let inserted = cache.insert(&draft, TargetId(target));
                let lexicon = Lexicon::new(&direct, Some(&cache));
                match inserted {
                    Insertion::New => groups.insert(&cache, &draft, TargetId(target)),
                    // As in a session: the cache's generation says that it has changed.
                    Insertion::Replaced { .. } => groups = Groups::new(&lexicon, 9),
                    _ => {}
                }
                proptest::prop_assert_eq!(&groups, &Groups::new(&lexicon, 9));
            }
        }
    }

    #[test]
    fn every_token_has_one_spelling() {
        let pairs: Vec<_> = (0..3).map(|i| (DraftId(i), TargetId(i))).collect();
        let direct = DirectMap::from_pairs(&pairs, 8, 16);
        let mut cache = NgramCache::new(CacheConfig::default());
        for (spelling, target) in [
            (&[2, 0][..], 9),
            (&[0, 1], 9),
            (&[0, 1, 2], 10),
            (&[5, 1], 11),
            (&[0, 2], 1),
        ] {
            let spelling: Vec<DraftId> = spelling.iter().map(|&raw| DraftId(raw)).collect();
            cache.insert(&spelling, TargetId(target));
        }
        let lexicon = Lexicon::new(&direct, Some(&cache));
        let groups = Groups::new(&lexicon, 16);
        let group = |token| groups.of(TargetId(token)).map(|draft| draft.0);
        // 9 is spelled 0 1 (before 2 0), 1 is direct before all n-grams.
        assert_eq!([group(0), group(1), group(2)], [Some(0), Some(1), Some(2)]);
        assert_eq!(
            [group(9), group(10), group(11), group(12)],
            [Some(0), Some(0), Some(5), None]
        );
        let below = |draft| {
            let place = lexicon.enter(DraftId(draft)).expect("in the lexicon");
            let mut tokens: Vec<u32> = groups
                .below(&lexicon, place)
                .into_iter()
                .map(|token| token.0)
                .collect();
            tokens.sort_unstable();
            tokens
        };
        assert_eq!(
            [below(0), below(1), below(2)],
            [vec![0, 9, 10], vec![1], vec![2]]
        );
        assert_eq!(below(5), [11]);
        assert!(lexicon.enter(DraftId(4)).is_none());
    }
}
