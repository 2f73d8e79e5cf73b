#![doc = include_str!("../README.md")]

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cpu_engine::EngineOptions;
use lm::{Checkpoint, EngineSettings, LmConfig, LmError, StoredCheckpoint, TensorSource};
use spec_decode::Pair;
use vocab_align::{DraftId, TargetId, TokenId};

use crate::error::Result;

mod chat;
mod cut;
mod ends;
mod engine;
mod error;
mod export;
mod folder;
mod generation;
mod import;
mod needs;
mod packed;
pub mod step;
mod talk;
mod target;
mod template;
mod text;
mod walks;

pub use chat::{
    ChatTemplate, Message, TemplateRequest, TemplateValue, TemplateVariables, template_variables,
    whole_message,
};
pub use ends::{End, ends};
pub use engine::Engine;
pub use error::{ModelsError, TemplateError, TemplateFault, passed_on};
pub use export::{ExportError, copy_text, gguf_text};
pub use folder::{
    FolderError, TEXT_FILES, check_files, check_folder, check_model, in_place, is_weight_file,
};
pub use generation::{Generation, Setting};
pub use import::{ImportError, import_gguf};
pub use needs::TorchNeeds;
pub use packed::{DeviceError, Packed, check_device};
pub use talk::{Exchange, FittedTurn, Talk};
pub use target::{TORCH_PREFIX, TargetFolder, TorchSettings, torch_model};
pub use template::{CHAT_TEMPLATE_FILE, Fitted, Markers, PromptTemplate, Rendered, TEMPLATE_FILE};
pub use text::{ModelText, tokenizer_file};
pub use walks::{tune, tune_again};

/// Number of tokens beyond prompt and answer that a context has room for: those of a draft under
/// verification, at most 64, which may be several times as many tokens of the target.
pub const DRAFT_ROOM: usize = 256;

/// A model folder. `I` is the type of its token ids: the drafter's or the target's. Weights stay in
/// their files until an engine packs them or a learner reads them. It dereferences to its text.
pub struct ModelFolder<I: TokenId> {
    weights: Arc<StoredCheckpoint>,
    /// Number of idle inner columns of every MLP.
    pad_width: usize,
    /// Configuration of the padded model.
    config: LmConfig,
    /// Packed weights in use, by device and format. All engines of a device and format share them.
    packed: Mutex<BTreeMap<(String, &'static str), packed::Weak>>,
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
    /// Opens the files of weights and checks their headers, and loads the text as
    /// [`ModelText::load`] does.
    ///
    /// # Errors
    /// As [`ModelText::load`]; weights that are missing or malformed.
    pub fn load(path: &Path) -> Result<Self> {
        let path = &*folder::model_folder(path)?;
        let weights = StoredCheckpoint::open(path)?;
        let text = ModelText::of(path, weights.config())?;
        Ok(Self::new(Arc::new(weights), 0, text))
    }

    fn new(weights: Arc<StoredCheckpoint>, pad_width: usize, text: ModelText<I>) -> Self {
        let mut config = weights.config().clone();
        config.intermediate_size += pad_width;
        Self {
            weights,
            pad_width,
            config,
            packed: Mutex::default(),
            text,
        }
    }

    /// Shape of the model, padding included.
    pub fn config(&self) -> &LmConfig {
        &self.config
    }

    /// The files of the weights.
    pub fn weights(&self) -> &StoredCheckpoint {
        &self.weights
    }

    /// The same model with `width` more idle inner columns in every MLP, which cost time and do not
    /// change its output.
    #[must_use]
    pub fn padded(&self, width: usize) -> Self {
        let pad_width = self.pad_width + width;
        Self::new(Arc::clone(&self.weights), pad_width, self.text.clone())
    }

    /// Reads the weights into memory, in f32, padding included: for models that learn.
    ///
    /// # Errors
    /// A file that cannot be read any more.
    pub fn checkpoint(&self) -> Result<Checkpoint, LmError> {
        let checkpoint = Checkpoint::of(&*self.weights)?;
        Ok(match self.pad_width {
            0 => checkpoint,
            width => checkpoint.pad_width(width),
        })
    }

    /// Maximum number of tokens of prompt and answer: the prompt's budget, the answer, and room for
    /// a draft.
    pub fn context_for(&self, max_new_tokens: usize) -> usize {
        let text = self.text.template.max_prompt_tokens() + max_new_tokens;
        (text + DRAFT_ROOM).min(self.config.max_context())
    }

    /// Creates a decode engine. The weights go from their files to the engine, a few rows at a time
    /// (those of a padded model through memory). Engines of this folder with the same format share
    /// them until one receives others.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn engine(&self, settings: EngineSettings) -> Result<Engine> {
        let key = (settings.device.to_string(), settings.weights.name());
        let mut packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = packed.get(&key).and_then(packed::Weak::upgrade);
        let weights = match shared {
            Some(weights) => weights,
            None if self.pad_width == 0 => self.pack(&*self.weights, settings)?,
            None => self.pack(&self.checkpoint()?, settings)?,
        };
        packed.insert(key, weights.downgrade());
        self.engine_of(weights, settings)
    }

    /// A decode engine of this model with other weights, of the same shape or padded.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn engine_with(&self, weights: &Checkpoint, settings: EngineSettings) -> Result<Engine> {
        self.engine_of(self.pack(weights, settings)?, settings)
    }

    fn pack(&self, source: &dyn TensorSource, settings: EngineSettings) -> Result<Packed> {
        self.built(Packed::new(source, settings))
    }

    fn engine_of(&self, weights: Packed, settings: EngineSettings) -> Result<Engine> {
        self.built(weights.engine(&self.config, settings))
    }

    fn built<T>(&self, built: Result<T>) -> Result<T> {
        built.map_err(|error| ModelsError::Engine {
            path: self.path.clone(),
            source: Box::new(error),
        })
    }
}

/// Maximum number of tokens in an engine with these settings, of a model that has at most `most`.
fn context(most: usize, settings: EngineSettings) -> usize {
    settings.context.map_or(most, |context| context.min(most))
}

/// The settings as options of the CPU engine, for a model of this shape.
pub fn engine_options(config: &LmConfig, settings: EngineSettings) -> EngineOptions {
    EngineOptions {
        weights: settings.weights,
        kv: settings.kv,
        threads: settings.threads,
        max_len: context(config.max_context(), settings),
        ..EngineOptions::default()
    }
}

/// Vocabularies of drafter and target, aligned by bytes.
pub fn align(drafter: &ModelText<DraftId>, target: &ModelText<TargetId>) -> Pair {
    Pair::new(&drafter.vocabulary, &target.vocabulary)
}
