//! A small thread pool for parallel regions of microseconds.
//!
//! A forward of a small model enters some twenty regions of a few microseconds each, so a region
//! must cost far less than that. Helpers spin on one word between regions and go to sleep only some
//! time after the last forward. Work is claimed chunk by chunk, by the caller from the front and by
//! helpers from the back. A helper that loses its core to another program therefore delays nobody
//! unless it has claimed a chunk, and a chunk tends to run on the same core (with its cache) every
//! time.
#![expect(
    unsafe_code,
    reason = "helpers run a closure borrowed from the caller's stack"
)]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of turns of a helper's waiting loop before it starts to yield its core to other threads
/// every few turns. It is longer than the gaps inside a forward. A longer wait may mean that the
/// helper was woken on its caller's core, and the caller needs that core.
const SPINS_BEFORE_YIELD: u32 = 128;
/// Number of turns between two such yields.
const SPINS_PER_YIELD: u32 = 32;
/// Number of turns of a helper's waiting loop before it sleeps: some 200 microseconds, longer than
/// the work of a speculative round between two forwards.
// With a few tens of microseconds, helpers fell asleep between a drafter's forwards, and the next
// one waited for them: results/LOG.md, 2026-11-22.
const SPINS_BEFORE_SLEEP: u32 = 10_000;
/// Number of turns of the caller's waiting loop between two yields of its core, in case a helper
/// needs it.
const CALLER_SPINS_PER_YIELD: u32 = 1_000;
/// A longer wait than this (and than a few chunks take) means that a helper has lost its core.
const STALL: Duration = Duration::from_micros(50);

/// Largest number of chunks of a region.
pub(crate) const MAX_CHUNKS: usize = (1 << 16) - 1;

/// A closure called with a chunk and the number of the thread that runs it.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// The progress of a region in one word: a serial number and the half-open range of unclaimed
/// chunks. Claiming is a compare-and-swap, so a late helper cannot claim from a region that is
/// over.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    serial: u32,
    front: u16,
    back: u16,
}

impl Progress {
    fn unpack(word: u64) -> Self {
        Self {
            serial: (word >> 32) as u32,
            front: (word >> 16) as u16,
            back: word as u16,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.front) << 16 | u64::from(self.back)
    }
}

/// A value on a cache line of its own.
#[repr(align(128))]
struct Line<T>(T);

struct Shared {
    progress: Line<AtomicU64>,
    finished: Line<AtomicUsize>,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleeping: Vec<AtomicBool>,
    task: UnsafeCell<Option<*const Task<'static>>>,
}

// SAFETY: `task` is written by the caller only while no chunk is claimable or running, and read
// only between a successful claim and the matching increment of `finished`, which the caller
// awaits; every other field is atomic.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `task` is dereferenced only while the closure behind it, which is `Sync`,
// is borrowed by the waiting caller.
unsafe impl Send for Shared {}

impl Shared {
    /// Claims the first (`front`) or last unclaimed chunk.
    fn claim(&self, front: bool) -> Option<usize> {
        let mut word = self.progress.0.load(Acquire);
        loop {
            let mut progress = Progress::unpack(word);
            if progress.front >= progress.back {
                return None;
            }
            let chunk = if front {
                progress.front += 1;
                progress.front - 1
            } else {
                progress.back -= 1;
                progress.back
            };
            match self
                .progress
                .0
                .compare_exchange_weak(word, progress.pack(), AcqRel, Acquire)
            {
                Ok(_) => return Some(usize::from(chunk)),
                Err(now) => word = now,
            }
        }
    }

    /// Runs chunks from the back until none is left.
    fn help(&self, thread: usize) {
        while let Some(chunk) = self.claim(false) {
            // SAFETY: the claim succeeded, so the caller is inside `run`, keeps the closure alive
            // and leaves `task` alone until `finished` counts this chunk.
            let task = unsafe { (*self.task.get()).map(|task| &*task) };
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if let Some(task) = task {
                    task(chunk, thread);
                }
            }));
            if outcome.is_err() {
                self.panicked.store(true, Relaxed);
            }
            self.finished.0.fetch_add(1, Release);
        }
    }

    fn helper_loop(&self, thread: usize) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            let mut word = self.progress.0.load(Acquire);
            while Progress::unpack(word).serial == seen {
                if self.stop.load(Relaxed) {
                    return;
                }
                spins += 1;
                if spins > SPINS_BEFORE_SLEEP {
                    self.sleep(thread, seen);
                } else if spins > SPINS_BEFORE_YIELD && spins % SPINS_PER_YIELD == 0 {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
                word = self.progress.0.load(Acquire);
            }
            seen = Progress::unpack(word).serial;
            self.help(thread);
        }
    }

    /// Parks until a region after `seen` has started. The flag is raised before the last look, and
    /// the caller looks at the flag after starting a region, so one of the two sees the other.
    fn sleep(&self, thread: usize, seen: u32) {
        let flag = &self.sleeping[thread - 1];
        flag.store(true, SeqCst);
        while Progress::unpack(self.progress.0.load(SeqCst)).serial == seen
            && !self.stop.load(SeqCst)
        {
            std::thread::park();
        }
        flag.store(false, Relaxed);
    }
}

/// Decision between waiting for helpers and working alone.
///
/// When other programs keep the cores busy, a helper can lose its core in the middle of a chunk and
/// the caller waits for milliseconds. After such a stall the caller works alone for a while, twice
/// as long with every further stall.
#[derive(Debug, Default)]
struct Patience {
    /// Number of regions that the caller still runs alone.
    alone: u32,
    /// Length of the last such period, in regions. It shrinks by one with every region without a
    /// stall; the next period is twice as long.
    period: u32,
    /// Number of next regions that are not counted, because helpers slept before them.
    waking: u32,
}

impl Patience {
    const SHORTEST: u32 = 64;
    /// Longest period, in regions. A forward of a model of 28 layers has about 200 regions, so it
    /// is a few forwards and not seconds.
    // With 8192 regions one busy moment kept a whole run on one thread: results/LOG.md, 2026-11-26.
    const LONGEST: u32 = 1 << 10;
    /// Number of regions not counted after a period alone, in which helpers fall asleep. A helper
    /// that slept wakes late, on a slow core with empty caches. If its first chunk counted, one
    /// busy moment would leave the caller alone for good.
    const WAKING: u32 = 16;

    /// True if the caller runs the next region alone.
    fn skip(&mut self) -> bool {
        let skip = self.alone > 0;
        if self.alone == 1 {
            self.waking = Self::WAKING;
        }
        self.alone = self.alone.saturating_sub(1);
        skip
    }

    /// Updates the decision with the time that a region's caller worked, the number of its chunks,
    /// and the time that it then waited.
    fn note(&mut self, worked: Duration, chunks: u32, waited: Duration) {
        if self.waking > 0 {
            self.waking -= 1;
            return;
        }
        // A caller that ran no chunk was itself held up, usually by the helper it woke.
        let (usual, delay) = match chunks {
            0 => (Duration::ZERO, worked + waited),
            _ => (worked / chunks, waited),
        };
        if delay > STALL + 4 * usual {
            self.period = (2 * self.period).clamp(Self::SHORTEST, Self::LONGEST);
            self.alone = self.period;
        } else {
            self.period = self.period.saturating_sub(1);
        }
    }
}

/// Threads that wait for regions.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Allows one region at a time. A caller that finds it taken works alone.
    entry: Mutex<Patience>,
}

impl Pool {
    /// A pool of `threads` threads, including the caller; 1 starts none. Engines that ask for the
    /// same number share one pool, so that a drafter and a target do not spin against each other.
    pub(crate) fn shared(threads: usize) -> std::io::Result<Arc<Self>> {
        static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        let existing = pools
            .iter()
            .filter_map(Weak::upgrade)
            .find(|pool| pool.threads() == threads);
        if let Some(pool) = existing {
            return Ok(pool);
        }
        let pool = Arc::new(Self::start(threads)?);
        pools.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    fn start(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            progress: Line(AtomicU64::new(0)),
            finished: Line(AtomicUsize::new(0)),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleeping: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            task: UnsafeCell::new(None),
        });
        let mut pool = Self {
            shared,
            helpers: Vec::new(),
            entry: Mutex::new(Patience::default()),
        };
        for thread in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let helper = std::thread::Builder::new()
                .name(format!("decode-{thread}"))
                .spawn(move || shared.helper_loop(thread))?;
            pool.helpers.push(helper);
        }
        Ok(pool)
    }

    /// Number of threads of a region, including the caller.
    pub(crate) fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `task(chunk, thread)` once for every chunk in `0..chunks`, on this thread (number 0)
    /// and the helpers. Returns when all calls have returned. A panic of the task is passed on.
    pub(crate) fn run(&self, chunks: usize, task: &Task<'_>) {
        let alone = || (0..chunks).for_each(|chunk| task(chunk, 0));
        if self.helpers.is_empty() || !(2..=MAX_CHUNKS).contains(&chunks) {
            return alone();
        }
        let mut patience = match self.entry.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return alone(),
        };
        if patience.skip() {
            return alone();
        }
        self.run_with_helpers(chunks as u16, task, &mut patience);
    }

    fn run_with_helpers(&self, chunks: u16, task: &Task<'_>, patience: &mut Patience) {
        let start = Instant::now();
        let mut own = 0;
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. This function returns (or unwinds) only after every
        // claimed chunk has finished and none is left to claim, so no helper holds the pointer.
        let task: *const Task<'static> = unsafe { std::mem::transmute(std::ptr::from_ref(task)) };
        // SAFETY: between regions nothing can be claimed, so no helper reads `task`; `entry` keeps
        // other callers out.
        unsafe { *shared.task.get() = Some(task) };
        shared.finished.0.store(0, Relaxed);
        let serial = Progress::unpack(shared.progress.0.load(Relaxed))
            .serial
            .wrapping_add(1);
        shared.progress.0.store(
            Progress {
                serial,
                front: 0,
                back: chunks,
            }
            .pack(),
            SeqCst,
        );
        for (flag, helper) in shared.sleeping.iter().zip(&self.helpers) {
            if flag.load(SeqCst) {
                helper.thread().unpark();
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while let Some(chunk) = shared.claim(true) {
                // SAFETY: the closure is borrowed by this very call.
                unsafe { (*task)(chunk, 0) };
                shared.finished.0.fetch_add(1, Relaxed);
                own += 1;
            }
        }));
        let done = Instant::now();
        self.finish(chunks, outcome);
        patience.note(done - start, own, done.elapsed());
    }

    /// Waits until every claimed chunk has run, then passes panics on.
    fn finish(&self, chunks: u16, outcome: std::thread::Result<()>) {
        let shared = &*self.shared;
        let mut expected = usize::from(chunks);
        if outcome.is_err() {
            // The panicking chunk is never counted, and the unclaimed ones are withdrawn.
            expected -= 1;
            while shared.claim(true).is_some() {
                expected -= 1;
            }
        }
        let mut spins = 0_u32;
        while shared.finished.0.load(Acquire) != expected {
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(CALLER_SPINS_PER_YIELD) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        let helper_panicked = shared.panicked.swap(false, Relaxed);
        if let Err(payload) = outcome {
            resume_unwind(payload);
        }
        assert!(!helper_panicked, "a chunk panicked on a helper thread");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper catches the panics of its chunks, so it has none to report here.
            let _ = helper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once_in_every_region() {
        let pool = Pool::start(3).unwrap();
        for chunks in [0, 1, 2, 3, 7, 100] {
            for _ in 0..200 {
                let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(chunks, &|chunk, thread| {
                    assert!(thread < 3);
                    counts[chunk].fetch_add(1, Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_stall_sends_the_caller_off_alone_for_a_while() {
        let (work, stall) = (Duration::from_micros(8), Duration::from_millis(1));
        let mut patience = Patience::default();
        patience.note(work, 4, Duration::from_micros(20));
        assert!(!patience.skip());
        for expected in [64, 128, 256] {
            patience.note(work, 4, stall);
            let skipped = std::iter::repeat_with(|| patience.skip())
                .take_while(|skip| *skip)
                .count();
            assert_eq!(skipped, expected);
            // Helpers that have slept are not counted while they wake.
            for _ in 0..Patience::WAKING {
                patience.note(work, 4, stall);
                assert!(!patience.skip());
            }
        }
        for _ in 0..256 {
            patience.note(work, 4, Duration::ZERO);
        }
        patience.note(work, 4, stall);
        assert_eq!(patience.alone, Patience::SHORTEST);
        // A caller without a chunk was held up before it could claim one.
        let mut patience = Patience::default();
        patience.note(stall, 0, Duration::ZERO);
        assert!(patience.skip());
        // Chunks of a large matrix take long: waiting for one is no stall.
        let mut patience = Patience::default();
        patience.note(4 * stall, 4, stall);
        assert!(!patience.skip());
        // However long the cores were busy, helpers are used again after the longest period.
        for _ in 0..10_000 {
            if !patience.skip() {
                patience.note(work, 4, stall);
            }
        }
        let alone = std::iter::repeat_with(|| patience.skip()).take_while(|skip| *skip);
        assert!(alone.count() <= Patience::LONGEST as usize);
        patience.note(work, 4, Duration::ZERO);
        assert!(!patience.skip());
    }

    #[test]
    fn helpers_wake_after_they_have_slept() {
        for _ in 0..20 {
            let pool = Pool::start(2).unwrap();
            std::thread::sleep(Duration::from_millis(3));
            let helped = AtomicBool::new(false);
            // The caller's chunk waits for the helper's, so this hangs unless the helper wakes.
            pool.run(2, &|_, thread| match thread {
                0 => {
                    while !helped.load(Acquire) {
                        std::thread::yield_now()
                    }
                }
                _ => helped.store(true, Release),
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
        let pool = Pool::start(2).unwrap();
        for bad in 0..8 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|chunk, _| assert_ne!(chunk, bad, "deliberate"));
            }));
            assert!(outcome.is_err());
            let sum = AtomicUsize::new(0);
            pool.run(10, &|chunk, _| _ = sum.fetch_add(chunk, Relaxed));
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn concurrent_callers_share_one_pool() {
        let pool = Pool::shared(2).unwrap();
        assert!(Arc::ptr_eq(&pool, &Pool::shared(2).unwrap()));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let sum = AtomicUsize::new(0);
                        pool.run(16, &|chunk, _| _ = sum.fetch_add(chunk, Relaxed));
                        assert_eq!(sum.into_inner(), 120);
                    }
                });
            }
        });
    }
}
