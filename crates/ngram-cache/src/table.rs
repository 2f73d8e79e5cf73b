//! A table of n-grams made from two vocabularies alone, without a stream.

use vocab_align::{DraftId, TargetId, Vocabulary};

use crate::cache::{CacheConfig, NgramCache};

/// Every target token that the draft tokenizer spells in several tokens, under that spelling: what a
/// cache would hold if text always met the draft tokenizer's canonical spelling. The baseline of a
/// cache that learns spellings online.
///
/// Special tokens are left out, and tokens whose bytes the draft tokenizer cannot spell. Tokens are
/// entered by id, so a bounded table keeps the first ones (with eviction, the last).
pub fn static_table(
    draft: &Vocabulary<DraftId>,
    target: &Vocabulary<TargetId>,
    config: CacheConfig,
) -> NgramCache {
    let mut cache = NgramCache::new(config);
    for index in 0..target.len() {
        let Ok(id) = u32::try_from(index).map(TargetId) else {
            break;
        };
        if target.role(id).is_some() {
            continue;
        }
        let Some(bytes) = target.bytes(id).filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        if let Ok(spelling) = draft.encode_bytes(bytes) {
            // One draft token is a direct mapping, not an n-gram; the cache refuses it.
            let _ = cache.insert(&spelling, id);
        }
    }
    cache
}
