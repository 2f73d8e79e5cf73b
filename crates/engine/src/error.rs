//! Errors of a call.

use std::error::Error;

use thiserror::Error;

/// A failure inside a model.
///
/// The decoding loop does not interpret it; it only adds the model that failed and the round.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A token id is outside the model's vocabulary.
    #[error("token id {id} is outside the model's vocabulary of {vocab_size}")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Number of columns of a row of logits.
        vocab_size: usize,
    },
    /// A context would exceed the KV cache.
    #[error("a context of {needed} tokens exceeds the maximum of {max_len}")]
    ContextFull {
        /// Number of tokens after the call.
        needed: usize,
        /// Capacity in tokens.
        max_len: usize,
    },
    /// An engine's own error: kernels, devices, files.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync + 'static>),
}

impl ModelError {
    /// Wraps an engine's own error, or a plain message.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::Other(source.into())
    }
}

/// The checks of [`LanguageModel::forward`](crate::LanguageModel::forward), which an engine makes
/// before it changes its cache of `len` tokens.
///
/// # Errors
/// [`ModelError::TokenOutOfRange`] or [`ModelError::ContextFull`].
pub fn check_call(
    ids: &[u32],
    len: usize,
    max_len: usize,
    vocab_size: usize,
) -> Result<(), ModelError> {
    if let Some(&id) = ids.iter().find(|id| **id as usize >= vocab_size) {
        return Err(ModelError::TokenOutOfRange { id, vocab_size });
    }
    if len + ids.len() > max_len {
        return Err(ModelError::ContextFull {
            needed: len + ids.len(),
            max_len,
        });
    }
    Ok(())
}
