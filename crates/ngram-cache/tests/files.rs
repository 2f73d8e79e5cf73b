//! Saved caches: exact round trips, and a clear error for every damaged file.

use std::fs;
use std::path::PathBuf;

use ngram_cache::{CacheConfig, CacheError, Eviction, NgramCache};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use vocab_align::{DraftId, TargetId};

const HEADER: usize = 20;
const CHECKSUM: usize = 32;

fn sample(eviction: Eviction) -> NgramCache {
    let max_entries = Some(6);
    let mut cache = NgramCache::new(CacheConfig {
        eviction,
        max_entries,
        max_bytes: Some(100_000),
    });
    for i in 0..9u32 {
        let ngram = [DraftId(i % 3), DraftId(i), DraftId(7)];
        cache.insert(&ngram[..2 + i as usize % 2], TargetId(100 + i));
        // Claimed by two tokens.
        cache.insert(&[DraftId(1), DraftId(1), DraftId(7)], TargetId(101 + i % 2));
    }
    cache
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("cache.bin")
    }

    fn load(&self, bytes: &[u8]) -> Result<NgramCache, CacheError> {
        fs::write(self.path(), bytes).unwrap();
        NgramCache::load(self.path())
    }

    fn saved(&self, cache: &NgramCache) -> Vec<u8> {
        cache.save(self.path()).unwrap();
        fs::read(self.path()).unwrap()
    }
}

/// A file with this body and a valid header and checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut file = b"ngramc\r\n".to_vec();
    file.extend(2u32.to_le_bytes());
    file.extend((body.len() as u64).to_le_bytes());
    file.extend(body);
    let checksum = Sha256::digest(&file);
    file.extend(checksum);
    file
}

#[test]
fn a_loaded_cache_goes_on_as_the_saved_one_would() {
    let scratch = Scratch::new();
    for eviction in [Eviction::None, Eviction::Lru, Eviction::Lfu] {
        let mut saved = sample(eviction);
        let bytes = scratch.saved(&saved);
        let mut loaded = scratch.load(&bytes).unwrap();
        assert_eq!(loaded.stats().evictions, saved.stats().evictions);
        for i in 0..20u32 {
            let ngram = [DraftId(50 + i), DraftId(i)];
            assert_eq!(
                loaded.insert(&ngram, TargetId(i)),
                saved.insert(&ngram, TargetId(i))
            );
        }
        assert!(loaded.entries().eq(saved.entries()));
        assert_eq!(scratch.saved(&loaded), scratch.saved(&saved));
    }
}

#[test]
fn saving_replaces_the_file_and_leaves_nothing_else() {
    let scratch = Scratch::new();
    scratch.saved(&sample(Eviction::Lru));
    scratch.saved(&NgramCache::new(CacheConfig::default()));
    assert!(NgramCache::load(scratch.path()).unwrap().is_empty());
    assert_eq!(fs::read_dir(scratch.0.path()).unwrap().count(), 1);
}

#[test]
fn a_save_that_fails_leaves_the_old_file() {
    let scratch = Scratch::new();
    // A folder in the place of the file: the rename must fail and clean up.
    fs::create_dir(scratch.path()).unwrap();
    let error = sample(Eviction::Lru).save(scratch.path()).unwrap_err();
    assert!(
        matches!(
            error,
            CacheError::Io {
                action: "replace",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fs::read_dir(scratch.0.path()).unwrap().count(), 1);
    let missing = scratch.0.path().join("no/such/folder/cache.bin");
    let error = sample(Eviction::Lru).save(missing).unwrap_err();
    assert!(
        matches!(
            error,
            CacheError::Io {
                action: "write",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn every_truncation_and_every_flipped_byte_is_an_error() {
    let scratch = Scratch::new();
    let bytes = scratch.saved(&sample(Eviction::Lfu));
    for len in 0..bytes.len() {
        let error = scratch.load(&bytes[..len]).unwrap_err();
        assert!(matches!(error, CacheError::Length { .. }), "{len}: {error}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        let error = scratch.load(&damaged).unwrap_err();
        let as_expected = match at {
            0..8 => matches!(error, CacheError::NotACache { .. }),
            8..12 => matches!(error, CacheError::Version { supported: 2, .. }),
            12..HEADER => matches!(error, CacheError::Length { .. }),
            _ => matches!(error, CacheError::Checksum { .. }),
        };
        assert!(as_expected, "byte {at}: {error}");
        assert!(error.to_string().contains("cache.bin"), "{error}");
    }
}

#[test]
fn a_sealed_file_that_breaks_a_rule_names_the_ngram() {
    let scratch = Scratch::new();
    let head = |eviction: u8, limit: u64, ngrams: u64| {
        let mut body = vec![eviction];
        [limit, u64::MAX, 0, ngrams]
            .iter()
            .for_each(|f| body.extend(f.to_le_bytes()));
        body
    };
    let with = |mut body: Vec<u8>, fields: &[u32]| {
        fields.iter().for_each(|f| body.extend(f.to_le_bytes()));
        sealed(&body)
    };
    let cases = [
        (with(head(3, u64::MAX, 0), &[]), 0, "policy"),
        (with(head(1, 0, 1), &[2, 9, 1, 0, 0, 5, 6]), 0, "limit"),
        (
            with(head(0, u64::MAX, 1), &[1, 9, 1, 0, 0, 5]),
            0,
            "two valid",
        ),
        (
            with(head(0, u64::MAX, 1), &[2, 9, 1, 0, 0, 5, u32::MAX]),
            0,
            "two valid",
        ),
        (
            with(head(0, u64::MAX, 1), &[2, 9, 0, 0, 0, 5, 6]),
            0,
            "zero",
        ),
        (
            with(head(0, u64::MAX, u64::MAX), &[2, 9, 1, 0, 0, 5, 6]),
            1,
            "middle",
        ),
        (
            with(head(0, u64::MAX, 1), &[u32::MAX, 9, 1, 0, 0, 5, 6]),
            0,
            "middle",
        ),
        (
            with(
                head(0, u64::MAX, 2),
                &[2, 9, 1, 0, 0, 5, 6, 2, 8, 1, 0, 0, 5, 6],
            ),
            1,
            "twice",
        ),
        (
            with(
                head(2, u64::MAX, 2),
                &[2, 9, 3, 0, 0, 5, 6, 2, 9, 1, 0, 0, 5, 7],
            ),
            1,
            "order",
        ),
        (
            with(head(0, u64::MAX, 1), &[2, 9, 1, 0, 0, 5, 6, 7]),
            1,
            "left over",
        ),
        (
            with(head(0, u64::MAX, 1), &[2, 9, 1, 8, 2, 5, 6]),
            0,
            "rival",
        ),
        (
            with(head(0, u64::MAX, 1), &[2, 9, 1, 9, 1, 5, 6]),
            0,
            "rival",
        ),
        (
            with(head(0, u64::MAX, 1), &[2, 9, 1, 8, 0, 5, 6]),
            0,
            "rival",
        ),
        (sealed(&[0; 5]), 0, "head"),
    ];
    for (file, at, reason) in cases {
        let error = scratch.load(&file).unwrap_err();
        let named = matches!(error, CacheError::Malformed { entry, .. } if entry == at);
        assert!(
            named && error.to_string().contains(reason),
            "{reason}: {error}"
        );
    }
    let right = with(head(2, u64::MAX, 1), &[2, 9, 3, 8, 2, 5, 6]);
    let loaded = scratch.load(&right).unwrap();
    let found = loaded.get(&[DraftId(5), DraftId(6)]).unwrap();
    assert_eq!((found.target, found.count), (TargetId(9), 3));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sealed_file_with_any_body_never_panics(
        at in any::<prop::sample::Index>(),
        replacement in prop::collection::vec(any::<u8>(), 1..12),
        garbage in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let scratch = Scratch::new();
        let bytes = scratch.saved(&sample(Eviction::Lfu));
        let mut body = bytes[HEADER..bytes.len() - CHECKSUM].to_vec();
        let at = at.index(body.len() - replacement.len());
        body[at..at + replacement.len()].copy_from_slice(&replacement);
        for body in [body, garbage] {
            if let Ok(cache) = scratch.load(&sealed(&body)) {
                prop_assert_eq!(scratch.saved(&cache), sealed(&body));
            }
        }
    }
}
