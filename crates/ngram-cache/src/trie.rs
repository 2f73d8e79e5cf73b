//! The trie: paths of draft tokens to entries (a target token and a count).
//!
//! Shape: every n-gram is a *leaf*. An n-gram that is also a prefix of a longer one hangs under its own
//! inner node by an edge with the reserved label [`END`], so entries need no case distinction.
//!
//! Invariants (checked by `check` in tests):
//! - every inner node but the root has a child, and an inner node never has `END` as its only child;
//! - the edges of a node are sorted by label and have distinct labels (`END` is the largest);
//! - an entry knows its inner node, an inner node its parent and label, so that removal needs no search
//!   from the root;
//! - every arena slot is either reachable from the root or in exactly one free chain.

use vocab_align::DraftId;

use crate::memory::{heap_bytes, reserve_slack};
use crate::pool::{Children, Edge, EdgePool, Link, MAX_LABEL, NONE, Place};

/// Label of the edge from an inner node to its own entry; draft ids must be below it.
pub(crate) const END: u32 = MAX_LABEL;

/// Index of the root among the inner nodes.
pub(crate) const ROOT: u32 = 0;

/// Largest number of slots of an arena, far below the overflow of 32-bit positions.
const MAX_SLOTS: usize = 1 << 30;

#[derive(Clone, Debug)]
struct Node {
    children: Children,
    parent: u32,
    label: u32,
}

/// Data of one n-gram.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) target: u32,
    pub(crate) count: u32,
    /// The inner node whose edge leads here; the next free slot while the entry is free.
    parent: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Trie {
    /// Children of the root. They are stored apart from the pool: there are thousands, and
    /// power-of-two blocks of that size would leave holes that no other node could fill.
    root: Vec<Edge>,
    nodes: Vec<Node>,
    entries: Vec<Entry>,
    pool: EdgePool,
    free_node: u32,
    free_entry: u32,
    live_nodes: usize,
    live_entries: usize,
}

impl Trie {
    pub(crate) fn new() -> Self {
        let root = Node {
            children: Children::EMPTY,
            parent: ROOT,
            label: END,
        };
        Self {
            root: Vec::new(),
            nodes: vec![root],
            entries: Vec::new(),
            pool: EdgePool::new(),
            free_node: NONE,
            free_entry: NONE,
            live_nodes: 1,
            live_entries: 0,
        }
    }

    /// Number of n-grams.
    pub(crate) fn len(&self) -> usize {
        self.live_entries
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes(&self.root)
            + heap_bytes(&self.nodes)
            + heap_bytes(&self.entries)
            + self.pool.heap_bytes()
    }

    /// Number of bytes in use. It depends only on the stored n-grams, not on earlier ones.
    pub(crate) fn live_bytes(&self) -> usize {
        self.root.len() * size_of::<Edge>()
            + self.live_nodes * size_of::<Node>()
            + self.live_entries * size_of::<Entry>()
            + self.pool.live_bytes()
    }

    /// [`live_bytes`](Self::live_bytes) with one n-gram of `length` tokens and nothing else.
    pub(crate) const fn bytes_of_one(length: usize) -> usize {
        // The root, one node per token but the last, an edge at the root, the entry.
        length * size_of::<Node>() + size_of::<Edge>() + size_of::<Entry>()
    }

    /// True if one more n-gram of `length` tokens can be stored.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        let largest = self.nodes.len().max(self.entries.len());
        largest.max(self.pool.slots()).saturating_add(length) < MAX_SLOTS
    }

    pub(crate) fn entry(&self, entry: u32) -> &Entry {
        &self.entries[entry as usize]
    }

    /// The target token of an entry; `None` for an index that this trie never returned.
    pub(crate) fn target(&self, entry: u32) -> Option<u32> {
        self.entries.get(entry as usize).map(|e| e.target)
    }

    pub(crate) fn entry_mut(&mut self, entry: u32) -> &mut Entry {
        &mut self.entries[entry as usize]
    }

    /// All edges of the node that a link leads to, `END` included; none for an entry.
    pub(crate) fn edges(&self, link: Link) -> &[Edge] {
        match link.place() {
            Place::Node(node) => self.node_edges(node),
            Place::Entry(_) => &[],
        }
    }

    /// The edges of a link's node that are labelled with draft tokens.
    pub(crate) fn children(&self, link: Link) -> &[Edge] {
        match self.edges(link) {
            [children @ .., last] if last.label == END => children,
            children => children,
        }
    }

    pub(crate) fn child(&self, link: Link, label: u32) -> Option<Link> {
        let edges = self.children(link);
        let at = edges.binary_search_by_key(&label, |e| e.label).ok()?;
        Some(edges[at].link)
    }

    /// The entry of the n-gram that ends at a link.
    pub(crate) fn entry_at(&self, link: Link) -> Option<u32> {
        let link = match self.edges(link).last() {
            Some(last) if last.label == END => last.link,
            _ => link,
        };
        match link.place() {
            Place::Entry(entry) => Some(entry),
            Place::Node(_) => None,
        }
    }

    /// The entry of exactly this n-gram.
    pub(crate) fn find(&self, path: &[DraftId]) -> Option<u32> {
        let mut at = Link::node(ROOT);
        for token in path {
            at = self.child(at, token.0)?;
        }
        self.entry_at(at)
    }

    /// Adds an n-gram that is not stored yet, with ids below [`END`] and at least two of them.
    pub(crate) fn insert(&mut self, path: &[DraftId], target: u32, count: u32) -> u32 {
        let entry = self.new_entry(target, count);
        let mut node = ROOT;
        for (i, &DraftId(label)) in path.iter().enumerate() {
            match self.child(Link::node(node), label).map(Link::place) {
                None if i + 1 == path.len() => {
                    self.hang(entry, node, label);
                    return entry;
                }
                None => node = self.new_node(node, label),
                Some(Place::Node(next)) => node = next,
                Some(Place::Entry(shorter)) => node = self.push_down(shorter, node, label),
            }
        }
        self.hang(entry, node, END);
        entry
    }

    /// Removes an n-gram and every node that existed only for it.
    pub(crate) fn remove(&mut self, entry: u32) {
        let node = self.entries[entry as usize].parent;
        if let Some(at) = self.position_of(node, Link::entry(entry)) {
            self.remove_edge(node, at);
        }
        self.entries[entry as usize].parent = self.free_entry;
        self.free_entry = entry;
        self.live_entries -= 1;
        self.prune(node);
    }

    /// The draft tokens of an entry, read upwards from its leaf.
    pub(crate) fn path(&self, entry: u32) -> Vec<DraftId> {
        let mut node = self.entries[entry as usize].parent;
        let edges = self.node_edges(node);
        let label = self
            .position_of(node, Link::entry(entry))
            .map(|at| edges[at].label);
        let label = label.filter(|label| *label != END);
        let mut path: Vec<DraftId> = label.map(DraftId).into_iter().collect();
        while node != ROOT {
            // The parent of a freed entry is the next free slot, which need not be a node.
            let Some(inner) = self.nodes.get(node as usize) else {
                break;
            };
            path.push(DraftId(inner.label));
            node = inner.parent;
        }
        path.reverse();
        path
    }

    fn node_edges(&self, node: u32) -> &[Edge] {
        if node == ROOT {
            return &self.root;
        }
        match self.nodes.get(node as usize) {
            Some(node) => self.pool.edges(&node.children),
            None => &[],
        }
    }

    fn position_of(&self, node: u32, link: Link) -> Option<usize> {
        self.node_edges(node).iter().position(|e| e.link == link)
    }

    fn hang(&mut self, entry: u32, node: u32, label: u32) {
        self.entries[entry as usize].parent = node;
        self.add_edge(node, label, Link::entry(entry));
    }

    /// Replaces the leaf `entry` at (`node`, `label`) by an inner node that carries it.
    fn push_down(&mut self, entry: u32, node: u32, label: u32) -> u32 {
        let inner = self.take_node(node, label);
        self.relink(node, label, Link::node(inner));
        self.hang(entry, inner, END);
        inner
    }

    /// Restores the shape of the trie after an edge of `node` was removed.
    fn prune(&mut self, mut node: u32) {
        while node != ROOT {
            let Node { parent, label, .. } = self.nodes[node as usize];
            match *self.node_edges(node) {
                [] => {
                    let siblings = self.node_edges(parent);
                    if let Ok(at) = siblings.binary_search_by_key(&label, |e| e.label) {
                        self.remove_edge(parent, at);
                    }
                    self.release_node(node);
                    node = parent;
                }
                [Edge { label: END, link }] => {
                    self.remove_edge(node, 0);
                    self.relink(parent, label, link);
                    if let Place::Entry(entry) = link.place() {
                        self.entries[entry as usize].parent = parent;
                    }
                    self.release_node(node);
                    return;
                }
                _ => return,
            }
        }
    }

    fn new_node(&mut self, parent: u32, label: u32) -> u32 {
        let node = self.take_node(parent, label);
        self.add_edge(parent, label, Link::node(node));
        node
    }

    fn take_node(&mut self, parent: u32, label: u32) -> u32 {
        let fresh = Node {
            children: Children::EMPTY,
            parent,
            label,
        };
        self.live_nodes += 1;
        take_slot(&mut self.nodes, &mut self.free_node, fresh, |n| n.parent)
    }

    fn release_node(&mut self, node: u32) {
        self.nodes[node as usize].parent = self.free_node;
        self.free_node = node;
        self.live_nodes -= 1;
    }

    fn new_entry(&mut self, target: u32, count: u32) -> u32 {
        let fresh = Entry {
            target,
            count,
            parent: ROOT,
        };
        self.live_entries += 1;
        take_slot(&mut self.entries, &mut self.free_entry, fresh, |e| e.parent)
    }

    fn add_edge(&mut self, node: u32, label: u32, link: Link) {
        let edges = self.node_edges(node);
        let at = edges.partition_point(|e| e.label < label);
        let edge = Edge { label, link };
        if node == ROOT {
            reserve_slack(&mut self.root, 1);
            self.root.insert(at, edge);
        } else {
            let node = &mut self.nodes[node as usize];
            node.children = self.pool.insert(node.children, at, edge);
        }
    }

    fn remove_edge(&mut self, node: u32, at: usize) {
        if node == ROOT {
            self.root.remove(at);
        } else {
            let node = &mut self.nodes[node as usize];
            node.children = self.pool.remove(node.children, at);
        }
    }

    fn relink(&mut self, node: u32, label: u32, link: Link) {
        let edges = if node == ROOT {
            &mut self.root[..]
        } else {
            self.pool.edges_mut(&mut self.nodes[node as usize].children)
        };
        if let Ok(at) = edges.binary_search_by_key(&label, |e| e.label) {
            edges[at].link = link;
        }
    }
}

/// Stores `fresh` in the first free slot of an arena, or at its end.
fn take_slot<T>(arena: &mut Vec<T>, free: &mut u32, fresh: T, next: impl Fn(&T) -> u32) -> u32 {
    if *free == NONE {
        let index = arena.len();
        reserve_slack(arena, 1);
        arena.push(fresh);
        return index as u32;
    }
    let index = *free;
    *free = next(&arena[index as usize]);
    arena[index as usize] = fresh;
    index
}

#[cfg(test)]
mod check {
    use super::*;

    impl Trie {
        /// Panics unless every invariant of the module documentation holds.
        pub(crate) fn check(&self) {
            let (mut nodes, mut entries, mut slots) = (1, 0, 0);
            let mut pending = vec![ROOT];
            while let Some(node) = pending.pop() {
                let edges = self.node_edges(node);
                assert!(edges.windows(2).all(|w| w[0].label < w[1].label));
                if node != ROOT {
                    assert!(edges.iter().any(|e| e.label != END), "childless inner node");
                    slots += EdgePool::capacity(edges.len());
                }
                for edge in edges {
                    match edge.link.place() {
                        Place::Entry(entry) => {
                            assert_eq!(self.entries[entry as usize].parent, node);
                            entries += 1;
                        }
                        Place::Node(child) => {
                            let child_node = &self.nodes[child as usize];
                            assert_eq!((child_node.parent, child_node.label), (node, edge.label));
                            nodes += 1;
                            pending.push(child);
                        }
                    }
                }
            }
            assert_eq!((nodes, entries), (self.live_nodes, self.live_entries));
            assert_eq!(slots + self.pool.free_slots(), self.pool.slots());
            assert_eq!(slots * size_of::<Edge>(), self.pool.live_bytes());
            assert_eq!(
                nodes + chain(&self.nodes, self.free_node, |n| n.parent),
                self.nodes.len()
            );
            let free_entries = chain(&self.entries, self.free_entry, |e| e.parent);
            assert_eq!(entries + free_entries, self.entries.len());
        }
    }

    fn chain<T>(arena: &[T], mut head: u32, next: impl Fn(&T) -> u32) -> usize {
        let mut length = 0;
        while head != NONE {
            length += 1;
            head = next(&arena[head as usize]);
        }
        length
    }
}
