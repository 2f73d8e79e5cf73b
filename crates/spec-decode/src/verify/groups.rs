//! Which group every target token belongs to.

use std::collections::BTreeMap;

use ngram_cache::NodeId;
use vocab_align::{DraftId, TargetId, TokenId};

use crate::lexicon::{Lexicon, Place};

/// The partition of the target vocabulary behind the group rule.
///
/// The group of a draft token d is its direct token and the tokens of all n-grams that start with
/// d. A token with several spellings must belong to one of them only, or its mass would count
/// twice: the direct one where there is one, else the first in the cache's order (shorter before
/// longer on one path, then by draft id), which depends on the cache's content alone and never on
/// the draft. The other spellings carry no token as far as the group rule is concerned.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Node of the one spelling of every token that has no direct one.
    spelled: BTreeMap<TargetId, NodeId>,
    /// First draft token of every token's spelling, by target id.
    first: Vec<Option<DraftId>>,
}

impl Groups {
    /// Partitions `target_vocab` tokens. Linear in the cache.
    pub fn new(lexicon: &Lexicon<'_>, target_vocab: usize) -> Self {
        let direct = lexicon.direct();
        let mut groups = Self {
            spelled: BTreeMap::new(),
            first: vec![None; target_vocab],
        };
        for &(draft, target) in direct.pairs() {
            if let Some(first) = groups.first.get_mut(target.index()) {
                *first = Some(draft);
            }
        }
        let Some(cache) = lexicon.cache() else {
            return groups;
        };
        for (draft, node) in cache.children(cache.root()) {
            for (spelling, target) in cache.subtree(node) {
                if let Some(first @ None) = groups.first.get_mut(target.index()) {
                    *first = Some(draft);
                    groups.spelled.insert(target, spelling);
                }
            }
        }
        groups
    }

    /// The group of a target token, named by its draft token; `None` outside all groups.
    pub fn of(&self, target: TargetId) -> Option<DraftId> {
        self.first.get(target.index()).copied().flatten()
    }

    /// The target token a place stands for, if this is the token's one spelling.
    pub fn token(&self, lexicon: &Lexicon<'_>, place: Place) -> Option<TargetId> {
        let token = lexicon.token(place)?;
        let owned = match place.depth() {
            1 => true,
            _ => self.spelled.get(&token).copied() == place.node(),
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
