//! A sequence of a worker, which implements the trait of decoding engines.

use std::ops::Range;

use engine::{DeviceLogits, LanguageModel, ModelError, check_call};

use crate::error::TorchError;
use crate::frame::Call;
use crate::torch::Torch;

/// Largest number of tokens of a call to the worker, so that activations stay small and a time
/// limit means the same for prompts of all lengths.
const PIECE: usize = 512;
/// Largest number of rows of logits that stay on the device, or that one call returns.
const KEPT: usize = 64;

/// A sequence of a [`Torch`] worker: a KV cache of its own beside the shared weights.
///
/// # Equality
/// PyTorch's kernels depend on the shapes of a call: logits of one token and of five tokens at once
/// differ in their last bits, as do those after a cache was truncated. So this engine keeps the
/// contract of [`LanguageModel`] up to rounding, and
/// [`conformance::check`](engine::conformance::check), which compares bits, rejects it. Exact
/// verification keeps the distribution of the rows that the worker computes; greedy output equals
/// plain decoding except where the two best logits are as close as rounding errors.
///
/// # Other properties
/// - [`state`](LanguageModel::state) is empty: hidden states stay in the worker.
/// - Truncating sends nothing: the next forward says how many tokens to keep.
/// - The largest call to the worker has 512 tokens, and 64 if it returns logits of all of them.
///   Longer ones are split.
pub struct TorchEngine {
    torch: Torch,
    id: u32,
    len: usize,
    max_len: usize,
    /// Number of rows of logits on the device.
    scored: usize,
}

impl Torch {
    /// An empty sequence of at most `max_len` tokens, or as many as the model takes if that is
    /// less.
    ///
    /// # Errors
    /// A worker that ended.
    pub fn sequence(&self, max_len: usize) -> Result<TorchEngine, TorchError> {
        Ok(TorchEngine {
            id: self.begin()?,
            torch: self.clone(),
            len: 0,
            max_len: max_len.min(self.facts().max_len),
            scored: 0,
        })
    }
}

impl TorchEngine {
    /// The worker.
    pub fn torch(&self) -> &Torch {
        &self.torch
    }

    fn check(&self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.len, self.max_len, self.vocab_size())
    }

    /// Appends `ids`. The logits of the last `rows` of them stay on the device, or are fetched.
    fn append(
        &mut self,
        ids: &[u32],
        rows: usize,
        fetched: Option<&mut [f32]>,
    ) -> Result<(), TorchError> {
        self.scored = 0;
        let head = [
            self.id,
            // The worker refuses contexts that long.
            u32::try_from(self.len).unwrap_or(u32::MAX),
            rows as u32,
            u32::from(fetched.is_some()),
        ];
        let numbers = head.iter().chain(ids);
        let body: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
        let logits = fetched.unwrap_or_default();
        self.torch.worker().floats(Call::Forward, &body, logits)?;
        self.len += ids.len();
        Ok(())
    }
}

impl Drop for TorchEngine {
    fn drop(&mut self) {
        self.torch.end(self.id);
    }
}

impl LanguageModel for TorchEngine {
    fn vocab_size(&self) -> usize {
        self.torch.facts().vocab_size
    }

    fn len(&self) -> usize {
        self.len
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.check(ids)?;
        let vocab = self.vocab_size();
        logits.resize(ids.len() * vocab, 0.0);
        for (ids, rows) in ids.chunks(KEPT).zip(logits.chunks_mut(KEPT * vocab)) {
            self.append(ids, ids.len(), Some(rows))?;
        }
        Ok(())
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.check(ids)?;
        for ids in ids.chunks(PIECE) {
            self.append(ids, 0, None)?;
        }
        Ok(())
    }

    fn prompt(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.check(ids)?;
        let vocab = self.vocab_size();
        logits.resize(if ids.is_empty() { 0 } else { vocab }, 0.0);
        let mut rest = ids;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PIECE));
            match later.is_empty() {
                true => self.append(now, 1, Some(logits))?,
                false => self.append(now, 0, None)?,
            }
            rest = later;
        }
        Ok(())
    }

    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        match tokens <= KEPT {
            true => Some(self),
            false => None,
        }
    }
}

impl DeviceLogits for TorchEngine {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.check(ids)?;
        let rows = ids.len();
        if rows > KEPT {
            return Err(TorchError::Rows { rows, most: KEPT }.into());
        }
        self.scored = 0;
        if rows > 0 {
            self.append(ids, rows, None)?;
            self.scored = rows;
        }
        Ok(())
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        columns.clear();
        if self.scored == 0 {
            return Ok(());
        }
        let id = self.id.to_le_bytes();
        let best = self.torch.worker().text(Call::Best, &id)?;
        let (best, rest) = best.as_chunks::<8>();
        if best.len() != self.scored || !rest.is_empty() {
            let error = TorchError::Protocol {
                during: Call::Best.name(),
                message: format!("{} columns instead of {}", best.len(), self.scored),
            };
            return Err(error.into());
        }
        let vocab = self.vocab_size();
        let column = |best: &[u8; 8]| u32::try_from(i64::from_le_bytes(*best)).ok();
        let column = |best| column(best).filter(|column| (*column as usize) < vocab);
        columns.extend(best.iter().map(column));
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let most = self.scored;
        if rows.end > most {
            let rows = rows.end;
            return Err(TorchError::Rows { rows, most }.into());
        }
        logits.resize(rows.len() * self.vocab_size(), 0.0);
        if rows.is_empty() {
            return Ok(());
        }
        let body = [self.id, rows.start as u32, rows.end as u32];
        let body: Vec<u8> = body
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        Ok(self.torch.worker().floats(Call::Rows, &body, logits)?)
    }
}
