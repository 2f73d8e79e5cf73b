//! The n-gram cache itself: look-up, insertion, counts, eviction.

use serde::{Deserialize, Serialize};
use vocab_align::{DraftId, TargetId};

use crate::order::Order;
use crate::trie::{END, Trie};

/// Which n-gram makes room for a new one when the cache is full (Table 14 of the paper).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eviction {
    /// None: a full cache turns new n-grams away.
    #[default]
    None,
    /// The least recently seen or used one.
    Lru,
    /// The one with the lowest count; among equal counts, the least recently seen or used one.
    Lfu,
}

impl Eviction {
    fn empty_order(self) -> Option<Order> {
        match self {
            Self::None => None,
            Self::Lru => Some(Order::new(false)),
            Self::Lfu => Some(Order::new(true)),
        }
    }
}

/// Size limit and eviction policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// What happens when the limit is reached.
    pub eviction: Eviction,
    /// Most n-grams held at once; `None` is no limit.
    pub max_entries: Option<usize>,
}

/// What [`NgramCache::insert`] did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Insertion {
    /// The n-gram is new and is now stored.
    New,
    /// The n-gram is new and took the place of this one.
    Evicted(Ngram),
    /// The n-gram was stored already; its count is now this.
    Known {
        /// Times seen or used, this time included.
        count: u32,
    },
    /// The n-gram is stored with another target token, which stays.
    Conflict {
        /// The target token already stored.
        kept: TargetId,
    },
    /// The cache is full and may not evict: the n-gram was not stored.
    Full,
    /// Not an n-gram: fewer than two draft tokens, or one with an id of 2^31 - 1 or more.
    Invalid,
}

/// One n-gram with its target token and count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ngram {
    /// The draft tokens d_1..d_n, n >= 2.
    pub draft: Vec<DraftId>,
    /// The target token t that spells the same text.
    pub target: TargetId,
    /// Times seen in verified text or used.
    pub count: u32,
}

/// The result of [`NgramCache::longest_match`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NgramMatch {
    /// The target token the draft tokens merge into.
    pub target: TargetId,
    /// How many draft tokens merge (n >= 2).
    pub len: usize,
}

/// A map from draft-token n-grams to target tokens (the cache C of section 3.1).
///
/// Inserting, finding or evicting an n-gram of length n costs n binary searches among siblings plus
/// the move of one child list; nothing ever visits all n-grams.
///
/// ```
/// use ngram_cache::{CacheConfig, Insertion, NgramCache, NgramMatch};
/// use vocab_align::{DraftId, TargetId};
///
/// let [un, believ, able] = [DraftId(10), DraftId(11), DraftId(12)];
/// let mut cache = NgramCache::new(CacheConfig::default());
/// assert_eq!(cache.insert(&[un, believ], TargetId(1)), Insertion::New);
/// assert_eq!(cache.insert(&[un, believ, able], TargetId(2)), Insertion::New);
///
/// // The longer n-gram wins where the draft spells it out.
/// let longest = cache.longest_match(&[un, believ, able, un]);
/// assert_eq!(longest, Some(NgramMatch { target: TargetId(2), len: 3 }));
/// assert_eq!(cache.longest_match(&[un, believ]).map(|m| m.target), Some(TargetId(1)));
/// assert_eq!(cache.longest_match(&[un, able]), None);
/// ```
#[derive(Clone, Debug)]
pub struct NgramCache {
    pub(crate) config: CacheConfig,
    pub(crate) trie: Trie,
    /// `None` when the policy never evicts: the order would cost 8 bytes an n-gram.
    pub(crate) order: Option<Order>,
    pub(crate) evictions: u64,
    generation: u64,
}

impl NgramCache {
    /// An empty cache.
    pub fn new(config: CacheConfig) -> Self {
        Self {
            config,
            trie: Trie::new(),
            order: config.eviction.empty_order(),
            evictions: 0,
            generation: 0,
        }
    }

    /// The size limit and policy in force.
    pub fn config(&self) -> CacheConfig {
        self.config
    }

    /// Number of n-grams.
    pub fn len(&self) -> usize {
        self.trie.len()
    }

    /// Whether there are no n-grams.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes whenever an n-gram is added or removed (counts do not matter), so that a caller can keep
    /// what it derived from the trie, such as a mask over root children, until the trie changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Records one sighting of the n-gram `draft` in verified text, as the spelling of `target`.
    ///
    /// A new n-gram starts with count 1; when the cache is full, the policy's victim leaves first, so
    /// the newcomer is never its own victim. A known n-gram gains one count and becomes the most recent.
    ///
    /// Target tokens with equal bytes may claim the same n-gram. Any of them is a correct translation,
    /// so the first one stays and the later claim changes nothing. The reverse needs no rule: a target
    /// token may have any number of spellings, each an n-gram of its own.
    pub fn insert(&mut self, draft: &[DraftId], target: TargetId) -> Insertion {
        if draft.len() < 2 || draft.iter().any(|d| d.0 >= END) {
            return Insertion::Invalid;
        }
        if let Some(entry) = self.find(draft) {
            let kept = TargetId(self.trie.entry(entry).target);
            if kept != target {
                return Insertion::Conflict { kept };
            }
            let count = self.touch(entry);
            return Insertion::Known { count };
        }
        if !self.trie.has_room(draft.len()) {
            return Insertion::Full;
        }
        if self.config.max_entries.is_none_or(|max| self.len() < max) {
            self.insert_new(draft, target, 1);
            return Insertion::New;
        }
        let Some(victim) = self.evict() else {
            return Insertion::Full;
        };
        self.insert_new(draft, target, 1);
        Insertion::Evicted(victim)
    }

    /// Records that the n-gram was used: one more count, and most recent for eviction. Does nothing for
    /// an n-gram that is not stored.
    ///
    /// A loop that passes all verified text to [`insert`](Self::insert) already counts accepted n-grams,
    /// since they are part of that text; calling both weighs accepted use double.
    pub fn record_use(&mut self, draft: &[DraftId]) {
        if let Some(entry) = self.find(draft) {
            self.touch(entry);
        }
    }

    /// The target token and count of exactly this n-gram.
    pub fn get(&self, draft: &[DraftId]) -> Option<(TargetId, u32)> {
        let entry = self.trie.entry(self.find(draft)?);
        Some((TargetId(entry.target), entry.count))
    }

    /// The longest stored n-gram that `draft` starts with.
    pub fn longest_match(&self, draft: &[DraftId]) -> Option<NgramMatch> {
        let mut node = self.root();
        let mut longest = None;
        for (read, &token) in draft.iter().enumerate() {
            let Some(next) = self.child(node, token) else {
                break;
            };
            node = next;
            if let Some(target) = self.token(node) {
                let len = read + 1;
                longest = Some(NgramMatch { target, len });
            }
        }
        longest
    }

    /// Puts another limit and policy in force, evicting what no longer fits, and returns how many
    /// n-grams left. This is how a full cache is cut to 1/2 or 1/4 (Table 14).
    ///
    /// Recency carries over between `Lru` and `Lfu`; a cache that was under `None` kept no recency, so
    /// its n-grams rank in lexicographic order of their draft ids. Under `None` a limit below the
    /// present size removes nothing and only turns newcomers away.
    pub fn reconfigure(&mut self, config: CacheConfig) -> usize {
        let mut ranked = self.ranked_entries();
        if config.eviction == Eviction::Lfu {
            ranked.sort_by_key(|&entry| self.trie.entry(entry).count);
        }
        self.config = config;
        self.order = config.eviction.empty_order();
        if let Some(order) = &mut self.order {
            for entry in ranked {
                order.insert(entry, self.trie.entry(entry).count);
            }
        }
        let before = self.len();
        while config.max_entries.is_some_and(|max| self.len() > max) && self.evict().is_some() {}
        before - self.len()
    }

    /// Bytes of memory the cache occupies: the struct itself and every arena at its capacity (inner
    /// nodes, child lists, entries, eviction order, free slots), without the allocator's own overhead.
    pub fn memory_bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, Order::heap_bytes);
        size_of::<Self>() + self.trie.heap_bytes() + order
    }

    /// Entries in eviction order if one is kept, else in lexicographic order.
    pub(crate) fn ranked_entries(&self) -> Vec<u32> {
        match &self.order {
            Some(order) => order.iter().collect(),
            None => self
                .subtree(self.root())
                .filter_map(|(node, _)| self.trie.entry_at(node.0))
                .collect(),
        }
    }

    /// Stores an n-gram that is known to be absent, within the limit.
    pub(crate) fn insert_new(&mut self, draft: &[DraftId], target: TargetId, count: u32) {
        let path = draft.iter().map(|d| d.0);
        let entry = self.trie.insert(path, target.0, count);
        if let Some(order) = &mut self.order {
            order.insert(entry, count);
        }
        self.generation += 1;
    }

    pub(crate) fn find(&self, draft: &[DraftId]) -> Option<u32> {
        self.trie.find(draft.iter().map(|d| d.0))
    }

    pub(crate) fn ngram(&self, entry: u32) -> Ngram {
        let stored = self.trie.entry(entry);
        Ngram {
            draft: self.trie.path(entry).into_iter().map(DraftId).collect(),
            target: TargetId(stored.target),
            count: stored.count,
        }
    }

    fn touch(&mut self, entry: u32) -> u32 {
        let stored = self.trie.entry_mut(entry);
        let before = stored.count;
        stored.count = before.saturating_add(1);
        let count = stored.count;
        if let Some(order) = &mut self.order {
            order.remove(entry, before);
            order.insert(entry, count);
        }
        count
    }

    fn evict(&mut self) -> Option<Ngram> {
        let order = self.order.as_mut()?;
        let entry = order.victim()?;
        order.remove(entry, self.trie.entry(entry).count);
        let victim = self.ngram(entry);
        self.trie.remove(entry);
        self.evictions += 1;
        self.generation += 1;
        Some(victim)
    }
}
