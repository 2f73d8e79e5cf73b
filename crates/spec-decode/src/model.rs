//! What the loop asks of a language model, drafter and target alike.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use vocab_align::TokenId;

/// Positions prefilled at once, so that the discarded logits of a long prompt stay small.
const PREFILL_CHUNK: usize = 64;

/// A failure inside a model: kernels, devices, sequence too long.
///
/// The loop does not interpret it, it only adds which model failed and in which round.
#[derive(Debug)]
pub struct ModelError(Box<dyn Error + Send + Sync + 'static>);

impl ModelError {
    /// Wraps an engine's own error (or a plain message).
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self(source.into())
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// A causal language model with one sequence and a truncatable KV cache.
///
/// # Invariants the loop relies on
/// - `forward(a ++ b)` and `forward(a); forward(b)` leave the same cache and give the same logits.
///   Greedy speculation equals plain greedy decoding token for token only where this holds bit for
///   bit; with rounding differences it holds up to ties.
/// - `truncate(n)` followed by `forward(x)` equals a fresh model fed the first `n` tokens and `x`.
pub trait LanguageModel<I: TokenId> {
    /// Width of a logits row. Rows of the embedding that stand for no token may be `-inf`.
    fn vocab_size(&self) -> usize;

    /// Tokens in the KV cache.
    fn len(&self) -> usize;

    /// True where the cache holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most tokens the cache can hold.
    fn max_len(&self) -> usize;

    /// Forgets every cached token from position `len` on; no effect where the cache is shorter.
    fn truncate(&mut self, len: usize);

    /// Appends `ids` to the cache and replaces `logits` by the logits of all given positions,
    /// row-major `[ids.len(), vocab_size]`: row `i` is the law of the token that follows `ids[i]`.
    ///
    /// # Errors
    /// Whatever the engine reports; the cache length is unspecified afterwards.
    fn forward(&mut self, ids: &[I], logits: &mut Vec<f32>) -> Result<(), ModelError>;

    /// True where a drafter has nothing to propose behind the tokens in its cache, whatever its last
    /// row says: the draft ends there. A neural model never abstains.
    fn abstains(&self) -> bool {
        false
    }

    /// The normalised final hidden state behind the last position of the last
    /// [`forward`](Self::forward), from which its last row of logits was computed; empty where the
    /// model has none to show. Read before any other call.
    fn state(&self) -> &[f32] {
        &[]
    }

    /// Appends `ids` to the cache where nobody needs the logits. Engines that can skip the output
    /// projection should override this.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn prefill(&mut self, ids: &[I]) -> Result<(), ModelError> {
        let mut discarded = Vec::new();
        ids.chunks(PREFILL_CHUNK)
            .try_for_each(|chunk| self.forward(chunk, &mut discarded))
    }

    /// The model as one whose logits stay on a device until they are asked for; `None` where
    /// [`forward`](Self::forward) computes them in memory anyway, or where the device does not keep
    /// those of so many `tokens`.
    fn on_device(&mut self, tokens: usize) -> Option<&mut dyn OnDevice<I>> {
        let _ = tokens;
        None
    }
}

/// A model whose logits stay on the device that computed them. What is decided by the most probable
/// token alone then brings four bytes of a row to the host instead of the row.
pub trait OnDevice<I: TokenId> {
    /// Appends `ids` to the cache, as many as were asked for at most. Their logits, one row a token,
    /// stay on the device until tokens are appended again.
    ///
    /// # Errors
    /// As [`LanguageModel::forward`].
    fn score(&mut self, ids: &[I]) -> Result<(), ModelError>;

    /// Writes [`argmax`](crate::argmax) of every row; `None` for a row where that is an error.
    ///
    /// # Errors
    /// Whatever the engine reports.
    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError>;

    /// Fetches some rows, row-major `[rows.len(), vocab_size]`. With the last of them comes
    /// [`LanguageModel::state`].
    ///
    /// # Errors
    /// Whatever the engine reports; rows that were not scored.
    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError>;
}

macro_rules! forward_to_inner {
    () => {
        fn vocab_size(&self) -> usize {
            (**self).vocab_size()
        }

        fn len(&self) -> usize {
            (**self).len()
        }

        fn max_len(&self) -> usize {
            (**self).max_len()
        }

        fn truncate(&mut self, len: usize) {
            (**self).truncate(len);
        }

        fn forward(&mut self, ids: &[I], logits: &mut Vec<f32>) -> Result<(), ModelError> {
            (**self).forward(ids, logits)
        }

        fn abstains(&self) -> bool {
            (**self).abstains()
        }

        fn state(&self) -> &[f32] {
            (**self).state()
        }

        fn prefill(&mut self, ids: &[I]) -> Result<(), ModelError> {
            (**self).prefill(ids)
        }

        fn on_device(&mut self, tokens: usize) -> Option<&mut dyn OnDevice<I>> {
            (**self).on_device(tokens)
        }
    };
}

impl<I: TokenId, M: LanguageModel<I> + ?Sized> LanguageModel<I> for &mut M {
    forward_to_inner!();
}

impl<I: TokenId, M: LanguageModel<I> + ?Sized> LanguageModel<I> for Box<M> {
    forward_to_inner!();
}

/// The logits of one forward: `[positions, vocab]`, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    logits: &'a [f32],
    vocab: usize,
}

impl<'a> Rows<'a> {
    /// Views `logits` as rows of `vocab` entries; `None` unless there are exactly `positions`.
    pub fn new(logits: &'a [f32], vocab: usize, positions: usize) -> Option<Self> {
        (vocab > 0 && logits.len() == positions.checked_mul(vocab)?)
            .then_some(Self { logits, vocab })
    }

    /// No rows.
    pub(crate) fn none(vocab: usize) -> Self {
        Self { logits: &[], vocab }
    }

    /// Row of one position; empty if there is no such position.
    pub fn row(&self, position: usize) -> &'a [f32] {
        let start = position.saturating_mul(self.vocab);
        self.logits.get(start..start + self.vocab).unwrap_or(&[])
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.logits.len() / self.vocab
    }

    /// Number of entries of a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
}
