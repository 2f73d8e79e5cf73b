//! Byte strings by id, and ids by byte string, in a few flat arrays.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// Marks an absent id in the compact tables. Real ids are far smaller.
pub(crate) const NONE: u32 = u32::MAX;

/// Byte strings numbered from 0, stored back to back.
#[derive(Default)]
pub(crate) struct BytePool {
    blob: Vec<u8>,
    ends: Vec<u32>,
}

impl BytePool {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.blob.extend_from_slice(bytes);
        self.ends.push(self.blob.len() as u32);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = if id == 0 {
            0
        } else {
            self.ends[id - 1] as usize
        };
        self.blob.get(start..end)
    }
}

/// Open-addressing hash table from a pool's strings to their ids; the strings stay in the pool.
pub(crate) struct PoolIndex {
    slots: Vec<Slot>,
}

/// An id and a part of its string's hash, which avoids most look-ups in the pool.
#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    tag: u32,
}

const FREE: Slot = Slot { id: NONE, tag: 0 };

impl PoolIndex {
    pub(crate) fn empty() -> Self {
        Self {
            slots: vec![FREE; 2],
        }
    }

    /// Indexes `ids`. Of equal strings, the first one given counts.
    pub(crate) fn build(pool: &BytePool, ids: impl Iterator<Item = u32>) -> Self {
        let capacity = (pool.len() * 2).next_power_of_two().max(2);
        let mut index = Self {
            slots: vec![FREE; capacity],
        };
        for id in ids {
            if let Some(key) = pool.get(id) {
                let (slot, tag) = index.slot_of(pool, key);
                if index.slots[slot].id == NONE {
                    index.slots[slot] = Slot { id, tag };
                }
            }
        }
        index
    }

    pub(crate) fn find(&self, pool: &BytePool, key: &[u8]) -> Option<u32> {
        let (slot, _) = self.slot_of(pool, key);
        let id = self.slots[slot].id;
        (id != NONE).then_some(id)
    }

    /// The slot that holds `key`, or the free slot for it, and the key's tag. The search terminates
    /// because at most half of the slots are taken.
    fn slot_of(&self, pool: &BytePool, key: &[u8]) -> (usize, u32) {
        let mask = self.slots.len() - 1;
        let mut hasher = FxHasher::default();
        hasher.write(key);
        let hash = hasher.finish();
        let tag = (hash >> 32) as u32;
        let mut slot = hash as usize & mask;
        loop {
            let found = self.slots[slot];
            if found.id == NONE || (found.tag == tag && pool.get(found.id) == Some(key)) {
                return (slot, tag);
            }
            slot = (slot + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_string_and_nothing_else() {
        let words = ["", "a", "ab", "b", "a", "\n"];
        let mut pool = BytePool::default();
        words.iter().for_each(|w| pool.push(w.as_bytes()));
        let index = PoolIndex::build(&pool, 0..words.len() as u32);
        assert_eq!(pool.get(2), Some(&b"ab"[..]));
        assert_eq!(pool.get(6), None);
        assert_eq!(
            index.find(&pool, b"a"),
            Some(1),
            "the first of equal strings"
        );
        assert_eq!(index.find(&pool, b"\n"), Some(5));
        assert_eq!(index.find(&pool, b"c"), None);
    }

    #[test]
    fn an_empty_pool_finds_nothing() {
        let pool = BytePool::default();
        assert_eq!(PoolIndex::build(&pool, 0..0).find(&pool, b"x"), None);
    }
}
