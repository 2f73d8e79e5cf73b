//! The seam between the speculative loop and whatever computes logits.

use std::ops::Range;

use crate::LmError;

/// Tokens appended at once, so that the discarded logits of a long prompt stay small.
const APPENDED: usize = 64;

/// A decoder with a KV cache that can be cut back.
///
/// The loop drives drafter and target through this trait alone.
///
/// # Invariant
/// A forward after any truncation gives what a fresh forward over the same tokens gives.
pub trait DecodeEngine: Send {
    /// Columns of the logits: the model's vocabulary, padding rows included.
    fn vocab_size(&self) -> usize;

    /// Tokens in the KV cache.
    fn len(&self) -> usize;

    /// Whether the KV cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most tokens the KV cache holds.
    fn max_len(&self) -> usize;

    /// Forgets every token from position `len` on; longer than the cache is a no-op.
    fn truncate(&mut self, len: usize);

    /// Appends `ids` and writes the logits of *all* of them, row-major `[ids.len(), vocab_size]`.
    ///
    /// # Errors
    /// [`LmError::TokenOutOfRange`] or [`LmError::ContextFull`]; the cache is then unchanged.
    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), LmError>;

    /// Appends `ids` where nobody needs the logits. Engines that can do without them override this.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn append(&mut self, ids: &[u32]) -> Result<(), LmError> {
        let mut discarded = Vec::new();
        ids.chunks(APPENDED)
            .try_for_each(|chunk| self.forward(chunk, &mut discarded))
    }

    /// Appends `ids` and scores the last of them: `logits` becomes `[vocab_size]`, or empty with `ids`.
    /// Engines that can do without the others' logits override [`append`](Self::append) at least.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn prompt(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), LmError> {
        check_call(ids, self.len(), self.max_len(), self.vocab_size())?;
        match ids.split_last() {
            Some((last, before)) => {
                self.append(before)?;
                self.forward(&[*last], logits)
            }
            None => {
                logits.clear();
                Ok(())
            }
        }
    }

    /// The normalised final hidden state of the last position, `[hidden]`; empty where the engine has
    /// none to show.
    fn last_state(&self) -> &[f32] {
        &[]
    }

    /// The engine as one whose logits stay on a device until they are asked for; `None` where
    /// [`forward`](Self::forward) computes them in memory anyway, or where the device does not keep
    /// those of so many `tokens`.
    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        let _ = tokens;
        None
    }
}

/// Logits that stay on the device that computed them, so that only what somebody reads is fetched: a
/// row of a large vocabulary is half a megabyte, its most probable column four bytes.
pub trait DeviceLogits {
    /// Appends `ids`, as many as were asked for at most. Their logits, one row a token, stay on the
    /// device until tokens are appended again.
    ///
    /// # Errors
    /// As [`DecodeEngine::forward`]; more tokens than the device keeps logits of.
    fn score(&mut self, ids: &[u32]) -> Result<(), LmError>;

    /// Writes the column of the largest logit of every row, the lowest one of several; `None` for a
    /// row with NaN or `+inf` in it, or with `-inf` alone.
    ///
    /// # Errors
    /// A device that fails.
    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), LmError>;

    /// Fetches some rows, row-major `[rows.len(), vocab_size]`. With the last of them comes
    /// [`DecodeEngine::last_state`], which is empty before.
    ///
    /// # Errors
    /// Rows that were not scored; a device that fails.
    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), LmError>;
}

/// The checks of [`DecodeEngine::forward`], for an engine to make before it touches its cache of
/// `len` tokens.
///
/// # Errors
/// [`LmError::TokenOutOfRange`] or [`LmError::ContextFull`].
pub fn check_call(
    ids: &[u32],
    len: usize,
    max_len: usize,
    vocab_size: usize,
) -> Result<(), LmError> {
    if let Some(&id) = ids.iter().find(|id| **id as usize >= vocab_size) {
        return Err(LmError::TokenOutOfRange { id, vocab_size });
    }
    if len + ids.len() > max_len {
        return Err(LmError::ContextFull {
            needed: len + ids.len(),
            max_len,
        });
    }
    Ok(())
}
