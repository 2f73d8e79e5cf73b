//! Model folders as the loop needs them: weights, tokenizer, template, special tokens.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use anyhow::{Context, Result, bail};
use lm::{Checkpoint, CpuEngine, DecodeEngine, EngineOptions, PackedWeights};
use spec_decode::{LanguageModel, ModelError, Pair};
use vocab_align::{Alignment, DraftId, MappingMode, SpecialRole, TargetId, TokenId, Vocabulary};

use crate::config::{DecodeConfig, Idle};
use crate::hub::local_folder;
use crate::streams::{ChatTemplate, Rendered};

/// A loaded model folder, in the role its ids have.
pub struct ModelFolder<I: TokenId> {
    /// Where it came from.
    pub path: PathBuf,
    /// Weights.
    pub checkpoint: Checkpoint,
    /// Tokens.
    pub vocabulary: Vocabulary<I>,
    /// The words around a prompt.
    pub template: ChatTemplate,
}

impl<I: TokenId> ModelFolder<I> {
    /// Loads `config.json`, weights, `tokenizer.json`, the chat template if there is one, and the
    /// optional `omnidraft.json`. `hf:owner/name` stands for a folder that is downloaded first.
    ///
    /// # Errors
    /// Anything missing or malformed, with its file; a tokenizer larger than the model; a failing
    /// download.
    pub fn load(path: &Path) -> Result<Self> {
        let path = &*local_folder(path)?;
        if !path.is_dir() {
            bail!("{}: no such model folder", path.display());
        }
        let checkpoint = Checkpoint::load(path)?;
        let vocabulary = Vocabulary::from_file(&path.join("tokenizer.json"))?;
        if vocabulary.len() > checkpoint.config.vocab_size {
            bail!(
                "{}: tokenizer.json has {} tokens, but config.json says vocab_size = {}",
                path.display(),
                vocabulary.len(),
                checkpoint.config.vocab_size
            );
        }
        let template =
            ChatTemplate::from_model_dir(path, checkpoint.config.max_position_embeddings)?;
        Ok(Self {
            path: path.to_owned(),
            checkpoint,
            vocabulary,
            template,
        })
    }

    /// The same model with what costs time and changes nothing.
    pub fn padded(&self, idle: Idle) -> Self {
        self.with_checkpoint(idle.pad(self.checkpoint.clone()))
    }

    /// The same model with other weights.
    pub fn with_checkpoint(&self, checkpoint: Checkpoint) -> Self {
        Self {
            path: self.path.clone(),
            checkpoint,
            vocabulary: self.vocabulary.clone(),
            template: self.template.clone(),
        }
    }

    /// A prompt as this model reads it: special tokens are parsed in the template's words only; the
    /// ids are those transformers makes of the whole text, unless the prompt itself spells one.
    ///
    /// # Errors
    /// Text the tokenizer cannot spell.
    pub fn encode(&self, prompt: &Rendered) -> Result<Vec<I>> {
        let mut ids: Vec<I> = Vec::new();
        if self.template.needs_bos() {
            let listed = self.checkpoint.config.bos_token_id.map(I::new);
            ids.extend(listed.or(self.vocabulary.special(SpecialRole::Bos)));
        }
        let Rendered {
            prefix,
            body,
            suffix,
        } = prompt;
        ids.extend(self.vocabulary.encode_between(prefix, body, suffix)?);
        if ids.is_empty() {
            bail!(
                "the prompt is empty, and {} has no beginning-of-text token",
                self.path.display()
            );
        }
        Ok(ids)
    }

    /// Tokens that end a response.
    pub fn stop_tokens(&self) -> BTreeSet<I> {
        let listed = self
            .checkpoint
            .config
            .eos_token_ids
            .iter()
            .map(|id| I::new(*id));
        let by_role = [SpecialRole::Eos, SpecialRole::EndOfTurn]
            .into_iter()
            .filter_map(|r| self.vocabulary.special(r));
        listed.chain(by_role).collect()
    }

    /// A decode engine with these weights.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn engine(&self, decode: &DecodeConfig) -> Result<Engine> {
        let options = EngineOptions {
            weights: decode.weights.into(),
            threads: decode.threads,
            max_len: self.checkpoint.config.max_position_embeddings,
            ..EngineOptions::default()
        };
        let engine = CpuEngine::new(&self.checkpoint, options).with_context(|| {
            format!("{}: the decode engine cannot be built", self.path.display())
        })?;
        announce(&engine, decode);
        Ok(Engine {
            inner: engine,
            ids: Vec::new(),
        })
    }
}

/// Says which kernels run on what, with the first engine of the process.
fn announce(engine: &CpuEngine, decode: &DecodeConfig) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::info!(
            kernels = %engine.kernels(),
            weights = %lm::WeightType::from(decode.weights),
            compact = engine.compact(),
            threads = engine.threads(),
            "decoding on the CPU"
        );
    });
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

/// The decode engine in either role.
pub struct Engine {
    inner: CpuEngine,
    ids: Vec<u32>,
}

impl Engine {
    /// Replaces the weights after an update of the drafter.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    pub fn load_weights(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        Ok(self.inner.load_weights(checkpoint)?)
    }

    /// Decodes with other weights from now on; `packed` receives the ones used so far.
    ///
    /// # Errors
    /// Weights of another shape or storage.
    pub fn swap_weights(&mut self, packed: &mut PackedWeights) -> Result<()> {
        Ok(self.inner.swap_weights(packed)?)
    }
}

impl<I: TokenId> LanguageModel<I> for Engine {
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    fn truncate(&mut self, len: usize) {
        self.inner.truncate(len);
    }

    fn forward(&mut self, ids: &[I], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.ids.clear();
        self.ids.extend(ids.iter().map(|id| id.get()));
        self.inner
            .forward(&self.ids, logits)
            .map_err(ModelError::new)
    }

    fn state(&self) -> &[f32] {
        self.inner.last_state()
    }

    fn prefill(&mut self, ids: &[I]) -> Result<(), ModelError> {
        self.ids.clear();
        self.ids.extend(ids.iter().map(|id| id.get()));
        self.inner.append(&self.ids).map_err(ModelError::new)
    }
}
