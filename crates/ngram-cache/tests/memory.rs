//! `memory_bytes` against an allocator that counts, and the cost of an n-gram under eviction.
//!
//! The allocator counts by thread, so that allocations of the test harness on its own threads are
//! not included.

#![expect(unsafe_code, reason = "a global allocator can be written no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ngram_cache::{CacheConfig, Eviction, NgramCache};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vocab_align::{DraftId, TargetId};

thread_local! {
    /// Number of bytes that this thread has allocated and not freed.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// A thread that is ending is not counted any more.
fn count(change: impl FnOnce(usize) -> usize) {
    let _ = LIVE.try_with(|live| live.set(change(live.get())));
}

fn live() -> usize {
    LIVE.with(Cell::get)
}

struct Counting;

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|live| live.wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(|live| live.wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// N-grams with about the shape of real ones: few first tokens, mostly of length 2.
fn random_ngram(rng: &mut ChaCha8Rng) -> Vec<DraftId> {
    let mut ngram = vec![DraftId(rng.random_range(0..4000u32))];
    while ngram.len() < 2 || rng.random_range(0..6) == 0 {
        ngram.push(DraftId(rng.random_range(0..400)));
    }
    ngram
}

#[test]
fn the_accounting_equals_what_the_allocator_handed_out() {
    for eviction in [Eviction::None, Eviction::Lru, Eviction::Lfu] {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let before = live();
        let max_entries = Some(10_000);
        let mut cache = NgramCache::new(CacheConfig {
            eviction,
            max_entries,
            max_bytes: None,
        });
        for round in 0..100_000u32 {
            let ngram = random_ngram(&mut rng);
            // Every n-gram has one token: rivals live outside the arenas.
            cache.insert(&ngram, TargetId(ngram[0].0));
            drop(ngram);
            if round % 9973 == 0 {
                let heap = live() - before;
                assert_eq!(cache.memory_bytes(), heap + size_of::<NgramCache>());
            }
        }
        assert_eq!(cache.len(), 10_000);
        // Ten times the limit has passed through: neither freed slots nor spare capacity may pile
        // up.
        let per_ngram = cache.stats().bytes_per_ngram;
        eprintln!("{eviction:?}: {per_ngram:.1} bytes per n-gram after churn");
        assert!(per_ngram <= 48.0, "{eviction:?}: {per_ngram}");
    }
}
