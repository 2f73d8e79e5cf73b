//! A table of n-grams from two vocabularies alone, without a stream.

use vocab_align::{DraftId, TargetId, Vocabulary};

use crate::cache::{CacheConfig, NgramCache};

/// The cache of all target tokens whose text the draft tokenizer splits into several tokens, each
/// with these tokens. It is a baseline for a cache that learns online, and assumes that the drafter
/// always writes the text of a target token as its tokenizer does.
///
/// Special tokens, and tokens that the draft tokenizer refuses or cannot write byte for byte, are
/// left out. Tokens are inserted by id, so a bounded table keeps the first ones (with eviction, the
/// last).
pub fn static_table(
    draft: &Vocabulary<DraftId>,
    target: &Vocabulary<TargetId>,
    config: CacheConfig,
) -> NgramCache {
    let mut cache = NgramCache::new(config);
    for id in (0..target.len() as u32).map(TargetId) {
        // Special tokens have no bytes.
        if let Some(bytes) = target.bytes(id)
            && let Ok(spelling) = draft.encode_bytes(bytes)
            && draft.decode_bytes(&spelling) == bytes
        {
            // A single draft token is a direct mapping and no n-gram; the cache refuses it.
            let _ = cache.insert(&spelling, id);
        }
    }
    cache
}
