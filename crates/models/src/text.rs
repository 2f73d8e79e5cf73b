//! What of a model is needed to write and read its tokens.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use hub::local_tokenizer;
use lm::{LmConfig, StoredCheckpoint};
use vocab_align::{TokenId, Vocabulary};

use crate::ends::{self, End, of_vocabulary};
use crate::folder::{check_files, model_folder};
use crate::{ChatTemplate, Conversation, Generation, Markers, Rendered, TemplateVariables};

/// A model folder without its weights, in the role its ids have.
#[derive(Clone)]
pub struct ModelText<I: TokenId> {
    /// Where it came from.
    pub path: PathBuf,
    /// Tokens.
    pub vocabulary: Vocabulary<I>,
    /// The words around a prompt.
    pub template: ChatTemplate,
    /// How the owner of the model draws its answers; nothing of a tokenizer without a model.
    pub generation: Generation,
    /// Tokens that end a response.
    stop: BTreeSet<I>,
}

impl<I: TokenId> ModelText<I> {
    /// Loads `config.json`, `tokenizer.json`, the chat template if there is one, and the optional
    /// `omnidraft.json`. `hf:owner/name` stands for a folder that is downloaded first.
    ///
    /// # Errors
    /// Anything missing or malformed, with its file; a tokenizer whose model is larger than the
    /// embedding; a failing download.
    pub fn load(path: &Path) -> Result<Self> {
        let path = &*model_folder(path)?;
        Self::of(path, &StoredCheckpoint::read_config(path)?)
    }

    /// The text of a tokenizer without a model: `tokenizer.json`, or a folder that holds one, or
    /// `hf:owner/name`, with the chat template beside it if there is one. `positions` is the length
    /// of the context, half of which a prompt may take where the folder does not say.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of_tokenizer(path: &Path, positions: usize) -> Result<Self> {
        let file = match local_tokenizer(path)? {
            Some(file) => file,
            None if path.is_dir() => path.join("tokenizer.json"),
            None => path.to_owned(),
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        if folder.is_dir() {
            check_files(folder)?;
        }
        let vocabulary = Vocabulary::from_file(&file)?;
        Ok(Self {
            path: folder.to_owned(),
            template: ChatTemplate::from_model_dir(folder, positions)?,
            generation: Generation::default(),
            stop: ids(of_vocabulary(&vocabulary)),
            vocabulary,
        })
    }

    /// Takes these tokens for the ends of a response, and exactly so many tokens, at least 1, for the
    /// longest prompt: those that a recorded target had.
    #[must_use]
    pub fn with_ends(mut self, stop: BTreeSet<I>, max_prompt_tokens: usize) -> Self {
        self.stop = stop;
        self.template.set_max_prompt_tokens(max_prompt_tokens);
        self
    }

    /// Asks with these variables of the chat template, and a system message where there is one. A model
    /// without a template is asked as before, if it is not `needed`.
    ///
    /// # Errors
    /// No template where one is needed; what the template raises.
    pub fn asked_with(
        &mut self,
        variables: &TemplateVariables,
        system: Option<&str>,
        needed: bool,
    ) -> Result<()> {
        if needed || self.template.is_chat() {
            let system = system.map(str::to_owned);
            self.template = self.template.clone().with(variables.clone(), system)?;
        }
        Ok(())
    }

    /// The text of a local folder whose `config.json` is already read.
    pub(crate) fn of(path: &Path, config: &LmConfig) -> Result<Self> {
        let file = path.join("tokenizer.json");
        let vocabulary = Vocabulary::from_file_for(&file, config.vocab_size)?;
        Ok(Self {
            path: path.to_owned(),
            template: ChatTemplate::from_model_dir(path, config.max_position_embeddings)?,
            generation: Generation::read(path)?,
            stop: ids(ends::ends(path, config, &vocabulary)?),
            vocabulary,
        })
    }

    /// A prompt as this model reads it: the ids that transformers makes of the whole text. A chat
    /// template writes its own beginning of text; plain text gets what the tokenizer's
    /// post-processor adds, which may be nothing. Names of special tokens in the prompt itself are
    /// these tokens, unless `omnidraft.json` says that they are text ([`Markers`]).
    ///
    /// # Errors
    /// Text the tokenizer refuses; nothing to feed.
    pub fn encode(&self, prompt: &Rendered) -> Result<Vec<I>> {
        let framed = !self.template.is_chat();
        let Rendered {
            prefix,
            body,
            suffix,
        } = prompt;
        let ids = match self.template.markers() {
            Markers::Text => self
                .vocabulary
                .encode_between(prefix, body, suffix, framed)?,
            Markers::Special if framed => self.vocabulary.encode_whole(&prompt.text())?,
            Markers::Special => self.vocabulary.encode_with_specials(&prompt.text())?,
        };
        if ids.is_empty() {
            bail!(
                "the prompt is empty, and the tokenizer of {} adds no beginning of text",
                self.path.display()
            );
        }
        Ok(ids)
    }

    /// A conversation as this model reads it, as [`encode`](Self::encode) does a prompt.
    ///
    /// # Errors
    /// Text the tokenizer refuses; nothing to feed.
    pub fn encode_conversation(&self, conversation: &Conversation) -> Result<Vec<I>> {
        let Conversation { text, bodies } = conversation;
        let ids = match self.template.markers() {
            Markers::Special => self.vocabulary.encode_with_specials(text)?,
            Markers::Text => self.vocabulary.encode_around(text, bodies, false)?,
        };
        if ids.is_empty() {
            bail!("the conversation is empty");
        }
        Ok(ids)
    }

    /// Tokens that end a response.
    pub fn stop_tokens(&self) -> BTreeSet<I> {
        self.stop.clone()
    }

    /// Tokens that end a response, none where they are `ignored`.
    pub fn stop_tokens_unless(&self, ignored: bool) -> BTreeSet<I> {
        match ignored {
            true => BTreeSet::new(),
            false => self.stop_tokens(),
        }
    }
}

fn ids<I: TokenId>(ends: Vec<End<I>>) -> BTreeSet<I> {
    ends.into_iter().map(|end| end.id).collect()
}
