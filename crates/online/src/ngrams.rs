//! The n-gram caches of a finished job, as rows.

use ngram_cache::Ngram;
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
