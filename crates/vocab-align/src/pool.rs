//! Byte strings by id, and ids by byte string, in a few flat arrays.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// Marks an absent id in the compact tables. Real ids are far smaller.
pub(crate) const NONE: u32 = u32::MAX;

/// Byte strings numbered from 0, stored back to back, and an open-addressing hash table from the
/// [indexed](Self::index) ones to their numbers.
#[derive(Default)]
pub(crate) struct BytePool {
    blob: Vec<u8>,
    ends: Vec<u32>,
    slots: Vec<Slot>,
}

/// An id and a part of its string's hash, which avoids most look-ups in the pool.
#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    tag: u32,
}

const FREE: Slot = Slot { id: NONE, tag: 0 };

impl BytePool {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.blob.extend_from_slice(bytes);
        self.ends.push(self.blob.len() as u32);
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

    /// Indexes `ids`. Of equal strings, the first one given counts.
    pub(crate) fn index(&mut self, ids: impl Iterator<Item = u32>) {
        let capacity = (self.ends.len() * 2).next_power_of_two().max(2);
        self.slots = vec![FREE; capacity];
        for id in ids {
            if let Some(key) = self.get(id) {
                let (slot, tag) = self.slot_of(key);
                if self.slots[slot].id == NONE {
                    self.slots[slot] = Slot { id, tag };
                }
            }
        }
    }

    /// The id of a string, once the pool is [indexed](Self::index).
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let (slot, _) = self.slot_of(key);
        let id = self.slots[slot].id;
        (id != NONE).then_some(id)
    }

    /// The slot that holds `key`, or the free slot for it, and the key's tag. The search terminates
    /// because at most half of the slots are taken.
    fn slot_of(&self, key: &[u8]) -> (usize, u32) {
        let mask = self.slots.len() - 1;
        let mut hasher = FxHasher::default();
        hasher.write(key);
        let hash = hasher.finish();
        let tag = (hash >> 32) as u32;
        let mut slot = hash as usize & mask;
        loop {
            let found = self.slots[slot];
            if found.id == NONE || (found.tag == tag && self.get(found.id) == Some(key)) {
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
        pool.index(0..words.len() as u32);
        assert_eq!(pool.get(2), Some(&b"ab"[..]));
        assert_eq!(pool.get(6), None);
        assert_eq!(pool.find(b"a"), Some(1), "the first of equal strings");
        assert_eq!(pool.find(b"\n"), Some(5));
        assert_eq!(pool.find(b"c"), None);
    }

    #[test]
    fn an_empty_pool_finds_nothing() {
        let mut pool = BytePool::default();
        pool.index(0..0);
        assert_eq!(pool.find(b"x"), None);
    }
}
