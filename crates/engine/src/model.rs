//! The trait [`LanguageModel`].

use std::ops::{Deref, DerefMut, Range};

use crate::{ModelError, check_call};

/// Number of positions prefilled at once, so that the discarded logits of a long prompt stay small.
const PREFILL_CHUNK: usize = 64;
/// Largest number of tokens that are scored together although only the last one's logits are wanted.
const FEW: usize = 16;

/// Tokens in place of those after the first `after` tokens of a forward
/// ([`LanguageModel::forward_with`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternative<'a> {
    /// Number of the forward's tokens that stand before it.
    pub after: usize,
    /// Its tokens, at least one.
    pub ids: &'a [u32],
}

/// A causal language model with one sequence and a KV cache that can be truncated.
///
/// # Invariants
/// - `forward(a ++ b)` and `forward(a); forward(b)` leave the same cache and give the same logits.
///   Greedy speculation equals plain greedy decoding token for token only if this holds bit for
///   bit. With rounding differences it may take another one of nearly equal tokens.
/// - `truncate(n)` followed by `forward(x)` equals a fresh model fed the first `n` tokens and `x`.
///
/// [`conformance::check`](crate::conformance::check) tests an engine for them.
pub trait LanguageModel {
    /// Width of a row of logits: the model's vocabulary, padding rows included. Rows of the
    /// embedding without a token may be `-inf`.
    fn vocab_size(&self) -> usize;

    /// Number of tokens in the KV cache.
    fn len(&self) -> usize;

    /// True if the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Capacity of the cache in tokens.
    fn max_len(&self) -> usize;

    /// Drops every cached token from position `len` on. It has no effect if the cache is shorter.
    fn truncate(&mut self, len: usize);

    /// Appends `ids` to the cache and replaces `logits` by the logits of all given positions,
    /// row-major `[ids.len(), vocab_size]`: row `i` is that of the token that follows `ids[i]`.
    ///
    /// # Errors
    /// [`ModelError::TokenOutOfRange`] and [`ModelError::ContextFull`] ([`check_call`] finds both);
    /// the cache is then unchanged. After an engine's own error its length is unspecified.
    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError>;

    /// Largest number of tokens of all alternatives together that
    /// [`forward_with`](Self::forward_with) scores beside so many tokens; 0 for a model that scores
    /// none.
    fn alternatives(&self, tokens: usize) -> usize {
        let _ = tokens;
        0
    }

    /// As [`forward`](Self::forward), and scores some alternatives in the same pass. The rows of
    /// their tokens come after those of `ids`, one alternative after the other; each is that of the
    /// token that follows in a text that ends with the alternative up to there. The cache then holds
    /// `ids`, and the [state](Self::state) is that of the last one.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); more tokens of [alternatives](Self::alternatives) than the
    /// model scores, an empty one, or one after more tokens than there are.
    fn forward_with(
        &mut self,
        ids: &[u32],
        alternatives: &[Alternative<'_>],
        logits: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        match alternatives {
            [] => self.forward(ids, logits),
            _ => Err(ModelError::new("this model scores no alternatives")),
        }
    }

    /// Cuts the cache back to the tokens before an alternative of the last
    /// [`forward_with`](Self::forward_with), and appends so many of its `tokens`, from the first. No
    /// call that changes the cache may come between the two.
    ///
    /// # Errors
    /// An alternative that was not scored, or has fewer tokens.
    fn take_alternative(&mut self, alternative: usize, tokens: usize) -> Result<(), ModelError> {
        let _ = tokens;
        Err(ModelError::new(format!(
            "alternative {alternative} was not scored"
        )))
    }

    /// Appends `ids` to the cache without returning logits. Engines that can skip the output
    /// projection should override this.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.len(), self.max_len(), self.vocab_size())?;
        let mut discarded = Vec::new();
        ids.chunks(PREFILL_CHUNK)
            .try_for_each(|chunk| self.forward(chunk, &mut discarded))
    }

    /// Appends `ids` and computes the logits of the last one. `logits` becomes `[vocab_size]`, or
    /// empty if `ids` is.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn prompt(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        check_call(ids, self.len(), self.max_len(), self.vocab_size())?;
        match ids.split_last() {
            // One call over a few tokens takes less time than two calls.
            Some(_) if ids.len() <= FEW => {
                self.forward(ids, logits)?;
                let before = (ids.len() - 1) * self.vocab_size();
                // Logits of another shape are left as they are, for the caller to find.
                if logits.len() == before + self.vocab_size() {
                    logits.drain(..before);
                }
                Ok(())
            }
            Some((last, before)) => {
                self.prefill(before)?;
                self.forward(&[*last], logits)
            }
            None => {
                logits.clear();
                Ok(())
            }
        }
    }

    /// True if a drafter has nothing to propose after the tokens in its cache, whatever its last
    /// row is. The draft ends there. A neural model never abstains.
    fn abstains(&self) -> bool {
        false
    }

    /// The normalised final hidden state of the last position of the last
    /// [`forward`](Self::forward) or [`prompt`](Self::prompt), `[hidden]`, from which its last row
    /// of logits was computed; empty if the model does not provide it. It must be read before any
    /// other call.
    fn state(&self) -> &[f32] {
        &[]
    }

    /// Access to logits that stay on a device until they are read. `None` if
    /// [`forward`](Self::forward) computes them in memory anyway, or if the device does not keep
    /// those of so many `tokens`.
    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        let _ = tokens;
        None
    }
}

/// Logits that stay on the device that computed them, so that only logits that are read are
/// fetched: a row of a large vocabulary is half a megabyte, its most probable column four bytes.
pub trait DeviceLogits {
    /// Appends `ids` to the KV cache, at most as many as the `tokens` that
    /// [`device_logits`](LanguageModel::device_logits) was given. Their logits, one row per token,
    /// stay on the device until tokens are appended again.
    ///
    /// # Errors
    /// As [`LanguageModel::forward`]; more tokens than the device keeps logits of.
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError>;

    /// Writes the column of the largest logit of every row, the lowest of equal ones; `None` for a
    /// row with NaN or `+inf`, or with only `-inf`.
    ///
    /// # Errors
    /// A device that fails.
    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError>;

    /// Fetches some rows, row-major `[rows.len(), vocab_size]`. [`LanguageModel::state`] is fetched
    /// with the last scored row and is empty before.
    ///
    /// # Errors
    /// Rows that were not scored; a device that fails.
    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError>;
}

/// The methods of [`LanguageModel`](crate::LanguageModel) for a type that holds a model, including
/// those with a default: calls of a method that is left out here would not reach the model. The
/// type's methods `$shared(&self)` and `$mutable(&mut self)` return the model.
#[macro_export]
macro_rules! forward_to_inner {
    ($shared:ident, $mutable:ident) => {
        fn vocab_size(&self) -> usize {
            self.$shared().vocab_size()
        }

        fn len(&self) -> usize {
            self.$shared().len()
        }

        fn max_len(&self) -> usize {
            self.$shared().max_len()
        }

        fn truncate(&mut self, len: usize) {
            self.$mutable().truncate(len);
        }

        fn forward(
            &mut self,
            ids: &[u32],
            logits: &mut Vec<f32>,
        ) -> Result<(), $crate::ModelError> {
            self.$mutable().forward(ids, logits)
        }

        fn alternatives(&self, tokens: usize) -> usize {
            self.$shared().alternatives(tokens)
        }

        fn forward_with(
            &mut self,
            ids: &[u32],
            alternatives: &[$crate::Alternative<'_>],
            logits: &mut Vec<f32>,
        ) -> Result<(), $crate::ModelError> {
            self.$mutable().forward_with(ids, alternatives, logits)
        }

        fn take_alternative(
            &mut self,
            alternative: usize,
            tokens: usize,
        ) -> Result<(), $crate::ModelError> {
            self.$mutable().take_alternative(alternative, tokens)
        }

        fn prefill(&mut self, ids: &[u32]) -> Result<(), $crate::ModelError> {
            self.$mutable().prefill(ids)
        }

        fn prompt(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), $crate::ModelError> {
            self.$mutable().prompt(ids, logits)
        }

        fn abstains(&self) -> bool {
            self.$shared().abstains()
        }

        fn state(&self) -> &[f32] {
            self.$shared().state()
        }

        fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn $crate::DeviceLogits> {
            self.$mutable().device_logits(tokens)
        }
    };
}

impl<M: LanguageModel + ?Sized> LanguageModel for &mut M {
    forward_to_inner!(deref, deref_mut);
}

impl<M: LanguageModel + ?Sized> LanguageModel for Box<M> {
    forward_to_inner!(deref, deref_mut);
}
