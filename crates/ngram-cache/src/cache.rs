//! The n-gram cache itself: look-up, insertion, counts, eviction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use vocab_align::{DraftId, TargetId};

use crate::memory::with_slack;
use crate::order::Order;
use crate::trie::{END, Trie};

/// Policy that chooses the n-gram to remove when the cache is full (Table 14 of the paper).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Eviction {
    /// No eviction: a full cache refuses new n-grams.
    #[default]
    None,
    /// The least recently seen n-gram is removed.
    Lru,
    /// The n-gram with the lowest count is removed; among equal counts, the least recently seen
    /// one.
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
    /// Policy for a full cache.
    pub eviction: Eviction,
    /// Largest number of n-grams; `None` for no limit.
    pub max_entries: Option<usize>,
    /// Largest size in bytes ([`NgramCache::memory_bytes`]); `None` for no limit. The limit applies
    /// to the n-grams in the cache with 1/16 for the spare capacity of growing arenas. If gaps in
    /// the arenas would exceed it, the arenas are rebuilt.
    pub max_bytes: Option<usize>,
}

/// Result of [`NgramCache::insert`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Insertion {
    /// The n-gram is new and is now stored.
    New,
    /// The n-gram is new and has replaced these, at least one.
    Evicted(Vec<Ngram>),
    /// The n-gram was stored already.
    Known {
        /// Number of times seen, this time included.
        count: u32,
    },
    /// The n-gram is stored with another target token, which it keeps for now.
    Conflict {
        /// The target token already stored.
        kept: TargetId,
    },
    /// The n-gram was stored with another target token. It has now been seen more often for the new
    /// one, which it stands for from now on.
    Replaced {
        /// The target token it stood for.
        before: TargetId,
    },
    /// The n-gram was not stored: the cache is full and may not evict, or its limits leave no room
    /// for this n-gram even alone.
    Full,
    /// The draft tokens are no n-gram: there are fewer than two, or one has an id of 2^31 - 1 or
    /// more.
    Invalid,
}

/// One n-gram with its target token and count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ngram {
    /// The draft tokens d_1..d_n, n >= 2.
    pub draft: Vec<DraftId>,
    /// The target token t with the same text.
    pub target: TargetId,
    /// Number of times seen in verified text for this target token.
    pub count: u32,
}

/// The result of [`NgramCache::longest_match`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NgramMatch {
    /// The target token that the draft tokens merge into.
    pub target: TargetId,
    /// Number of draft tokens that merge (n >= 2).
    pub len: usize,
}

/// A map from draft-token n-grams to target tokens (the cache C of section 3.1).
///
/// Inserting or finding an n-gram of length n costs n binary searches among siblings, evicting one
/// a scan of its siblings; both changes move one child list. Only a rebuild of the arenas
/// ([`CacheConfig::max_bytes`]) visits all n-grams.
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
/// // The longer n-gram wins if the draft contains all of it.
/// let longest = cache.longest_match(&[un, believ, able, un]);
/// assert_eq!(longest, Some(NgramMatch { target: TargetId(2), len: 3 }));
/// assert_eq!(cache.longest_match(&[un, believ]).map(|m| m.target), Some(TargetId(1)));
/// assert_eq!(cache.longest_match(&[un, able]), None);
/// ```
#[derive(Debug)]
pub struct NgramCache {
    pub(crate) config: CacheConfig,
    pub(crate) trie: Trie,
    /// Eviction order; `None` if the policy never evicts, which saves 8 bytes per n-gram.
    pub(crate) order: Option<Order>,
    /// By entry, if two target tokens have claimed an n-gram: the one that it does not stand for,
    /// and the number of times it was seen.
    pub(crate) rivals: BTreeMap<u32, Rival>,
    pub(crate) evictions: u64,
    generation: u64,
}

/// Size of a rival with its key.
const RIVAL_BYTES: usize = size_of::<(u32, Rival)>();

/// A target token that claims an n-gram which stands for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rival {
    pub(crate) target: TargetId,
    pub(crate) count: u32,
}

/// Generation of a new cache. Caches begin 2^32 apart, so that no two share a generation.
fn first_generation() -> u64 {
    static CACHES: AtomicU64 = AtomicU64::new(0);
    CACHES.fetch_add(1, Relaxed) << 32
}

impl Clone for NgramCache {
    /// A cache with the same content and a generation of its own: the two may change differently.
    fn clone(&self) -> Self {
        Self {
            config: self.config,
            trie: self.trie.clone(),
            order: self.order.clone(),
            rivals: self.rivals.clone(),
            evictions: self.evictions,
            generation: first_generation(),
        }
    }
}

impl NgramCache {
    /// An empty cache.
    pub fn new(config: CacheConfig) -> Self {
        Self {
            config,
            trie: Trie::new(),
            order: config.eviction.empty_order(),
            rivals: BTreeMap::new(),
            evictions: 0,
            generation: first_generation(),
        }
    }

    /// Number of n-grams.
    pub fn len(&self) -> usize {
        self.trie.len()
    }

    /// True if there are no n-grams.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number that changes whenever an n-gram is added, removed or stands for another token, and
    /// when the arenas are rebuilt; counts do not matter. No other cache has this number, a clone
    /// included. A caller can keep data that it derived from the trie, such as a mask over root
    /// children, until the number changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Records one sighting of the n-gram `draft` in verified text, where it stands for `target`.
    ///
    /// A new n-gram starts with count 1. If the cache is full, the policy's victims are removed
    /// first, so the new n-gram is never its own victim. The count of a known n-gram rises by one,
    /// and it becomes the most recent. Accepted n-grams are part of verified text, so passing all
    /// verified text here once counts them once.
    ///
    /// Target tokens with equal bytes may claim the same n-gram. Any of them is a correct
    /// translation; the n-gram stands for the one seen more often, the earlier one among equals.
    /// One rival is stored per n-gram. A sighting of a third token lowers the rival's count by one;
    /// at 0 the rival is forgotten, and the next other token seen takes its place. The reverse
    /// needs no rule: a target token may have any number of n-grams.
    pub fn insert(&mut self, draft: &[DraftId], target: TargetId) -> Insertion {
        if draft.len() < 2 || draft.iter().any(|d| d.0 >= END) {
            return Insertion::Invalid;
        }
        if let Some(entry) = self.trie.find(draft) {
            if self.trie.entry(entry).target != target.0 {
                return self.claim(entry, target);
            }
            let count = self.trie.entry(entry).count.saturating_add(1);
            self.recount(entry, count);
            return Insertion::Known { count };
        }
        if !self.trie.has_room(draft.len()) || !self.fits_alone(draft.len()) {
            return Insertion::Full;
        }
        let entry = self.trie.insert(draft, target.0, 1);
        let mut victims = Vec::new();
        // The new n-gram is in no order yet, so it cannot be a victim.
        while self.is_over() {
            match self.evict() {
                Some(victim) => victims.push(victim),
                None => break,
            }
        }
        if self.is_over() {
            self.trie.remove(entry);
            return Insertion::Full;
        }
        if let Some(order) = &mut self.order {
            order.insert(entry, 1);
        }
        self.generation += 1;
        self.keep_memory();
        if victims.is_empty() {
            Insertion::New
        } else {
            Insertion::Evicted(victims)
        }
    }

    /// Gives up unused capacity if the limit in bytes asks for it.
    fn keep_memory(&mut self) {
        let over = |max| self.memory_bytes() > max;
        if self.config.max_bytes.is_some_and(over) {
            self.compact();
        }
    }

    /// Counts a sighting of a stored n-gram with another target token than its own. If the limit in
    /// bytes has no room for a new rival, the sighting is not counted.
    fn claim(&mut self, entry: u32, target: TargetId) -> Insertion {
        let kept = TargetId(self.trie.entry(entry).target);
        let needed = self.budgeted_bytes() + RIVAL_BYTES;
        let full = self.config.max_bytes.is_some_and(|max| needed > max);
        if full && !self.rivals.contains_key(&entry) {
            return Insertion::Conflict { kept };
        }
        let newcomer = Rival { target, count: 0 };
        let rival = self.rivals.entry(entry).or_insert(newcomer);
        if rival.target != target {
            rival.count -= 1;
            if rival.count == 0 {
                self.rivals.remove(&entry);
            }
            return Insertion::Conflict { kept };
        }
        rival.count = rival.count.saturating_add(1);
        let Rival { count, .. } = *rival;
        let before = self.trie.entry(entry).count;
        if count <= before {
            self.keep_memory();
            return Insertion::Conflict { kept };
        }
        *rival = Rival {
            target: kept,
            count: before,
        };
        self.trie.entry_mut(entry).target = target.0;
        self.recount(entry, count);
        self.generation += 1;
        Insertion::Replaced { before: kept }
    }

    /// The n-gram of exactly these draft tokens.
    pub fn get(&self, draft: &[DraftId]) -> Option<Ngram> {
        Some(self.ngram(self.trie.find(draft)?))
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

    /// Sets another limit and policy and evicts n-grams beyond it. Returns the number of evicted
    /// n-grams. Table 14 cuts a full cache to 1/2 or 1/4 in this way.
    ///
    /// Recency carries over between `Lru` and `Lfu`. Under `None` a cache keeps no recency, so its
    /// n-grams then rank in lexicographic order of their draft ids. Under `None` a limit below the
    /// present size removes nothing; it only refuses new n-grams. Limits apply to entries and to
    /// bytes.
    pub fn reconfigure(&mut self, config: CacheConfig) -> usize {
        let mut ranked = self.ranked_entries();
        if config.eviction == Eviction::Lfu {
            ranked.sort_by_key(|&entry| self.trie.entry(entry).count);
        }
        self.config = config;
        self.rank(ranked);
        let before = self.len();
        while self.is_over() && self.evict().is_some() {}
        before - self.len()
    }

    /// True if the cache exceeds its limits.
    fn is_over(&self) -> bool {
        let (entries, bytes) = (self.config.max_entries, self.config.max_bytes);
        entries.is_some_and(|max| self.len() > max)
            || bytes.is_some_and(|max| self.budgeted_bytes() > max)
    }

    /// Rebuilds the arenas without the gaps of lists that outgrew their blocks.
    fn compact(&mut self) {
        let ranked = self.ranked_entries();
        let mut trie = Trie::new();
        let mut moved = BTreeMap::new();
        for entry in self.sorted_entries() {
            let ngram = self.ngram(entry);
            let new = trie.insert(&ngram.draft, ngram.target.0, ngram.count);
            moved.insert(entry, new);
        }
        self.trie = trie;
        self.rank(ranked.iter().filter_map(|old| moved.get(old).copied()));
        let rivals = std::mem::take(&mut self.rivals).into_iter();
        self.rivals = rivals
            .filter_map(|(entry, rival)| Some((*moved.get(&entry)?, rival)))
            .collect();
        self.generation += 1;
    }

    /// Begins the eviction order anew with these entries, next victim first.
    fn rank(&mut self, entries: impl IntoIterator<Item = u32>) {
        self.order = self.config.eviction.empty_order();
        if let Some(order) = &mut self.order {
            for entry in entries {
                order.insert(entry, self.trie.entry(entry).count);
            }
        }
    }

    /// True if an n-gram of this many tokens would fit within the limits as the only one.
    fn fits_alone(&self, length: usize) -> bool {
        let needed =
            size_of::<Self>() + with_slack(Trie::bytes_of_one(length) + Order::bytes_each());
        self.config.max_entries != Some(0) && self.config.max_bytes.is_none_or(|max| needed <= max)
    }

    /// Size in bytes that [`CacheConfig::max_bytes`] limits. It depends only on the n-grams in the
    /// cache, so that a cache read from a file behaves as the one that wrote it.
    pub fn budgeted_bytes(&self) -> usize {
        let order = match self.order {
            Some(_) => self.len() * Order::bytes_each(),
            None => 0,
        };
        size_of::<Self>() + with_slack(self.trie.live_bytes() + order) + self.rival_bytes()
    }

    fn rival_bytes(&self) -> usize {
        self.rivals.len() * RIVAL_BYTES
    }

    /// Size of the cache in memory, in bytes: the struct itself and every arena at its capacity
    /// (inner nodes, child lists, entries, eviction order, free slots), without the allocator's own
    /// overhead.
    pub fn memory_bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, Order::heap_bytes);
        size_of::<Self>() + self.trie.heap_bytes() + order + self.rival_bytes()
    }

    /// Entries in eviction order if one is kept, else in lexicographic order.
    pub(crate) fn ranked_entries(&self) -> Vec<u32> {
        match &self.order {
            Some(order) => order.iter().collect(),
            None => self.sorted_entries().collect(),
        }
    }

    /// All entries, in lexicographic order of their draft ids.
    pub(crate) fn sorted_entries(&self) -> impl Iterator<Item = u32> {
        let nodes = self.subtree(self.root());
        nodes.filter_map(|(node, _)| self.trie.entry_at(node.0))
    }

    /// Stores an n-gram of a file that is known to be absent, whatever the limits are.
    pub(crate) fn insert_new(
        &mut self,
        draft: &[DraftId],
        target: TargetId,
        count: u32,
        rival: Rival,
    ) {
        let entry = self.trie.insert(draft, target.0, count);
        if let Some(order) = &mut self.order {
            order.insert(entry, count);
        }
        if rival.count > 0 {
            self.rivals.insert(entry, rival);
        }
        self.generation += 1;
    }

    pub(crate) fn ngram(&self, entry: u32) -> Ngram {
        let stored = self.trie.entry(entry);
        Ngram {
            draft: self.trie.path(entry),
            target: TargetId(stored.target),
            count: stored.count,
        }
    }

    /// Sets the count of an entry, which makes it the most recently used one of that count.
    fn recount(&mut self, entry: u32, count: u32) {
        let before = std::mem::replace(&mut self.trie.entry_mut(entry).count, count);
        if let Some(order) = &mut self.order {
            order.remove(entry, before);
            order.insert(entry, count);
        }
    }

    fn evict(&mut self) -> Option<Ngram> {
        let order = self.order.as_mut()?;
        let entry = order.iter().next()?;
        order.remove(entry, self.trie.entry(entry).count);
        let victim = self.ngram(entry);
        self.trie.remove(entry);
        self.rivals.remove(&entry);
        self.evictions += 1;
        self.generation += 1;
        Some(victim)
    }
}
