//! Measurement of the fastest walk on this machine, over an engine's own weights.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::kernels::fused::Epilogue;
use crate::kernels::gemm::{Rows, Store};
use crate::kernels::out::Out;
use crate::kernels::panel::PackedMatrix;
use crate::kernels::parallel::Executor;
use crate::kernels::quant::QuantScratch;
use crate::kernels::simd::PANEL;
use crate::kernels::walk::{NARROW, Walk};
use crate::weights::Weights;

/// Number of bytes of weights from which on a measurement is worthwhile. Fewer weights stay in
/// caches, where nothing waits for memory.
const WORTH: usize = 24 << 20;

/// Approximate number of bytes of weights that a pass reads.
const PASS: usize = 96 << 20;

/// Number of passes of every walk, in turns. The fastest pass counts, because disturbances only
/// make a pass longer.
const PASSES: usize = 5;

/// Largest time of a walk, relative to the usual one, with which it is chosen. A smaller gain is
/// noise.
const GAIN: f64 = 0.97;

/// Number of rows of a tile that always reads a single panel.
const WIDE: usize = NARROW + 1;

/// The fastest walk over these weights; `None` if they are too few to measure.
pub(crate) fn fastest(weights: &Weights, executor: &Executor) -> Option<Walk> {
    let probe = Probe::new(weights, executor)?;
    let usual = Walk::usual(executor.kernels.choice);
    let reaches = usual.reaches();
    let mut walk = probe.best(WIDE, usual, &reaches);
    for rows in 1..=NARROW {
        let others = Walk::STREAMS.map(|streams| {
            let mut other = walk;
            other.streams[rows - 1] = streams;
            other
        });
        walk = probe.best(rows, walk, &others);
    }
    Some(walk)
}

/// True if no other reach is clearly faster than that of `walk`, for calls of one row and of many.
/// If one is, other programs probably disturbed the measurement that chose `walk`. Numbers of
/// panels are not compared.
pub(crate) fn holds(weights: &Weights, executor: &Executor, walk: Walk) -> bool {
    let Some(probe) = Probe::new(weights, executor) else {
        return true;
    };
    let reaches = walk.reaches();
    [1, WIDE]
        .into_iter()
        .all(|rows| probe.best(rows, walk, &reaches) == walk)
}

/// Matrices of a model, and buffer sizes for multiplying with them.
struct Probe<'a> {
    /// Matrices of equal blocks, in slices of about [`PASS`] bytes. Passes read them in turn, so
    /// that the caches do not hold what the next pass reads, as in decoding.
    slices: Vec<Vec<&'a PackedMatrix>>,
    turn: Cell<usize>,
    executor: &'a Executor,
    /// Width of the widest input.
    inputs: usize,
    /// Number of panels of the widest output.
    panels: usize,
}

impl<'a> Probe<'a> {
    fn new(weights: &'a Weights, executor: &'a Executor) -> Option<Self> {
        if weights.bytes_per_token() < WORTH {
            return None;
        }
        let blocks = weights.blocks.iter().map(|block| block.matrices());
        let blocks: Vec<[&PackedMatrix; 4]> = blocks.collect();
        let bytes = |block: &[&PackedMatrix; 4]| block.iter().map(|w| w.bytes()).sum::<usize>();
        let together = PASS.div_ceil(blocks.first().map_or(1, bytes).max(1));
        let mut slices: Vec<Vec<&PackedMatrix>> =
            blocks.chunks_exact(together).map(<[_]>::concat).collect();
        if slices.is_empty() {
            slices.push(weights.matrices().collect());
        }
        let all = || slices.iter().flatten();
        Some(Self {
            inputs: all().map(|w| w.inputs).max()?,
            panels: all().map(|w| w.panels).max()?,
            slices,
            turn: Cell::new(0),
            executor,
        })
    }

    /// The matrices of the next pass.
    fn next(&self) -> &[&'a PackedMatrix] {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        &self.slices[turn % self.slices.len()]
    }

    /// The fastest of `walks` for calls of `rows` rows. It is `usual` unless another one is clearly
    /// faster, also when the two are compared alone.
    fn best(&self, rows: usize, usual: Walk, walks: &[Walk]) -> Walk {
        let mut call = Call::new(self, rows);
        let first = self.faster(&mut call, usual, walks);
        self.faster(&mut call, usual, &[first])
    }

    /// The fastest of `walks` if it is clearly faster than `usual`; else `usual`.
    fn faster(&self, call: &mut Call, usual: Walk, walks: &[Walk]) -> Walk {
        let mut best = (Duration::MAX, usual);
        let mut by_usual = Duration::MAX;
        for _ in 0..PASSES {
            by_usual = by_usual.min(call.pass(self, usual));
            for &walk in walks.iter().filter(|walk| **walk != usual) {
                let time = call.pass(self, walk);
                if time < best.0 {
                    best = (time, walk);
                }
            }
        }
        if best.0 < by_usual.mul_f64(GAIN) {
            best.1
        } else {
            usual
        }
    }
}

/// Buffers of calls of one size.
struct Call {
    rows: usize,
    x: Vec<f32>,
    out: Vec<f32>,
    quantised: QuantScratch,
}

impl Call {
    fn new(probe: &Probe<'_>, rows: usize) -> Self {
        Self {
            rows,
            x: vec![0.5; rows * probe.inputs],
            out: vec![0.0; rows * probe.panels * PANEL],
            quantised: QuantScratch::new(rows, probe.inputs),
        }
    }

    /// Time of multiplying with every matrix of a slice once.
    fn pass(&mut self, probe: &Probe<'_>, walk: Walk) -> Duration {
        let matrices = probe.next();
        let mut executor = probe.executor.clone();
        executor.weights = executor.kernels.walking(walk);
        let start = Instant::now();
        for matrix in matrices {
            let width = matrix.panels * PANEL;
            let x = Rows {
                data: &self.x,
                stride: matrix.inputs,
                count: self.rows,
            };
            let out = Out::new(&mut self.out, width, width);
            let epilogue = Epilogue::None(Store::Set);
            executor.project(x, matrix, epilogue, &mut self.quantised, out);
        }
        start.elapsed()
    }
}
