//! The n-gram cache of cross-vocabulary speculative decoding (OmniDraft, section 3.1).
//!
//! A drafter and a target with different tokenizers disagree on token boundaries: the target's `
//! unbelievable` may be the drafter's ` un`, `believ`, `able`. The cache C stores such pairs (t,
//! d_1..d_n), n >= 2: a target token and draft tokens with the same bytes. Drafts are then
//! *translated*: runs of draft tokens found in C merge into their target token (Eq. 1), all others
//! need a direct mapping. Tokens that the target accepts are tokenised back, and new pairs are
//! [`mine`]d from them (Algorithm 1).
//!
//! | here | in the paper |
//! |---|---|
//! | [`NgramCache`], [`CacheConfig`] | the cache C; size limits and eviction of Table 14 |
//! | [`translate`] | the scan of Eq. 1, "translate" of Algorithm 1 |
//! | [`mine`] | ctx_q, d_1..d_n = tokenize_q(detokenize_p(ctx_p, t)) |
//! | [`replay`] | Table 4, Figures 7 and 9, without a model |
//! | [`NgramCache::root`], [`child`](NgramCache::child), [`token`](NgramCache::token), [`children`](NgramCache::children) | the trie that Eq. 2 and exact verification walk |
//!
//! # Layout
//! A trie over draft ids in four arenas: inner nodes (16 bytes), edges (8, a single child's within
//! its node), entries (12: target token, count, parent) and, only with an eviction policy, a linked
//! order (8). The paper's Python objects take about 235 bytes per n-gram; this layout takes less
//! than 48 in total.
//!
//! # Guarantees
//! - An n-gram has at most one target token; a target token may have many n-grams; an n-gram may be a
//!   prefix of another. The longest match wins.
//! - The trie never yields an n-gram that was evicted, and never keeps a node that no n-gram needs.
//! - The same calls in the same order give the same cache, the same victims and the same file.
//! - The cache does not know bytes. Byte equality holds if all n-grams come from aligned tokenisations
//!   of one text, and can be checked with [`NgramCache::check_bytes`].

mod cache;
mod error;
mod memory;
mod mine;
#[cfg(test)]
mod model_tests;
mod order;
mod persist;
mod pool;
mod replay;
mod stats;
mod table;
mod translate;
mod trie;
mod walk;

pub use cache::{CacheConfig, Eviction, Insertion, Ngram, NgramCache, NgramMatch};
pub use error::CacheError;
pub use mine::mine;
pub use replay::{Replay, ReplayReport, replay};
pub use stats::CacheStats;
pub use table::static_table;
pub use translate::{Kind, Translated, translate};
pub use walk::{EntryId, NodeId};
