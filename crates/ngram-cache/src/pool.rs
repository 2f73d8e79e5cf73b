//! Storage for the child lists of the trie: small sorted arrays of edges in one arena.
//!
//! A single edge is stored in its node. A longer list of `len` edges occupies a block of
//! `len.next_power_of_two()` slots, so a block's capacity follows from its length and needs no
//! field of its own. Blocks that a list has outgrown (or shrunk out of) are chained per capacity
//! and reused for the next list of that size, or split for smaller ones.

use crate::memory::{heap_bytes, reserve_slack};

/// Upper bound of draft ids and of [`END`](crate::trie::END); see [`BLOCK_FLAG`].
pub(crate) const MAX_LABEL: u32 = BLOCK_FLAG - 1;

/// Flag of a [`Link`] to an entry instead of an inner node.
const ENTRY_FLAG: u32 = 1 << 31;

/// End of a chain of free slots.
pub(crate) const NONE: u32 = u32::MAX;

/// Number of capacity classes: one per power of two below 2^32.
const CLASSES: usize = 32;

/// End of an edge: an inner node, or the entry of an n-gram that no other n-gram extends.
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

/// A step in the trie: the next draft token, and the node or entry that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    pub(crate) label: u32,
    pub(crate) link: Link,
}

/// Flag in the label of an edge in [`Children`] that encodes a block. No draft token is that large.
const BLOCK_FLAG: u32 = 1 << 31;

/// The child list of one node. Most nodes have a single child, so its edge is stored in place. Two
/// or more edges are a block of the arena, encoded in the same 8 bytes as flagged start and length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Children(Edge);

/// [`Children`], unpacked.
enum List {
    Single,
    Block { start: usize, len: usize },
}

impl Children {
    pub(crate) const EMPTY: Self = Self::block(0, 0);

    /// A block. The trie refuses insertions long before positions could reach the flag bit.
    const fn block(start: usize, len: usize) -> Self {
        Self(Edge {
            label: start as u32 | BLOCK_FLAG,
            link: Link(len as u32),
        })
    }

    fn list(self) -> List {
        match self.0 {
            Edge { label, link } if label & BLOCK_FLAG != 0 => List::Block {
                start: (label & !BLOCK_FLAG) as usize,
                len: link.0 as usize,
            },
            _ => List::Single,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EdgePool {
    slots: Vec<Edge>,
    /// First free block of each capacity class; the chain continues in the `label` of its first slot.
    free: [u32; CLASSES],
    /// Number of slots of all blocks in use.
    live: usize,
}

/// The capacity class of a list of two or more edges.
fn class(len: usize) -> usize {
    len.next_power_of_two().trailing_zeros() as usize
}

impl EdgePool {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: [NONE; CLASSES],
            live: 0,
        }
    }

    /// Size of the blocks in use, in bytes.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live * size_of::<Edge>()
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(&self.slots)
    }

    pub(crate) fn edges<'a>(&'a self, children: &'a Children) -> &'a [Edge] {
        match children.list() {
            List::Single => std::slice::from_ref(&children.0),
            List::Block { start, len } => &self.slots[start..start + len],
        }
    }

    pub(crate) fn edges_mut<'a>(&'a mut self, children: &'a mut Children) -> &'a mut [Edge] {
        match children.list() {
            List::Single => std::slice::from_mut(&mut children.0),
            List::Block { start, len } => &mut self.slots[start..start + len],
        }
    }

    /// Inserts `edge` before position `at`.
    pub(crate) fn insert(&mut self, children: Children, at: usize, edge: Edge) -> Children {
        match children.list() {
            List::Block { len: 0, .. } => Children(edge),
            List::Single => {
                let start = self.allocate(2);
                self.slots[start + at] = edge;
                self.slots[start + 1 - at] = children.0;
                Children::block(start, 2)
            }
            List::Block { start, len } if class(len) == class(len + 1) => {
                self.slots
                    .copy_within(start + at..start + len, start + at + 1);
                self.slots[start + at] = edge;
                Children::block(start, len + 1)
            }
            List::Block { start, len } => {
                let moved = self.allocate(len + 1);
                self.slots.copy_within(start..start + at, moved);
                self.slots[moved + at] = edge;
                self.slots
                    .copy_within(start + at..start + len, moved + at + 1);
                self.release(start, len);
                Children::block(moved, len + 1)
            }
        }
    }

    /// Removes the edge at position `at`.
    pub(crate) fn remove(&mut self, children: Children, at: usize) -> Children {
        let List::Block { start, len } = children.list() else {
            return Children::EMPTY;
        };
        if len == 2 {
            let kept = self.slots[start + 1 - at];
            self.release(start, len);
            return Children(kept);
        }
        self.slots
            .copy_within(start + at + 1..start + len, start + at);
        if class(len - 1) == class(len) {
            return Children::block(start, len - 1);
        }
        let moved = self.allocate(len - 1);
        self.slots.copy_within(start..start + len - 1, moved);
        self.release(start, len);
        Children::block(moved, len - 1)
    }

    /// Start of a block for `len` edges.
    fn allocate(&mut self, len: usize) -> usize {
        let class = class(len);
        self.live += 1 << class;
        if let Some(start) = self.take_free(class) {
            return start as usize;
        }
        let start = self.slots.len();
        let empty = Edge {
            label: NONE,
            link: Link::node(0),
        };
        reserve_slack(&mut self.slots, 1 << class);
        self.slots.resize(start + (1 << class), empty);
        start
    }

    /// A free block of the class, split off a larger one if necessary.
    fn take_free(&mut self, class: usize) -> Option<u32> {
        let found = (class..CLASSES).find(|&c| self.free[c] != NONE)?;
        let start = self.free[found];
        self.free[found] = self.slots[start as usize].label;
        for half in class..found {
            self.chain(start + (1 << half), half);
        }
        Some(start)
    }

    fn release(&mut self, start: usize, len: usize) {
        self.live -= 1 << class(len);
        self.chain(start as u32, class(len));
    }

    fn chain(&mut self, start: u32, class: usize) {
        self.slots[start as usize].label = self.free[class];
        self.free[class] = start;
    }

    /// Number of slots in free chains, for the accounting check.
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

    /// Number of arena slots of a list of `len` edges.
    #[cfg(test)]
    pub(crate) fn capacity(len: usize) -> usize {
        if len < 2 { 0 } else { len.next_power_of_two() }
    }
}
