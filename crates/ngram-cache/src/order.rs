//! The eviction order: a linked list of entries, next victim first.
//!
//! The list is sorted by (priority, recency). Under LRU every entry has the same priority; under
//! LFU an entry's priority is its count. `tails` holds the last entry of each priority, so that the
//! cost of moving an entry grows only with the number of distinct counts, and the victim is the
//! head of the list, in O(1). Both keys are functions of the call sequence alone, hence eviction is
//! deterministic: among equal counts the entry that was used least recently goes first.

use crate::memory::{heap_bytes, reserve_slack};
use crate::pool::NONE;

#[derive(Clone, Copy, Debug)]
struct Slot {
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct Tail {
    priority: u32,
    entry: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    by_count: bool,
    /// Neighbours in the list, indexed by entry.
    slots: Vec<Slot>,
    head: u32,
    /// Sorted by priority.
    tails: Vec<Tail>,
}

impl Order {
    /// An empty order: by count, then recency (LFU), or by recency alone (LRU).
    pub(crate) fn new(by_count: bool) -> Self {
        Self {
            by_count,
            slots: Vec::new(),
            head: NONE,
            tails: Vec::new(),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(&self.slots) + heap_bytes(&self.tails)
    }

    /// Size in bytes per n-gram. The tails, one per count, are few and not included.
    pub(crate) const fn bytes_each() -> usize {
        size_of::<Slot>()
    }

    /// All entries, next victim first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let mut next = self.head;
        std::iter::from_fn(move || {
            let entry = next;
            (entry != NONE).then(|| {
                next = self.slots[entry as usize].after;
                entry
            })
        })
    }

    /// Adds an entry as the most recently used one of its count.
    pub(crate) fn insert(&mut self, entry: u32, count: u32) {
        let index = entry as usize;
        if index >= self.slots.len() {
            let missing = index + 1 - self.slots.len();
            reserve_slack(&mut self.slots, missing);
            let unlinked = Slot {
                before: NONE,
                after: NONE,
            };
            self.slots.resize(index + 1, unlinked);
        }
        let priority = self.priority(count);
        let at = self.tails.partition_point(|t| t.priority < priority);
        let has_peers = self.tails.get(at).is_some_and(|t| t.priority == priority);
        let before = if has_peers {
            std::mem::replace(&mut self.tails[at].entry, entry)
        } else {
            let before = self.tail_before(at);
            reserve_slack(&mut self.tails, 1);
            self.tails.insert(at, Tail { priority, entry });
            before
        };
        self.link_after(before, entry);
    }

    /// Removes an entry that was inserted with (or last moved to) this count.
    pub(crate) fn remove(&mut self, entry: u32, count: u32) {
        let priority = self.priority(count);
        let Slot { before, after } = self.slots[entry as usize];
        if let Ok(at) = self.tails.binary_search_by_key(&priority, |t| t.priority)
            && self.tails[at].entry == entry
        {
            if before == self.tail_before(at) {
                self.tails.remove(at);
            } else {
                self.tails[at].entry = before;
            }
        }
        match before {
            NONE => self.head = after,
            before => self.slots[before as usize].after = after,
        }
        if after != NONE {
            self.slots[after as usize].before = before;
        }
    }

    fn priority(&self, count: u32) -> u32 {
        if self.by_count { count } else { 0 }
    }

    /// The last entry of the priority below tail `at`; [`NONE`] if that is the lowest.
    fn tail_before(&self, at: usize) -> u32 {
        let before = at.checked_sub(1);
        before.map_or(NONE, |before| self.tails[before].entry)
    }

    fn link_after(&mut self, before: u32, entry: u32) {
        let after = match before {
            NONE => std::mem::replace(&mut self.head, entry),
            before => std::mem::replace(&mut self.slots[before as usize].after, entry),
        };
        if after != NONE {
            self.slots[after as usize].before = entry;
        }
        self.slots[entry as usize] = Slot { before, after };
    }
}
