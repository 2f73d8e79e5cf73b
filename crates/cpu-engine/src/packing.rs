//! Packing of rows of weights into panels, a few rows at a time on every thread.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use lm::{LmError, RowBuffer, TensorSource};

use crate::kernels::row::PairRow;
use crate::kernels::simd::PANEL;
use crate::pool::Pool;

/// Number of values that a thread reads, widens and packs at once. No more of a model's files are
/// in f32 per thread, except for very long panels and for matrices of very many ([`MOST_TASKS`]).
const AT_ONCE: usize = 256 << 10;
/// Approximate largest number of tasks that one matrix is cut into: it stays below twice this
/// number.
const MOST_TASKS: usize = 4096;

/// Weights, row-major `[outputs, inputs]`.
#[derive(Clone)]
pub(crate) enum PartRows<'a> {
    /// A tensor of a source.
    Tensor(&'a dyn TensorSource, String),
    /// A slice in memory, with the length of a row.
    #[cfg(test)]
    Slice(&'a [f32], usize),
}

/// Weights and their place in a matrix.
#[derive(Clone)]
pub(crate) struct Part<'a> {
    pub(crate) rows: PartRows<'a>,
    pub(crate) outputs: usize,
    /// Index of the first panel.
    pub(crate) first: usize,
    /// Distance from one panel to the next, in panels.
    pub(crate) step: usize,
}

impl Part<'_> {
    fn rows<'b>(
        &'b self,
        rows: Range<usize>,
        buffer: &'b mut RowBuffer,
    ) -> Result<&'b [f32], LmError> {
        match &self.rows {
            PartRows::Tensor(source, name) => source.rows(name, rows, buffer),
            #[cfg(test)]
            PartRows::Slice(weights, inputs) => {
                Ok(&weights[rows.start * inputs..rows.end * inputs])
            }
        }
    }

    /// True if bf16 holds every weight exactly.
    pub(crate) fn are_bf16(&self, inputs: usize, pool: &Pool) -> Result<bool, LmError> {
        if let PartRows::Tensor(source, name) = &self.rows
            && let Some(known) = source.is_bf16(name)
        {
            return Ok(known);
        }
        let inexact = AtomicBool::new(false);
        let parts = std::slice::from_ref(self);
        let slots = (0..self.first + self.outputs.div_ceil(PANEL) * self.step).map(|_| ());
        for_each_panel(parts, inputs, slots, pool, |(), columns, _| {
            let exact = are_bf16(columns);
            if !exact {
                inexact.store(true, Relaxed);
            }
            exact
        })?;
        Ok(!inexact.into_inner())
    }
}

/// True if bf16 holds every one of `weights` exactly.
pub(crate) fn are_bf16(weights: &[f32]) -> bool {
    // A block at a time, so that the compiler vectorises it and one weight can end the search.
    let mut blocks = weights.chunks(1024);
    blocks.all(|block| block.iter().fold(0, |bits, w| bits | w.to_bits()) & 0xffff == 0)
}

/// Working memory of a thread.
#[derive(Default)]
pub(crate) struct Scratch {
    rows: RowBuffer,
    pub(crate) pairs: Vec<PairRow>,
}

/// Calls `pack` for every panel that `parts` fill, with its entry of `slots` and the rows that are
/// its columns. Calls run on all threads in no particular order, and stop once one of them returns
/// false. Of several errors of the source the first one in order of rows is returned.
pub(crate) fn for_each_panel<T: Send>(
    parts: &[Part<'_>],
    inputs: usize,
    slots: impl Iterator<Item = T>,
    pool: &Pool,
    pack: impl Fn(T, &[f32], &mut Scratch) -> bool + Sync,
) -> Result<(), LmError> {
    let mut slots: Vec<Option<T>> = slots.map(Some).collect();
    let panels = (AT_ONCE / (PANEL * inputs).max(1)).max(1);
    let panels = panels.max(slots.len() / MOST_TASKS);
    // Consecutive rows of a part, and their destination.
    let mut tasks = Vec::new();
    for part in parts {
        let mut places = (part.first..).step_by(part.step);
        for start in (0..part.outputs).step_by(PANEL * panels) {
            let rows = start..part.outputs.min(start + PANEL * panels);
            let places = places.by_ref().take(rows.len().div_ceil(PANEL));
            let slots = places.filter_map(|panel| slots.get_mut(panel)?.take());
            let slots: Vec<T> = slots.collect();
            tasks.push(Mutex::new(Some((part, rows, slots))));
        }
    }
    let scratch: Vec<Mutex<Scratch>> = (0..pool.threads()).map(|_| Mutex::default()).collect();
    let failed: Mutex<Option<(usize, LmError)>> = Mutex::new(None);
    let stopped = AtomicBool::new(false);
    pool.run(tasks.len(), &|at, thread| {
        let task = tasks[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some((part, rows, slots)) = task.filter(|_| !stopped.load(Relaxed)) else {
            return;
        };
        // Never contended: a thread number is in use once at a time.
        let scratch = &mut *scratch[thread]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut buffer = std::mem::take(&mut scratch.rows);
        let outcome = part.rows(rows, &mut buffer).map(|weights| {
            let mut columns = slots.into_iter().zip(weights.chunks(PANEL * inputs));
            columns.all(|(slot, columns)| pack(slot, columns, scratch))
        });
        scratch.rows = buffer;
        match outcome {
            Ok(true) => {}
            Ok(false) => stopped.store(true, Relaxed),
            Err(error) => {
                stopped.store(true, Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| at < *first) {
                    *failed = Some((at, error));
                }
            }
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
