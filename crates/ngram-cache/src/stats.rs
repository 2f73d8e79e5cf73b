//! Statistics of a cache: Table 4 and Figure 7 of the paper.

use std::collections::BTreeMap;

use crate::cache::NgramCache;

/// Size, memory and distributions of a cache.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CacheStats {
    /// Number of n-grams.
    pub ngrams: usize,
    /// Size in bytes: [`NgramCache::memory_bytes`].
    pub bytes: usize,
    /// Size per n-gram in bytes; 0 for an empty cache.
    pub bytes_per_ngram: f64,
    /// Number of evicted n-grams.
    pub evictions: u64,
    /// Number of n-grams by length n.
    pub lengths: BTreeMap<usize, usize>,
    /// Number of n-grams by count (Figure 7).
    pub frequencies: BTreeMap<u32, usize>,
}

impl NgramCache {
    /// Computes all statistics in one pass over the cache.
    pub fn stats(&self) -> CacheStats {
        let bytes = self.memory_bytes();
        let mut stats = CacheStats {
            ngrams: self.len(),
            bytes,
            bytes_per_ngram: bytes as f64 / self.len().max(1) as f64,
            evictions: self.evictions,
            ..CacheStats::default()
        };
        if self.is_empty() {
            stats.bytes_per_ngram = 0.0;
        }
        for ngram in self.entries() {
            *stats.lengths.entry(ngram.draft.len()).or_default() += 1;
            *stats.frequencies.entry(ngram.count).or_default() += 1;
        }
        stats
    }
}
