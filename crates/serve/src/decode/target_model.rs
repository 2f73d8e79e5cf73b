//! The target model of a slot: local or remote.

use models::Engine;
use spec_decode::{LanguageModel, ModelError};

use crate::remote::RemoteTarget;

/// The target model of a slot: local or remote.
pub(crate) enum TargetModel {
    Local(Engine),
    Remote(RemoteTarget),
}

impl LanguageModel for TargetModel {
    fn vocab_size(&self) -> usize {
        match self {
            Self::Local(engine) => engine.vocab_size(),
            Self::Remote(target) => target.vocab_size(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Local(engine) => engine.len(),
            Self::Remote(target) => target.len(),
        }
    }

    fn max_len(&self) -> usize {
        match self {
            Self::Local(engine) => engine.max_len(),
            Self::Remote(target) => target.max_len(),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Local(engine) => engine.truncate(len),
            Self::Remote(target) => target.truncate(len),
        }
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        match self {
            Self::Local(engine) => engine.forward(ids, logits),
            Self::Remote(target) => target.forward(ids, logits),
        }
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        match self {
            Self::Local(engine) => engine.prefill(ids),
            Self::Remote(target) => target.prefill(ids),
        }
    }
}
