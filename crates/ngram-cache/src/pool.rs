//! Storage for the child lists of the trie: small sorted arrays of edges in one arena.
//!
//! A list of `len` edges occupies a block of `len.next_power_of_two()` slots, so a block's capacity
//! follows from its length and needs no field of its own. Blocks that a list has outgrown (or shrunk
//! out of) are chained per capacity and handed to the next list of that size, or split for smaller ones.

use crate::memory::{heap_bytes, reserve_slack};

/// Set in a [`Link`] that points to an entry instead of an inner node.
const ENTRY_FLAG: u32 = 1 << 31;

/// Ends a chain of free slots.
pub(crate) const NONE: u32 = u32::MAX;

/// One list capacity per power of two below 2^32.
const CLASSES: usize = 32;

/// Where an edge leads: an inner node, or the entry of an n-gram that no other n-gram extends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Link(u32);

/// A [`Link`], unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Node(u32),
    Entry(u32),
}

impl Link {
    pub(crate) fn node(index: u32) -> Self {
        Self(index)
    }

    pub(crate) fn entry(index: u32) -> Self {
        Self(index | ENTRY_FLAG)
    }

    pub(crate) fn place(self) -> Place {
        if self.0 & ENTRY_FLAG == 0 {
            Place::Node(self.0)
        } else {
            Place::Entry(self.0 & !ENTRY_FLAG)
        }
    }
}

/// A step of the trie: the draft token read, and what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    pub(crate) label: u32,
    pub(crate) link: Link,
}

/// A child list: where it starts in the arena and how many edges it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Block {
    start: u32,
    len: u32,
}

impl Block {
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    fn range(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.len()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EdgePool {
    slots: Vec<Edge>,
    /// First free block of each capacity class; the chain continues in the `label` of its first slot.
    free: [u32; CLASSES],
}

/// The capacity class of a non-empty list.
fn class(len: u32) -> usize {
    len.next_power_of_two().trailing_zeros() as usize
}

impl EdgePool {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: [NONE; CLASSES],
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(&self.slots)
    }

    pub(crate) fn edges(&self, block: Block) -> &[Edge] {
        &self.slots[block.range()]
    }

    pub(crate) fn edges_mut(&mut self, block: Block) -> &mut [Edge] {
        &mut self.slots[block.range()]
    }

    /// Inserts `edge` before position `at` and returns the list's new block.
    pub(crate) fn insert(&mut self, block: Block, at: usize, edge: Edge) -> Block {
        let grown = Block {
            start: block.start,
            len: block.len + 1,
        };
        if block.len > 0 && class(block.len) == class(grown.len) {
            let start = block.start as usize;
            self.slots
                .copy_within(start + at..start + block.len(), start + at + 1);
            self.slots[start + at] = edge;
            return grown;
        }
        let moved = self.allocate(grown.len);
        let (from, to) = (block.start as usize, moved.start as usize);
        self.slots.copy_within(from..from + at, to);
        self.slots[to + at] = edge;
        self.slots
            .copy_within(from + at..from + block.len(), to + at + 1);
        self.release(block);
        moved
    }

    /// Removes the edge at position `at` and returns the list's new block.
    pub(crate) fn remove(&mut self, block: Block, at: usize) -> Block {
        let start = block.start as usize;
        self.slots
            .copy_within(start + at + 1..start + block.len(), start + at);
        let shrunk = Block {
            start: block.start,
            len: block.len - 1,
        };
        if shrunk.len == 0 {
            self.release(block);
            return Block::default();
        }
        if class(shrunk.len) == class(block.len) {
            return shrunk;
        }
        let moved = self.allocate(shrunk.len);
        self.slots.copy_within(shrunk.range(), moved.start as usize);
        self.release(block);
        moved
    }

    fn allocate(&mut self, len: u32) -> Block {
        let class = class(len);
        if let Some(start) = self.take_free(class) {
            return Block { start, len };
        }
        let start = self.slots.len();
        let empty = Edge {
            label: NONE,
            link: Link::node(0),
        };
        reserve_slack(&mut self.slots, 1 << class);
        self.slots.resize(start + (1 << class), empty);
        // The trie refuses insertions long before the arena could outgrow 32-bit positions.
        Block {
            start: start as u32,
            len,
        }
    }

    /// A free block of the class, split off a larger one if need be.
    fn take_free(&mut self, class: usize) -> Option<u32> {
        let found = (class..CLASSES).find(|&c| self.free[c] != NONE)?;
        let start = self.free[found];
        self.free[found] = self.slots[start as usize].label;
        for half in class..found {
            self.chain(start + (1 << half), half);
        }
        Some(start)
    }

    fn release(&mut self, block: Block) {
        if block.len > 0 {
            self.chain(block.start, class(block.len));
        }
    }

    fn chain(&mut self, start: u32, class: usize) {
        self.slots[start as usize].label = self.free[class];
        self.free[class] = start;
    }

    /// Slots in free chains, for the accounting check.
    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> usize {
        let mut total = 0;
        for (class, &head) in self.free.iter().enumerate() {
            let mut next = head;
            while next != NONE {
                total += 1 << class;
                next = self.slots[next as usize].label;
            }
        }
        total
    }

    /// Slots that a list of `len` edges occupies.
    #[cfg(test)]
    pub(crate) fn capacity(len: usize) -> usize {
        if len == 0 { 0 } else { len.next_power_of_two() }
    }
}
