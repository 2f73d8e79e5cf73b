//! Cases worked by hand: several n-grams per token, prefixes, eviction, traversal, mining.

use ngram_cache::{
    CacheConfig, Eviction, Insertion, Kind, Ngram, NgramCache, NgramMatch, mine, static_table,
    translate,
};
use vocab_align::{AlignedSpan, DraftId, TargetId, Vocabulary};

fn draft(ids: &[u32]) -> Vec<DraftId> {
    ids.iter().copied().map(DraftId).collect()
}

fn cache_of(config: CacheConfig, ngrams: &[(&[u32], u32)]) -> NgramCache {
    let mut cache = NgramCache::new(config);
    for (ids, target) in ngrams {
        cache.insert(&draft(ids), TargetId(*target));
    }
    cache
}

fn limited(eviction: Eviction, max: usize) -> CacheConfig {
    CacheConfig {
        eviction,
        max_entries: Some(max),
        max_bytes: None,
    }
}

/// Target token and count of an n-gram.
fn known(cache: &NgramCache, ids: &[u32]) -> Option<(TargetId, u32)> {
    let found = cache.get(&draft(ids))?;
    Some((found.target, found.count))
}

fn stored(cache: &NgramCache) -> Vec<Vec<u32>> {
    let ids = |n: ngram_cache::Ngram| n.draft.iter().map(|d| d.0).collect();
    cache.entries().map(ids).collect()
}

#[test]
fn a_target_may_have_several_spellings() {
    let cache = cache_of(CacheConfig::default(), &[(&[1, 2], 10), (&[3, 4, 5], 10)]);
    assert_eq!(cache.len(), 2);
    let target = |ids: &[u32]| cache.longest_match(&draft(ids)).map(|m| m.target.0);
    assert_eq!(target(&[1, 2]), Some(10));
    assert_eq!(target(&[3, 4, 5]), Some(10));
}

#[test]
fn the_longest_prefix_ngram_wins_whatever_the_insertion_order() {
    let short_first = cache_of(
        CacheConfig::default(),
        &[(&[1, 2], 10), (&[1, 2, 3, 4], 11)],
    );
    let long_first = cache_of(
        CacheConfig::default(),
        &[(&[1, 2, 3, 4], 11), (&[1, 2], 10)],
    );
    for cache in [short_first, long_first] {
        let found = |ids: &[u32]| {
            cache
                .longest_match(&draft(ids))
                .map(|m| (m.target.0, m.len))
        };
        assert_eq!(found(&[1, 2, 3, 4, 5]), Some((11, 4)));
        // One token short of the longer n-gram, the shorter one still counts.
        assert_eq!(found(&[1, 2, 3, 9]), Some((10, 2)));
        assert_eq!(found(&[1]), None);
    }
}

#[test]
fn what_is_no_ngram_is_refused() {
    let mut cache = NgramCache::new(CacheConfig::default());
    for ids in [&[][..], &[1], &[1, u32::MAX], &[i32::MAX as u32, 1]] {
        assert_eq!(cache.insert(&draft(ids), TargetId(1)), Insertion::Invalid);
    }
    assert!(cache.is_empty());
    assert_eq!(cache.longest_match(&draft(&[1, u32::MAX])), None);
}

#[test]
fn without_eviction_a_full_cache_turns_newcomers_away() {
    let mut cache = cache_of(limited(Eviction::None, 1), &[(&[1, 2], 10)]);
    assert_eq!(cache.insert(&draft(&[3, 4]), TargetId(11)), Insertion::Full);
    assert_eq!(
        cache.insert(&draft(&[1, 2]), TargetId(10)),
        Insertion::Known { count: 2 }
    );
    assert_eq!(stored(&cache), [[1, 2]]);
}

#[test]
fn lru_evicts_the_one_not_seen_for_longest() {
    let mut cache = cache_of(limited(Eviction::Lru, 2), &[(&[1, 2], 10), (&[3, 4], 11)]);
    cache.insert(&draft(&[1, 2]), TargetId(10));
    let Insertion::Evicted(victims) = cache.insert(&draft(&[5, 6]), TargetId(12)) else {
        panic!("nothing was evicted");
    };
    let [victim] = &victims[..] else {
        panic!("{victims:?}");
    };
    assert_eq!(
        (&victim.draft, victim.target),
        (&draft(&[3, 4]), TargetId(11))
    );
    assert_eq!(stored(&cache), [[1, 2], [5, 6]]);
}

#[test]
fn lfu_evicts_the_rarest_and_among_those_the_oldest() {
    let three: &[(&[u32], u32)] = &[(&[1, 2], 10), (&[3, 4], 11), (&[5, 6], 12)];
    let mut cache = cache_of(limited(Eviction::Lfu, 3), three);
    cache.insert(&draft(&[1, 2]), TargetId(10));
    cache.insert(&draft(&[7, 8]), TargetId(13));
    assert_eq!(stored(&cache), [[1, 2], [5, 6], [7, 8]]);
    // The new n-gram replaced the older of the two with count 1; now 5 6 is the oldest.
    cache.insert(&draft(&[9, 9]), TargetId(14));
    assert_eq!(stored(&cache), [[1, 2], [7, 8], [9, 9]]);
}

#[test]
fn a_limit_of_zero_stores_nothing() {
    for eviction in [Eviction::None, Eviction::Lru, Eviction::Lfu] {
        let cache = cache_of(limited(eviction, 0), &[(&[1, 2], 10)]);
        assert!(cache.is_empty());
    }
}

#[test]
fn evicting_one_of_two_nested_ngrams_leaves_the_other() {
    let nested: &[(&[u32], u32)] = &[(&[1, 2], 10), (&[1, 2, 3], 11)];
    let mut shorter_gone = cache_of(limited(Eviction::Lru, 2), nested);
    shorter_gone.insert(&draft(&[8, 9]), TargetId(12));
    assert_eq!(shorter_gone.longest_match(&draft(&[1, 2, 9])), None);
    let longer = Some(NgramMatch {
        target: TargetId(11),
        len: 3,
    });
    assert_eq!(shorter_gone.longest_match(&draft(&[1, 2, 3])), longer);

    let mut longer_gone = cache_of(limited(Eviction::Lru, 2), nested);
    longer_gone.insert(&draft(&[1, 2]), TargetId(10));
    longer_gone.insert(&draft(&[8, 9]), TargetId(12));
    let shorter = Some(NgramMatch {
        target: TargetId(10),
        len: 2,
    });
    assert_eq!(longer_gone.longest_match(&draft(&[1, 2, 3])), shorter);
    let node = longer_gone.child(longer_gone.root(), DraftId(1)).unwrap();
    let node = longer_gone.child(node, DraftId(2)).unwrap();
    assert_eq!(longer_gone.children(node).len(), 0);
}

#[test]
fn walking_shows_children_in_order_and_whole_subtrees() {
    let ngrams: &[(&[u32], u32)] = &[
        (&[5, 2], 12),
        (&[1, 9], 11),
        (&[1, 3, 4], 13),
        (&[1, 3], 10),
    ];
    let cache = cache_of(CacheConfig::default(), ngrams);
    let labels = |node| cache.children(node).map(|(d, _)| d.0).collect::<Vec<_>>();
    assert_eq!(labels(cache.root()), [1, 5]);
    assert_eq!(cache.children(cache.root()).len(), 2);
    let one = cache.child(cache.root(), DraftId(1)).unwrap();
    assert_eq!(cache.token(one), None);
    assert_eq!(labels(one), [3, 9]);
    let three = cache.child(one, DraftId(3)).unwrap();
    assert_eq!(cache.token(three), Some(TargetId(10)));
    assert_eq!(labels(three), [4]);
    assert_eq!(cache.child(three, DraftId(9)), None);
    let group: Vec<u32> = cache.subtree(one).map(|(_, t)| t.0).collect();
    assert_eq!(group, [10, 13, 11]);
}

#[test]
fn translation_merges_maps_and_stops() {
    let cache = cache_of(CacheConfig::default(), &[(&[1, 2], 10), (&[1, 2, 3], 11)]);
    let direct = |d: DraftId| (d.0 >= 5).then_some(TargetId(d.0));
    let translated = |ids: &[u32], cache| {
        let tokens = translate(&draft(ids), direct, cache).into_iter();
        tokens
            .map(|t| (t.target.0, t.span, t.kind))
            .collect::<Vec<_>>()
    };
    let merged = translated(&[5, 1, 2, 3, 1, 2, 6, 1], Some(&cache));
    let expected = [
        (5, 0..1, Kind::Direct),
        (11, 1..4, Kind::Ngram),
        (10, 4..6, Kind::Ngram),
        (6, 6..7, Kind::Direct),
    ];
    assert_eq!(merged, expected);
    // Direct mapping only: the draft ends at its first token outside the shared vocabulary.
    assert_eq!(
        translated(&[5, 6, 1, 2], None),
        [(5, 0..1, Kind::Direct), (6, 1..2, Kind::Direct)]
    );
    assert!(translated(&[], Some(&cache)).is_empty());
}

#[test]
fn only_spans_of_one_target_token_are_mined() {
    let span = |draft, target| AlignedSpan { draft, target };
    // 1:1, 3:1 (an n-gram), 2:2 (no common boundary inside), 1:2, and a special token of the target.
    let spans = [
        span(0..1, 0..1),
        span(1..4, 1..2),
        span(4..6, 2..4),
        span(6..7, 4..6),
        span(7..7, 6..7),
    ];
    let (ids, targets) = (
        draft(&[1, 2, 3, 4, 5, 6, 7]),
        [10, 11, 12, 13, 14, 15, 16].map(TargetId),
    );
    let mined: Vec<_> = mine(&spans, &ids, &targets).collect();
    assert_eq!(mined, [(&draft(&[2, 3, 4])[..], TargetId(11))]);
    // Spans that do not belong to the slices must not panic.
    assert_eq!(mine(&spans, &ids[..2], &targets[..1]).count(), 0);
}

#[test]
fn statistics_count_lengths_and_frequencies() {
    let mut cache = cache_of(
        CacheConfig::default(),
        &[(&[1, 2], 10), (&[3, 4], 11), (&[1, 2, 3], 12)],
    );
    cache.insert(&draft(&[1, 2]), TargetId(10));
    let stats = cache.stats();
    assert_eq!((stats.ngrams, stats.evictions), (3, 0));
    assert_eq!(stats.lengths, [(2, 2), (3, 1)].into());
    assert_eq!(stats.frequencies, [(1, 2), (2, 1)].into());
    assert_eq!(stats.bytes, cache.memory_bytes());
    assert_eq!(
        NgramCache::new(CacheConfig::default())
            .stats()
            .bytes_per_ngram,
        0.0
    );
}

#[test]
fn cutting_a_full_cache_keeps_the_most_seen() {
    let mut cache = cache_of(
        CacheConfig::default(),
        &[(&[1, 2], 10), (&[3, 4], 11), (&[5, 6], 12)],
    );
    cache.insert(&draft(&[3, 4]), TargetId(11));
    assert_eq!(cache.reconfigure(limited(Eviction::Lfu, 1)), 2);
    assert_eq!(stored(&cache), [[3, 4]]);
}

#[test]
fn configurations_read_from_toml_like_data() {
    let parsed: CacheConfig =
        serde_json::from_str(r#"{"eviction":"lfu","max_entries":5}"#).unwrap();
    assert_eq!(parsed, limited(Eviction::Lfu, 5));
    assert_eq!(
        serde_json::from_str::<CacheConfig>("{}").unwrap(),
        CacheConfig::default()
    );
    assert!(serde_json::from_str::<CacheConfig>(r#"{"evict":"lfu"}"#).is_err());
}

#[test]
fn a_conflict_changes_its_mind() {
    let mut cache = cache_of(CacheConfig::default(), &[(&[1, 2], 10), (&[1, 2], 10)]);
    let seen_as =
        |cache: &mut NgramCache, token: u32| cache.insert(&draft(&[1, 2]), TargetId(token));
    let kept = TargetId(10);
    for _ in 0..2 {
        assert_eq!(seen_as(&mut cache, 11), Insertion::Conflict { kept });
    }
    let before = cache.generation();
    // Seen three times against two.
    assert_eq!(
        seen_as(&mut cache, 11),
        Insertion::Replaced { before: kept }
    );
    assert_ne!(cache.generation(), before);
    assert_eq!(known(&cache, &[1, 2]), Some((TargetId(11), 3)));
    // The first token comes back only when it has the higher count again.
    assert_eq!(
        seen_as(&mut cache, 10),
        Insertion::Conflict { kept: TargetId(11) }
    );
    assert_eq!(
        seen_as(&mut cache, 10),
        Insertion::Replaced {
            before: TargetId(11)
        }
    );
    // A third token uses up the rival's count before it replaces it.
    for _ in 0..3 {
        assert_eq!(seen_as(&mut cache, 12), Insertion::Conflict { kept });
    }
    for _ in 0..4 {
        assert_eq!(seen_as(&mut cache, 12), Insertion::Conflict { kept });
    }
    assert_eq!(
        seen_as(&mut cache, 12),
        Insertion::Replaced { before: kept }
    );
}

#[test]
fn a_byte_budget_is_kept() {
    let budget = |eviction, max_bytes| CacheConfig {
        eviction,
        max_entries: None,
        max_bytes: Some(max_bytes),
    };
    let ngram = |i: u32| draft(&[i % 97, i % 89, i % 11][..2 + i as usize % 2]);
    for eviction in [Eviction::None, Eviction::Lru, Eviction::Lfu] {
        for bytes in [0, 300, 2_000, 20_000] {
            let mut cache = NgramCache::new(budget(eviction, bytes));
            let (mut most, mut evicted, mut refused) = (0, 0, 0);
            for i in 0..8000 {
                match cache.insert(&ngram(i * 7919), TargetId(i % 97)) {
                    Insertion::Evicted(victims) => evicted += victims.len(),
                    Insertion::Full => refused += 1,
                    _ => {}
                }
                most = most.max(cache.memory_bytes());
                assert!(cache.is_empty() || cache.budgeted_bytes() <= bytes);
            }
            // Known n-grams, seen for other tokens.
            let known: Vec<_> = cache.entries().collect();
            for Ngram { draft, target, .. } in known {
                cache.insert(&draft, TargetId(target.0 + 1000));
                most = most.max(cache.memory_bytes());
                let used = cache.budgeted_bytes();
                assert!(used <= bytes, "{eviction:?}: {used} of {bytes}");
            }
            let empty = NgramCache::new(CacheConfig::default()).memory_bytes();
            assert!(
                most <= bytes.max(empty + 64),
                "{eviction:?}: {most} of {bytes}"
            );
            match eviction {
                Eviction::None => assert!(evicted == 0 && refused > 0),
                _ => assert_eq!(evicted > 0, bytes > empty),
            }
            // The limits hold as well after a round trip through a file.
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("cache.bin");
            cache.save(&path).unwrap();
            let mut again = NgramCache::load(&path).unwrap();
            assert_eq!(again.budgeted_bytes(), cache.budgeted_bytes());
            for i in 0..500 {
                let (ngram, token) = (ngram(i * 31), TargetId(i % 97));
                assert_eq!(again.insert(&ngram, token), cache.insert(&ngram, token));
            }
        }
    }
}

#[test]
fn a_static_table_has_no_ngrams_of_other_text() {
    let draft = r#"{"model": {"type": "BPE", "unk_token": "<unk>", "merges": [],
        "vocab": {"<unk>": 0, "a": 1, "b": 2}}}"#;
    let target = r#"{"model": {"type": "BPE", "merges": [["a", "b"], ["a", "?"]],
        "vocab": {"a": 0, "b": 1, "?": 2, "ab": 3, "a?": 4}}}"#;
    let draft: Vocabulary<DraftId> = Vocabulary::from_json(draft, "draft").unwrap();
    let target: Vocabulary<TargetId> = Vocabulary::from_json(target, "target").unwrap();
    let table = static_table(&draft, &target, CacheConfig::default());
    assert_eq!(stored(&table), [[1, 2]]);
    table.check_bytes(&draft, &target).unwrap();
}
