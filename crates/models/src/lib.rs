//! Model folders as the loop needs them: weights, tokenizer, chat template, special tokens, and a decode engine.
//!
//! * [`ModelFolder`] is a loaded folder, local or `hf:owner/name`; [`ModelText`] its part without weights, enough to
//!   write and read tokens;
//! * [`Engine`] is the decode engine in the role of a drafter or a target, [`align`] lays their vocabularies side by
//!   side;
//! * [`ChatTemplate`] is the template that a folder brings, [`PromptTemplate`] the one that a recipe of
//!   `omnidraft pretrain` declares; both shorten a long prompt as text, so that drafter and target read the same;
//! * [`step`] measures how long a decoding step takes on this machine.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use cpu_engine::{CpuEngine, EngineOptions};
use lm::{Checkpoint, WeightType};
use spec_decode::Pair;
use vocab_align::{Alignment, DraftId, MappingMode, TargetId, TokenId};

mod chat;
mod clock;
mod engine;
mod error;
pub mod step;
mod template;
mod text;

pub use chat::{CHAT_TEMPLATE_FILE, ChatTemplate, Markers};
pub use engine::Engine;
pub use error::TemplateError;
pub use template::{Fitted, PromptTemplate, Rendered, TEMPLATE_FILE};
pub use text::ModelText;

/// A loaded model folder, in the role its ids have: weights, and the text that it dereferences to.
pub struct ModelFolder<I: TokenId> {
    /// Weights.
    pub checkpoint: Checkpoint,
    /// Vocabulary, template, special tokens.
    pub text: ModelText<I>,
}

impl<I: TokenId> Deref for ModelFolder<I> {
    type Target = ModelText<I>;

    fn deref(&self) -> &ModelText<I> {
        &self.text
    }
}

impl<I: TokenId> ModelFolder<I> {
    /// Loads weights, and the text as [`ModelText::load`] does.
    ///
    /// # Errors
    /// As [`ModelText::load`]; weights that are missing or malformed.
    pub fn load(path: &Path) -> Result<Self> {
        let path = &*text::folder(path)?;
        let checkpoint = Checkpoint::load(path)?;
        let text = ModelText::of(path, &checkpoint.config)?;
        Ok(Self { checkpoint, text })
    }

    /// The same model with what costs time and changes nothing.
    ///
    /// `layers` blocks and `width` inner columns an MLP.
    pub fn padded(&self, layers: usize, width: usize) -> Self {
        let padded = self.checkpoint.clone().pad_width(width).pad_layers(layers);
        self.with_checkpoint(padded)
    }

    /// The same model with other weights.
    pub fn with_checkpoint(&self, checkpoint: Checkpoint) -> Self {
        Self {
            checkpoint,
            text: self.text.clone(),
        }
    }

    /// A decode engine with these weights.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn engine(&self, weights: WeightType, threads: usize) -> Result<Engine> {
        let options = EngineOptions {
            weights,
            threads,
            max_len: self.checkpoint.config.max_position_embeddings,
            ..EngineOptions::default()
        };
        let engine = CpuEngine::new(&self.checkpoint, options).with_context(|| {
            format!("{}: the decode engine cannot be built", self.path.display())
        })?;
        Ok(Engine::new(engine, weights))
    }
}

/// Vocabularies of drafter and target, aligned by bytes.
pub fn align(drafter: &ModelFolder<DraftId>, target: &ModelFolder<TargetId>) -> Pair {
    let alignment = Alignment::build(&drafter.vocabulary, &target.vocabulary, MappingMode::Bytes);
    Pair {
        draft: drafter.vocabulary.clone(),
        target: target.vocabulary.clone(),
        alignment: Arc::new(alignment),
    }
}
