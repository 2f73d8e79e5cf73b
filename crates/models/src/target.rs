//! Targets: model folders that an engine of this program decodes, or a worker of PyTorch.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lm::{EngineSettings, ModelError};
use torch_engine::{Dtype, Torch, TorchOptions};
use vocab_align::TargetId;

use crate::error::{ModelsError, Result};
use crate::folder::model_folder;
use crate::generation::configured_ends;
use crate::{DRAFT_ROOM, Engine, ModelFolder, ModelText, context};

/// Prefix of a target that a worker of PyTorch decodes.
pub const TORCH_PREFIX: &str = "torch:";

/// The folder or `hf:owner/name` that `torch:` stands in front of; `None` for other targets.
pub fn torch_model(target: &Path) -> Option<PathBuf> {
    let name = target.to_str()?.strip_prefix(TORCH_PREFIX)?;
    Some(PathBuf::from(name))
}

/// Settings of a worker of PyTorch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchSettings {
    /// Number format of weights and computation.
    pub dtype: Dtype,
    /// Device: `cpu`, `cuda`, `cuda:N`, `mps`; or `auto`, which spreads the model if accelerate is
    /// installed, and otherwise takes the first of `cuda`, `mps` and `cpu`.
    pub device: String,
    /// Threads of the processor that PyTorch computes with; `None` for its own choice.
    pub threads: Option<usize>,
    /// Maximum duration of a call.
    pub timeout: Duration,
    /// For measurements: the worker counts the seconds of forwards, each of which lasts at least so
    /// long.
    pub clock: Option<Duration>,
}

impl Default for TorchSettings {
    fn default() -> Self {
        Self {
            dtype: Dtype::default(),
            device: "auto".to_owned(),
            threads: None,
            // A worker that takes longer hangs.
            timeout: Duration::from_secs(600),
            clock: None,
        }
    }
}

/// A target's model with its text, to which it dereferences.
pub struct TargetFolder {
    text: ModelText<TargetId>,
    decoder: Decoder,
}

/// Decoder of a target.
enum Decoder {
    /// An engine of this program.
    Own(Box<ModelFolder<TargetId>>),
    /// A worker of PyTorch.
    Torch(Torch),
}

impl Deref for TargetFolder {
    type Target = ModelText<TargetId>;

    fn deref(&self) -> &ModelText<TargetId> {
        &self.text
    }
}

impl DerefMut for TargetFolder {
    fn deref_mut(&mut self) -> &mut ModelText<TargetId> {
        &mut self.text
    }
}

impl TargetFolder {
    /// Loads a target: a model folder or `hf:owner/name`, with `torch:` in front of it for a worker
    /// of PyTorch with these settings.
    ///
    /// # Errors
    /// As for [`ModelFolder::load`] and [`torch`](Self::torch).
    pub fn load(target: &Path, settings: &TorchSettings) -> Result<Self> {
        match torch_model(target) {
            Some(model) => Self::torch(&model, settings),
            None => Self::own(target),
        }
    }

    /// Loads a target for an engine of this program.
    ///
    /// # Errors
    /// As for [`ModelFolder::load`].
    pub fn own(path: &Path) -> Result<Self> {
        let folder = ModelFolder::load(path)?;
        Ok(Self {
            text: folder.text.clone(),
            decoder: Decoder::Own(Box::new(folder)),
        })
    }

    /// Starts a worker of PyTorch with the model of a folder or of `hf:owner/name`, which is
    /// downloaded here and not by the worker. Configuration and weights are for transformers to
    /// read: they may be of an architecture or a format that this program does not know.
    ///
    /// # Errors
    /// A path that is no model folder; a failed download; a tokenizer that cannot be read or is
    /// larger than the model's logits; errors of the worker.
    pub fn torch(model: &Path, settings: &TorchSettings) -> Result<Self> {
        let folder = &*model_folder(model)?;
        let ends = configured_ends(folder)?;
        let torch = Torch::load(&TorchOptions {
            model: folder.display().to_string(),
            dtype: settings.dtype,
            device_map: settings.device.clone(),
            max_len: None,
            threads: settings.threads,
            timeout: settings.timeout,
            clock: settings.clock,
        })
        .map_err(|source| ModelsError::Worker {
            model: model.to_owned(),
            source,
        })?;
        let facts = torch.facts();
        Ok(Self {
            text: ModelText::of_model(folder, &ends, facts.vocab_size, facts.max_len)?,
            decoder: Decoder::Torch(torch),
        })
    }

    /// The model folder; `None` if a worker decodes it.
    pub fn folder(&self) -> Option<&ModelFolder<TargetId>> {
        match &self.decoder {
            Decoder::Own(folder) => Some(folder),
            Decoder::Torch(_) => None,
        }
    }

    /// The worker; `None` if an engine of this program decodes the target.
    pub fn worker(&self) -> Option<&Torch> {
        match &self.decoder {
            Decoder::Own(_) => None,
            Decoder::Torch(torch) => Some(torch),
        }
    }

    /// Number of columns of a row of logits.
    pub fn vocab_size(&self) -> usize {
        match &self.decoder {
            Decoder::Own(folder) => folder.config().vocab_size,
            Decoder::Torch(torch) => torch.facts().vocab_size,
        }
    }

    /// Maximum number of tokens in a KV cache.
    pub fn max_context(&self) -> usize {
        match &self.decoder {
            Decoder::Own(folder) => folder.config().max_context(),
            Decoder::Torch(torch) => torch.facts().max_len,
        }
    }

    /// Maximum number of tokens of prompt and answer: the prompt's budget, the answer, and room for
    /// a draft.
    pub fn context_for(&self, max_new_tokens: usize) -> usize {
        let text = self.text.template.max_prompt_tokens() + max_new_tokens;
        (text + DRAFT_ROOM).min(self.max_context())
    }

    /// Creates a decode engine: a sequence with a KV cache of its own. Of the settings, a worker
    /// reads only the context.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn engine(&self, settings: EngineSettings) -> Result<Engine> {
        match &self.decoder {
            Decoder::Own(folder) => folder.engine(settings),
            Decoder::Torch(torch) => {
                let context = context(self.max_context(), settings);
                let sequence = torch.sequence(context).map_err(ModelError::from)?;
                Ok(Engine::of(Box::new(sequence)))
            }
        }
    }
}
