//! The n-gram caches of arms: of an answer, and of a finished job, as rows.

use std::collections::BTreeMap;

use experiment::{ArmConfig, CacheUse};
use ngram_cache::{Ngram, NgramCache, static_table};
use results::NgramRow;
use spec_decode::Pair;

use super::arm::DraftingArm;

/// Maximum number of n-grams of one cache that are written, the most used first: enough for a table
/// of examples and for the shape of the distribution. An arm has a cache for each vocabulary of its
/// targets.
const MOST: usize = 20_000;

/// One row per n-gram, by arm and cache and then by descending number of uses.
pub(super) fn ngram_rows<'a>(
    arms: impl Iterator<Item = (&'a str, &'a DraftingArm)>,
    pairs: Vec<&Pair>,
) -> Vec<NgramRow> {
    let mut rows = Vec::new();
    for (name, arm) in arms {
        for (fingerprint, cache) in arm.caches() {
            let found = pairs
                .iter()
                .find(|p| p.target.fingerprint() == *fingerprint);
            let Some(pair) = found else {
                continue;
            };
            let mut entries: Vec<Ngram> = cache.entries().collect();
            entries.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.draft.cmp(&b.draft)));
            entries.truncate(MOST);
            rows.extend(entries.into_iter().map(|entry| {
                NgramRow {
                    arm: name.to_owned(),
                    target_text: pair.target.decode_lossy(&[entry.target]),
                    draft_texts: entry
                        .draft
                        .iter()
                        .map(|id| pair.draft.decode_lossy(&[*id]))
                        .collect(),
                    count: u64::from(entry.count),
                }
            }));
        }
    }
    rows
}

/// The n-grams that `arm` merges with for this pair, from the caches of the arm that owns them.
pub(super) fn cache_of<'a>(
    caches: &'a mut BTreeMap<u64, NgramCache>,
    owner: &ArmConfig,
    arm: &ArmConfig,
    pair: &Pair,
) -> Option<&'a mut NgramCache> {
    let fresh = || match owner.cache.source {
        CacheUse::Static => static_table(&pair.draft, &pair.target, owner.cache.into()),
        _ => NgramCache::new(owner.cache.into()),
    };
    if arm.cache.source == CacheUse::None {
        return None;
    }
    let own = pair.target.fingerprint();
    if !owner.cache.keep {
        caches.retain(|other, _| *other == own);
    }
    Some(caches.entry(own).or_insert_with(fresh))
}
