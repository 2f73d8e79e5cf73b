//! Traversal of the trie, for masked drafting and exact verification.
//!
//! The nodes form the trie of n-grams over draft tokens. Direct tokens are not in it: a caller that
//! needs the joint trie (the group of a draft token d is its direct token and every n-gram that starts
//! with d) adds `Alignment::direct(d)` at the first level.

use vocab_align::{DraftId, TargetId};

use crate::cache::{Ngram, NgramCache};
use crate::pool::Link;
use crate::trie::ROOT;

/// A position in the trie, reached by reading draft tokens from the root.
///
/// Valid until the cache next changes its set of n-grams (see [`NgramCache::generation`]). An outdated
/// id never panics, but it may stand for another position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub(crate) Link);

/// Identifier of a stored n-gram.
///
/// It stays valid after an insertion that raises [`NgramCache::generation`] by one and evicts
/// nothing. After other changes of the generation it may name another n-gram or none: a cache with
/// a limit in bytes moves its n-grams when it gives back memory, and then the generation rises once
/// more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryId(u32);

impl NgramCache {
    /// The n-gram that ends here, if there is one. O(1).
    pub fn entry(&self, node: NodeId) -> Option<EntryId> {
        self.trie.entry_at(node.0).map(EntryId)
    }

    /// The n-gram of exactly these draft tokens.
    pub fn entry_of(&self, draft: &[DraftId]) -> Option<EntryId> {
        self.trie.find(draft).map(EntryId)
    }

    /// The draft tokens of an n-gram, from a valid identifier. An outdated one never panics, but
    /// gives the tokens of another n-gram, other tokens or `None`.
    pub fn spelling(&self, entry: EntryId) -> Option<Vec<DraftId>> {
        self.trie.target(entry.0)?;
        Some(self.trie.path(entry.0))
    }

    /// The position before any draft token.
    pub fn root(&self) -> NodeId {
        NodeId(Link::node(ROOT))
    }

    /// The position after one more draft token, if some n-gram continues with it. One binary search
    /// among the node's children.
    pub fn child(&self, node: NodeId, token: DraftId) -> Option<NodeId> {
        self.trie.child(node.0, token.0).map(NodeId)
    }

    /// The target token of the n-gram that ends here, if there is one. O(1).
    pub fn token(&self, node: NodeId) -> Option<TargetId> {
        let entry = self.trie.entry_at(node.0)?;
        self.trie.target(entry).map(TargetId)
    }

    /// The draft tokens with which some n-gram continues, ascending, with the positions that they
    /// lead to. They are one contiguous array; there is no search.
    pub fn children(
        &self,
        node: NodeId,
    ) -> impl ExactSizeIterator<Item = (DraftId, NodeId)> + Clone {
        let edges = self.trie.children(node.0).iter();
        edges.map(|edge| (DraftId(edge.label), NodeId(edge.link)))
    }

    /// Every n-gram that ends at or below a position, depth first, shorter before longer and
    /// siblings by draft id. The order does not depend on the order of insertion.
    pub fn subtree(&self, node: NodeId) -> impl Iterator<Item = (NodeId, TargetId)> {
        let mut pending = vec![node];
        std::iter::from_fn(move || {
            while let Some(node) = pending.pop() {
                let edges = self.trie.children(node.0).iter().rev();
                pending.extend(edges.map(|edge| NodeId(edge.link)));
                if let Some(token) = self.token(node) {
                    return Some((node, token));
                }
            }
            None
        })
    }

    /// All n-grams, in lexicographic order of their draft ids.
    pub fn entries(&self) -> impl Iterator<Item = Ngram> {
        self.sorted_entries().map(|entry| self.ngram(entry))
    }
}
