//! Logits that stay on the device; rows that are read are fetched.
#![expect(unsafe_code, reason = "kernels are launched unchecked")]

use std::ops::Range;

use cubecl::prelude::*;
use lm::{DeviceLogits, LmError, ModelError, check_call};

use super::GpuEngine;
use crate::cache::{PASS, SCORED};
use crate::device::{GpuError, arg, failed};
use crate::kernels::best;
use crate::weights::stride;

/// The best column of a row. `tops` alternates the order and the column of the best logit of every
/// chunk.
fn best_of(tops: &[u32]) -> Option<u32> {
    let (tops, _) = tops.as_chunks::<2>();
    // Of equal ones the first has the lowest column.
    let first = tops.iter().rev().max_by_key(|[order, _]| order);
    let possible = |[order, _]: &&[u32; 2]| (best::NOTHING + 1..best::IMPOSSIBLE).contains(order);
    first.filter(possible).map(|[_, column]| *column)
}

/// The values of an interleaved row (`kernels::apart`) in order.
fn in_order(row: &[f32], fours_of_load: usize) -> Vec<f32> {
    let (fours, _) = row.as_chunks::<4>();
    let loads = fours.len() / fours_of_load;
    let of_load = |load| (0..fours_of_load).flat_map(move |four| fours[four * loads + load]);
    (0..loads).flat_map(of_load).collect()
}

impl GpuEngine {
    /// Number of bytes copied to the host so far: logits, states, most probable columns.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched
    }

    /// Fetches logits of some rows of the last pass, and with the last of them the final state of
    /// its token.
    pub(super) fn fetch(&mut self, rows: Range<usize>, logits: &mut [f32]) -> Result<(), LmError> {
        let size = size_of::<f32>();
        let vocab = self.weights.config.vocab_size;
        let of_rows = self.scratch.logits.clone();
        let of_rows = of_rows.offset_start((rows.start * vocab * size) as u64);
        let mut wanted = vec![of_rows.offset_end(((SCORED - rows.end) * vocab * size) as u64)];
        if rows.end == self.scored {
            let row = stride(self.weights.config.hidden_size);
            let state = self.scratch.normed.clone();
            let state = state.offset_start(((rows.end - 1) * row * size) as u64);
            wanted.push(state.offset_end(((PASS - rows.end) * row * size) as u64));
        }
        let read = self.weights.gpu.read(wanted)?;
        self.fetched += read.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        let (Some(rows), state) = (read.first(), read.get(1)) else {
            return Err(failed("no buffer came back").into());
        };
        logits.copy_from_slice(f32::from_bytes(rows));
        if let Some(state) = state {
            let fours = self.weights.head.shape.format.fours();
            self.state = in_order(f32::from_bytes(state), fours);
            self.state.truncate(self.weights.config.hidden_size);
        }
        Ok(())
    }

    /// Order and column of the best logit of every chunk, for every row of the last pass.
    fn tops(&mut self) -> Result<Vec<u32>, LmError> {
        let (vocab, rows) = (self.weights.config.vocab_size, self.scored);
        let words = 2 * vocab.div_ceil(best::CHUNK);
        let used = self.scratch.tops.clone();
        let used = used.offset_end(((SCORED - rows) * words * size_of::<u32>()) as u64);
        self.weights.gpu.run(|client| {
            let grid = CubeCount::Static(words as u32 / 2, rows as u32, 1);
            // SAFETY: columns end with the vocabulary, rows with those that were scored.
            unsafe {
                best::best::launch_unchecked(
                    client,
                    grid,
                    CubeDim::new_1d(best::UNITS as u32),
                    arg(&self.scratch.logits, SCORED * vocab),
                    arg(&self.scratch.tops, SCORED * words),
                    vocab as u32,
                );
            }
        });
        let read = self.weights.gpu.read(vec![used])?;
        let read = read.first().ok_or_else(|| failed("no buffer came back"))?;
        self.fetched += read.len() as u64;
        Ok(u32::from_bytes(read).to_vec())
    }
}

impl DeviceLogits for GpuEngine {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.len, self.max_len, self.weights.config.vocab_size)?;
        self.state.clear();
        self.scored = 0;
        let rows = ids.len();
        match rows {
            0 => return Ok(()),
            _ if rows > SCORED => {
                return Err(LmError::from(GpuError::Rows { rows, most: SCORED }).into());
            }
            _ => self.pass(ids, true)?,
        }
        self.scored = rows;
        Ok(())
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        columns.clear();
        if self.scored == 0 {
            return Ok(());
        }
        let tops = self.tops()?;
        let of_row = 2 * self.weights.config.vocab_size.div_ceil(best::CHUNK);
        columns.extend(tops.chunks(of_row).map(best_of));
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let most = self.scored;
        if rows.end > most {
            let rows = rows.end;
            return Err(LmError::from(GpuError::Rows { rows, most }).into());
        }
        logits.resize(rows.len() * self.weights.config.vocab_size, 0.0);
        match rows.is_empty() {
            true => Ok(()),
            false => Ok(self.fetch(rows, logits)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_in_order() {
        let row: Vec<f32> = (0..64_u8).map(f32::from).collect();
        assert_eq!(in_order(&row, 1), row);
        for fours in [2, 4, 8] {
            let loads = 16 / fours;
            let mut apart = vec![0.0; 64];
            for (i, x) in row.iter().enumerate() {
                // As `kernels::apart` does.
                let four = i / 4 % fours * loads + i / 4 / fours;
                apart[four * 4 + i % 4] = *x;
            }
            assert_eq!(in_order(&apart, fours), row);
        }
    }

    #[test]
    fn the_first_of_the_best_chunks_counts() {
        assert_eq!(
            best_of(&[5 << 24, 7, 6 << 24, 4099, 6 << 24, 8200]),
            Some(4099)
        );
        assert_eq!(best_of(&[5 << 24, 7, best::IMPOSSIBLE, 4099]), None);
        assert_eq!(best_of(&[best::NOTHING, 0, best::NOTHING, 4096]), None);
    }
}
