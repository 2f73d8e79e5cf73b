//! A forward allocates nothing once the caller's logits have their size.
#![expect(unsafe_code, reason = "a counting allocator")]

mod cpu_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cpu_engine::{Compact, CpuEngine, EngineOptions, KernelChoice};
use cpu_support::*;
use lm::{DecodeEngine, WeightType};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn forwards_and_truncations_do_not_allocate() {
    for (threads, compact) in [(1, Compact::Off), (2, Compact::Off), (2, Compact::On)] {
        let options = EngineOptions {
            compact,
            ..options(WeightType::Bf16, KernelChoice::Auto, threads)
        };
        let mut engine = CpuEngine::new(&WIDE.checkpoint(1), options).unwrap();
        let ids = tokens(WIDE.vocab, 16, 1);
        let mut logits = Vec::with_capacity(16 * WIDE.vocab);
        engine.forward(&ids, &mut logits).unwrap();
        // The whole process is counted, including helper threads. The test harness may allocate at
        // any moment, but the engine does so every time or never, so the least of several counts is
        // the engine's own.
        let own = (0..5).map(|_| {
            engine.truncate(16);
            let before = ALLOCATIONS.load(Relaxed);
            for count in [1, 9, 16, 5, 2] {
                engine.forward(&ids[..count], &mut logits).unwrap();
                engine.truncate(engine.len() - count / 2);
            }
            ALLOCATIONS.load(Relaxed) - before
        });
        assert_eq!(own.min(), Some(0), "{threads} threads");
    }
}
