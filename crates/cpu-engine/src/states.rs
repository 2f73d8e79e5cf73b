//! States that enter one block, kept for every token in the cache.

/// The residual stream on entry to a block, by position. Entries from the length of the cache on
/// are stale and never read.
#[derive(Debug)]
pub(crate) struct States {
    /// Index of the block.
    block: usize,
    width: usize,
    /// Tokens of the rows.
    ids: Vec<u32>,
    /// States, `[ids.len(), width]`.
    rows: Vec<f32>,
}

impl States {
    /// A buffer for the states that enter `block` of a model of this width.
    pub(crate) fn entering(block: usize, width: usize) -> Self {
        Self {
            block,
            width,
            ids: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Records the tokens from position `start` on.
    pub(crate) fn note(&mut self, start: usize, ids: &[u32]) {
        self.ids.truncate(start);
        self.ids.extend_from_slice(ids);
        let len = self.ids.len() * self.width;
        if self.rows.len() < len {
            self.rows.resize(len, 0.0);
        }
    }

    /// Keeps `rows` as those of the positions from `start` on, if `block` is the one to keep.
    pub(crate) fn keep(&mut self, block: usize, start: usize, rows: &[f32]) {
        if block == self.block {
            self.rows[start * self.width..][..rows.len()].copy_from_slice(rows);
        }
    }

    /// Number of leading tokens that equal those of `ids`.
    pub(crate) fn common(&self, ids: &[u32]) -> usize {
        let pairs = self.ids.iter().zip(ids);
        pairs.take_while(|(kept, wanted)| kept == wanted).count()
    }

    /// States of the first `count` tokens, `[count, width]`.
    pub(crate) fn rows(&self, count: usize) -> &[f32] {
        &self.rows[..count * self.width]
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.ids.as_slice()) + size_of_val(self.rows.as_slice())
    }
}
