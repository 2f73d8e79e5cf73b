//! Tokenizer, template and stop tokens of a model, without its weights.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hub::local_tokenizer;
use lm::{LmConfig, StoredCheckpoint};
use vocab_align::{TokenId, Vocabulary};

use crate::ends::{ends, of_vocabulary};
use crate::error::{ModelsError, Result};
use crate::folder::{check_files, check_folder, model_folder};
use crate::generation::configured_ends;
use crate::{ChatTemplate, Generation, Markers, Rendered, TemplateError, TemplateVariables};

/// The file of a tokenizer: `path` itself, or `tokenizer.json` in that folder, or that of the model
/// of the hub.
///
/// # Errors
/// A download that fails; a folder whose files cannot be read, as [`check_files`].
pub fn tokenizer_file(path: &Path) -> Result<PathBuf> {
    let file = match local_tokenizer(path)? {
        Some(file) => file,
        None if path.is_dir() => path.join("tokenizer.json"),
        None => path.to_owned(),
    };
    if let Some(folder) = file.parent().filter(|folder| folder.is_dir()) {
        check_files(folder)?;
    }
    Ok(file)
}

/// A model folder without its weights. `I` is the type of its token ids: drafter's or target's.
#[derive(Clone)]
pub struct ModelText<I: TokenId> {
    /// Path of the folder.
    pub path: PathBuf,
    /// The vocabulary.
    pub vocabulary: Vocabulary<I>,
    /// The chat template.
    pub template: ChatTemplate,
    /// Generation settings of the model's owner; empty for a tokenizer without a model.
    pub generation: Generation,
    /// Stop tokens.
    stop: BTreeSet<I>,
}

impl<I: TokenId> ModelText<I> {
    /// Loads `config.json`, `tokenizer.json`, the chat template if there is one, and the optional
    /// `omnidraft.json`. `hf:owner/name` stands for a folder that is downloaded first.
    ///
    /// # Errors
    /// A missing or malformed file, with its name; a vocabulary larger than the embedding; a failed
    /// download.
    pub fn load(path: &Path) -> Result<Self> {
        let path = &*model_folder(path)?;
        Self::of(path, &StoredCheckpoint::read_config(path)?)
    }

    /// The text of a tokenizer without a model: `tokenizer.json`, or a folder that holds one, or
    /// `hf:owner/name`, with the chat template beside it if there is one. `positions` is the length
    /// of the context, half of which a prompt may take by default.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of_tokenizer(path: &Path, positions: usize) -> Result<Self> {
        let file = tokenizer_file(path)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let vocabulary = Vocabulary::from_file(&file)?;
        Ok(Self {
            path: folder.to_owned(),
            template: ChatTemplate::from_model_dir(folder, positions)?,
            generation: Generation::default(),
            stop: of_vocabulary(&vocabulary),
            vocabulary,
        })
    }

    /// The text of a model of which nothing else is read, and the number of columns of its logits
    /// as far as that is known. The model may be of an architecture or a format that this program
    /// does not decode; then it has at most `columns` columns and `positions` positions. Of one on
    /// the hub nothing else is downloaded. A tokenizer without a model is read as by
    /// [`of_tokenizer`](Self::of_tokenizer).
    ///
    /// # Errors
    /// As [`load`](Self::load), but for what this program cannot decode.
    pub fn alone(path: &Path, columns: usize, positions: usize) -> Result<(Self, usize)> {
        let of_hub = local_tokenizer(path)?;
        let folder = of_hub.as_deref().and_then(Path::parent).unwrap_or(path);
        let is_model = folder.join("config.json").is_file();
        if is_model || !folder.exists() {
            check_folder(folder)?;
        }
        let text = match is_model.then(|| StoredCheckpoint::read_config(folder)) {
            Some(Ok(config)) => return Ok((Self::of(folder, &config)?, config.vocab_size)),
            Some(Err(_)) => Self::of_model(folder, &configured_ends(folder)?, columns, positions)?,
            None => Self::of_tokenizer(path, positions)?,
        };
        let vocab = text.vocabulary.len();
        Ok((text, vocab))
    }

    /// Sets the stop tokens and the maximum length of prompts in tokens, at least 1, to those of a
    /// recorded target.
    #[must_use]
    pub fn with_ends(mut self, stop: BTreeSet<I>, max_prompt_tokens: usize) -> Self {
        self.stop = stop;
        self.template.set_max_prompt_tokens(max_prompt_tokens);
        self
    }

    /// Sets variables of the chat template, and a system message if there is one. A model without a
    /// template stays as it is, unless one is `needed`.
    ///
    /// # Errors
    /// No template although one is needed; an exception of the template.
    pub fn asked_with(
        &mut self,
        variables: &TemplateVariables,
        system: Option<&str>,
        needed: bool,
    ) -> Result<(), TemplateError> {
        if needed || self.template.is_chat() {
            let system = system.map(str::to_owned);
            self.template = self.template.clone().with(variables.clone(), system)?;
        }
        Ok(())
    }

    /// The text of a local folder whose `config.json` has been read.
    pub(crate) fn of(path: &Path, config: &LmConfig) -> Result<Self> {
        let (vocab, positions) = (config.vocab_size, config.max_position_embeddings);
        Self::of_model(path, &config.eos_token_ids, vocab, positions)
    }

    /// The text of a local folder whose model has `vocab` columns of logits and `positions`
    /// positions; `configured` are the stop tokens that its configuration names.
    pub(crate) fn of_model(
        path: &Path,
        configured: &[u32],
        vocab: usize,
        positions: usize,
    ) -> Result<Self> {
        let vocabulary = Vocabulary::from_file_for(&path.join("tokenizer.json"), vocab)?;
        Ok(Self {
            path: path.to_owned(),
            template: ChatTemplate::from_model_dir(path, positions)?,
            generation: Generation::read(path)?,
            stop: ends(path, configured, vocab, &vocabulary)?
                .into_iter()
                .map(|end| end.id)
                .collect(),
            vocabulary,
        })
    }

    /// Tokenises a prompt: the ids that transformers gives for the whole text. A chat template
    /// writes its own beginning of text; plain text gets the tokens that the tokenizer's
    /// post-processor adds, if any. Names of special tokens in the prompt become these tokens,
    /// unless `omnidraft.json` declares them as text ([`Markers`]).
    ///
    /// # Errors
    /// Text that the tokenizer refuses; an empty prompt.
    pub fn encode(&self, prompt: &Rendered) -> Result<Vec<I>> {
        let ids = self.ids(prompt)?;
        if ids.is_empty() {
            let path = self.path.display();
            return Err(ModelsError::Refused(format!(
                "the prompt is empty, and the tokenizer of {path} adds no beginning of text"
            )));
        }
        Ok(ids)
    }

    /// Number of tokens of a prompt: the length of what [`encode`](Self::encode) returns, and 0 for
    /// an empty prompt, which it refuses.
    ///
    /// # Errors
    /// Text that the tokenizer refuses.
    pub fn count(&self, prompt: &Rendered) -> Result<usize> {
        Ok(self.ids(prompt)?.len())
    }

    /// Tokenises a conversation, as [`encode`](Self::encode) does a prompt.
    ///
    /// # Errors
    /// Text that the tokenizer refuses; an empty conversation.
    pub fn encode_conversation(&self, conversation: &Rendered) -> Result<Vec<I>> {
        let ids = self.ids(conversation)?;
        match ids.is_empty() {
            true => Err(ModelsError::Refused("the conversation is empty".to_owned())),
            false => Ok(ids),
        }
    }

    /// The ids of a text; none for an empty one to which the tokenizer adds nothing.
    fn ids(&self, prompt: &Rendered) -> Result<Vec<I>> {
        let Rendered { text, bodies } = prompt;
        let framed = !self.template.is_chat();
        Ok(match self.template.markers() {
            Markers::Text => self.vocabulary.encode_around(text, bodies, framed)?,
            Markers::Special if framed => self.vocabulary.encode_whole(text)?,
            Markers::Special => self.vocabulary.encode_with_specials(text)?,
        })
    }

    /// Stop tokens.
    pub fn stop_tokens(&self) -> BTreeSet<I> {
        self.stop.clone()
    }

    /// Stop tokens; none if they are `ignored`.
    pub fn stop_tokens_unless(&self, ignored: bool) -> BTreeSet<I> {
        match ignored {
            true => BTreeSet::new(),
            false => self.stop_tokens(),
        }
    }
}
