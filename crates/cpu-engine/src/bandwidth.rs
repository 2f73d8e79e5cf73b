//! Measurement of the memory bandwidth of this machine, which bounds decoding.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use lm::LmError;

use crate::KernelChoice;
use crate::arena::{Arena, Buffer};
use crate::kernels::Kernels;
use crate::kernels::row::{F32Row, PanelRow};
use crate::kernels::simd::{Kernel, PANEL, Simd};
use crate::pool::Pool;

/// A buffer far larger than any cache, to be read repeatedly.
pub struct MemoryProbe {
    rows: Buffer<F32Row>,
    kernels: Kernels,
    pool: std::sync::Arc<Pool>,
}

/// Number of chunks that a thread reads in a pass.
const CHUNKS_PER_THREAD: usize = 4;

impl MemoryProbe {
    /// A probe with a buffer of `bytes` (rounded up to a cache line) that `threads` threads read.
    ///
    /// # Errors
    /// [`LmError::Threads`] if the helper threads cannot be started.
    pub fn new(bytes: usize, threads: usize) -> Result<Self, LmError> {
        let threads = threads.max(1);
        let pool = Pool::shared(threads).map_err(|source| LmError::Threads { threads, source })?;
        let len = bytes.div_ceil(size_of::<F32Row>());
        Ok(Self {
            rows: Arena::new(len * size_of::<F32Row>()).take(len),
            kernels: Kernels::select(KernelChoice::Auto)?,
            pool,
        })
    }

    /// Reads the buffer once. Returns bytes per second.
    pub fn pass(&self) -> f64 {
        let chunks = self.pool.threads() * CHUNKS_PER_THREAD;
        let sink = AtomicU32::new(0);
        let start = Instant::now();
        self.pool.run(chunks, &|chunk, _| {
            let bound = |i: usize| i * self.rows.len() / chunks;
            let rows = &self.rows[bound(chunk)..bound(chunk + 1)];
            let sum = self.kernels.run(SumRows(rows));
            sink.fetch_add(sum.to_bits(), Relaxed);
        });
        let seconds = start.elapsed().as_secs_f64();
        std::hint::black_box(sink.into_inner());
        size_of_val::<[_]>(&self.rows) as f64 / seconds
    }
}

/// Kernel that reads four streams at once, as the matrix kernel does.
struct SumRows<'a>(&'a [F32Row]);

impl Kernel for SumRows<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let quarter = self.0.len() / 4;
        let mut sums = [simd.splat_panel(0.0); 4];
        let (a, rest) = self.0.split_at(quarter);
        let (b, rest) = rest.split_at(quarter);
        let (c, d) = rest.split_at(quarter);
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for (sum, row) in sums.iter_mut().zip([a, b, c, d]) {
                *sum = simd.add_panel(*sum, row.load(simd));
            }
        }
        let [a, b, c, d] = sums;
        let total = simd.add_panel(simd.add_panel(a, b), simd.add_panel(c, d));
        let mut columns = [0.0; PANEL];
        simd.store_panel(total, &mut columns);
        columns.into_iter().sum()
    }
}
