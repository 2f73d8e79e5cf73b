//! Keys and values in the layout the matrix kernel reads.

use lm::LmConfig;

use crate::kernels::panel::F32Row;
use crate::kernels::simd::PANEL;

/// Keys and values of one block.
#[derive(Clone, Debug)]
pub(crate) struct BlockCache {
    /// `[kv_heads][max_len / 16][head_dim]` rows of sixteen positions: scores of sixteen positions
    /// are one panel.
    pub(crate) keys: Vec<F32Row>,
    /// `[kv_heads][head_dim / 16][max_len]` rows of sixteen dimensions.
    pub(crate) values: Vec<F32Row>,
}

/// The KV cache, at its full size from the start. Entries from the current length on are stale and
/// never read.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    head_dim: usize,
    max_len: usize,
    pub(crate) blocks: Vec<BlockCache>,
}

impl Cache {
    pub(crate) fn new(config: &LmConfig, max_len: usize) -> Self {
        let head_dim = config.head_dim;
        let keys = config.num_kv_heads * max_len.div_ceil(PANEL) * head_dim;
        let values = config.num_kv_heads * head_dim.div_ceil(PANEL) * max_len;
        let block = BlockCache {
            keys: vec![F32Row::default(); keys],
            values: vec![F32Row::default(); values],
        };
        Self {
            head_dim,
            max_len,
            blocks: vec![block; config.num_layers],
        }
    }

    /// Stores one head's key (already rotated) and value at `position` of `block`.
    pub(crate) fn put(
        &mut self,
        block: usize,
        kv_head: usize,
        position: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let block = &mut self.blocks[block];
        let panel = kv_head * self.max_len.div_ceil(PANEL) + position / PANEL;
        let keys = &mut block.keys[panel * self.head_dim..][..self.head_dim];
        for (row, value) in keys.iter_mut().zip(key) {
            row.set(position % PANEL, *value);
        }
        let panels = self.head_dim.div_ceil(PANEL);
        for (i, part) in value.chunks(PANEL).enumerate() {
            let row = &mut block.values[(kv_head * panels + i) * self.max_len + position];
            for (column, value) in part.iter().enumerate() {
                row.set(column, *value);
            }
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let rows: usize = self
            .blocks
            .iter()
            .map(|b| b.keys.len() + b.values.len())
            .sum();
        rows * size_of::<F32Row>()
    }
}
