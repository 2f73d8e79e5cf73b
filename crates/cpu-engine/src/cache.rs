//! The KV cache, in the layout that the matrix kernel reads.
//!
//! The cache grows by segments of positions as tokens come, so it takes memory for the tokens that
//! it holds and not for the longest context. Segments never move. The chain of additions over a
//! context is interrupted between two segments and continued as it was, so the boundaries of
//! segments change no bit of a result.

use lm::{KvType, LmConfig};

use crate::forward::Run;
use crate::kernels::row::{F16Row, F32Row, PanelRow};
use crate::kernels::simd::PANEL;

/// Number of positions of a segment, unless the model holds fewer. In an 8B model with an f32 cache
/// the segments of all blocks together take 64 MiB.
const SEGMENT: usize = 256;

/// Keys and values of one block at consecutive positions.
#[derive(Debug)]
pub(crate) struct Segment<R> {
    /// `[kv_heads][positions / 16][head_dim]` rows of sixteen positions, so that the scores of
    /// sixteen positions are one panel.
    pub(crate) keys: Vec<R>,
    /// `[kv_heads][head_dim / 16, rounded up][positions]` rows of sixteen dimensions.
    pub(crate) values: Vec<R>,
}

/// Segments by block.
#[derive(Debug)]
pub(crate) struct Blocks<R>(Vec<Vec<Segment<R>>>);

/// Segments, in one of the storage formats.
#[derive(Debug)]
pub(crate) enum Stored {
    F32(Blocks<F32Row>),
    F16(Blocks<F16Row>),
}

/// The KV cache. Entries from the current length on are stale and never read.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) shape: CacheShape,
    /// Number of segments of each block.
    segments: usize,
    pub(crate) stored: Stored,
}

/// Parameters that determine the size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    layers: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Number of positions of a segment, a multiple of sixteen.
    pub(crate) positions: usize,
    kind: KvType,
}

impl CacheShape {
    /// The shape for a model that holds at most `max_len` tokens.
    pub(crate) fn new(config: &LmConfig, max_len: usize, kind: KvType) -> Self {
        Self {
            layers: config.num_layers,
            kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            positions: SEGMENT.min(max_len.max(1).next_multiple_of(PANEL)),
            kind,
        }
    }

    /// Number of rows of the keys of a segment, and of its values.
    fn rows(&self) -> [usize; 2] {
        [
            self.kv_heads * self.positions / PANEL * self.head_dim,
            self.kv_heads * self.head_dim.div_ceil(PANEL) * self.positions,
        ]
    }

    /// Size in bytes at a context of `len` tokens, of at least one segment.
    pub(crate) fn bytes(&self, len: usize) -> usize {
        let row = match self.kind {
            KvType::F32 => size_of::<F32Row>(),
            KvType::F16 => size_of::<F16Row>(),
        };
        let segments = len.div_ceil(self.positions).max(1);
        segments * self.layers * self.rows().iter().sum::<usize>() * row
    }
}

impl<R: PanelRow> Blocks<R> {
    fn new(layers: usize) -> Self {
        Self((0..layers).map(|_| Vec::new()).collect())
    }

    /// The segments of a block.
    pub(crate) fn of(&self, block: usize) -> &[Segment<R>] {
        &self.0[block]
    }

    /// Adds a segment to every block.
    fn grow(&mut self, shape: &CacheShape) {
        let [keys, values] = shape.rows();
        for block in &mut self.0 {
            block.push(Segment {
                keys: vec![R::default(); keys],
                values: vec![R::default(); values],
            });
        }
    }

    /// Copies the keys and values of a position of a block to another one.
    fn copy(&mut self, shape: &CacheShape, block: usize, [from, to]: [usize; 2]) {
        let (head_dim, panels) = (shape.head_dim, shape.head_dim.div_ceil(PANEL));
        let block = &mut self.0[block];
        let [from, to] = [from, to].map(|at| (at / shape.positions, at % shape.positions));
        for kv_head in 0..shape.kv_heads {
            for i in 0..head_dim {
                let key = |own: usize| {
                    let panel = kv_head * (shape.positions / PANEL) + own / PANEL;
                    (panel * head_dim + i, own % PANEL)
                };
                let value = |own: usize| (kv_head * panels + i / PANEL) * shape.positions + own;
                let (row, column) = key(from.1);
                let number = *block[from.0].keys[row].column(column);
                let (row, column) = key(to.1);
                *block[to.0].keys[row].column(column) = number;
                let number = *block[from.0].values[value(from.1)].column(i % PANEL);
                *block[to.0].values[value(to.1)].column(i % PANEL) = number;
            }
        }
    }

    fn put(&mut self, shape: &CacheShape, at: Place, key: &[f32], value: &[f32]) {
        let head_dim = shape.head_dim;
        let segment = &mut self.0[at.block][at.position / shape.positions];
        let position = at.position % shape.positions;
        let panel = at.kv_head * (shape.positions / PANEL) + position / PANEL;
        let keys = &mut segment.keys[panel * head_dim..][..head_dim];
        let mut numbers = [R::Number::default(); PANEL];
        for (rows, part) in keys.chunks_mut(PANEL).zip(key.chunks(PANEL)) {
            R::store(part, &mut numbers[..part.len()]);
            for (row, number) in rows.iter_mut().zip(numbers) {
                *row.column(position % PANEL) = number;
            }
        }
        let panels = head_dim.div_ceil(PANEL);
        for (i, part) in value.chunks(PANEL).enumerate() {
            let row = (at.kv_head * panels + i) * shape.positions + position;
            R::store(part, &mut numbers[..part.len()]);
            for (column, number) in numbers[..part.len()].iter().enumerate() {
                *segment.values[row].column(column) = *number;
            }
        }
    }
}

/// Destination of a key and a value.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: usize,
    pub(crate) kv_head: usize,
    pub(crate) position: usize,
}

impl Cache {
    /// A cache with its first segment.
    pub(crate) fn new(config: &LmConfig, max_len: usize, kind: KvType) -> Self {
        let shape = CacheShape::new(config, max_len, kind);
        let stored = match kind {
            KvType::F32 => Stored::F32(Blocks::new(shape.layers)),
            KvType::F16 => Stored::F16(Blocks::new(shape.layers)),
        };
        let mut cache = Self {
            shape,
            segments: 0,
            stored,
        };
        cache.reserve(1);
        cache
    }

    /// Grows to at least `len` positions.
    pub(crate) fn reserve(&mut self, len: usize) {
        while self.segments * self.shape.positions < len {
            match &mut self.stored {
                Stored::F32(blocks) => blocks.grow(&self.shape),
                Stored::F16(blocks) => blocks.grow(&self.shape),
            }
            self.segments += 1;
        }
    }

    /// Stores one head's key (already rotated) and value.
    pub(crate) fn put(&mut self, at: Place, key: &[f32], value: &[f32]) {
        match &mut self.stored {
            Stored::F32(blocks) => blocks.put(&self.shape, at, key, value),
            Stored::F16(blocks) => blocks.put(&self.shape, at, key, value),
        }
    }

    /// Copies the keys and values that have been stored from `stored` on to a run's positions, which
    /// begin no later.
    pub(crate) fn carry(&mut self, run: Run, stored: usize) {
        for block in 0..self.shape.layers {
            // In this order a token is still where it was stored when its turn comes, even if the run
            // reaches beyond `stored`.
            for i in 0..run.count {
                let places = [stored + i, run.position + i];
                match &mut self.stored {
                    Stored::F32(blocks) => blocks.copy(&self.shape, block, places),
                    Stored::F16(blocks) => blocks.copy(&self.shape, block, places),
                }
            }
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.bytes(self.segments * self.shape.positions)
    }
}
