//! Training documents for `omnidraft pretrain`.
//!
//! Two kinds: a task's records in instruction format (template, reference, end of turn), exactly as they are asked at
//! run time, and plain text (`{"id", "text"}` lines). No document of a test split is ever among them, and a share of
//! the rest is held out by a hash of its id, so that the same documents are held out whatever else is trained on.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use models::{PromptTemplate, Rendered, TemplateError};
use streams::{DataSource, StreamError, StreamRng, load_texts};

/// Why a corpus cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// A stream or a file of it.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The words around its prompts.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A held-out share outside 0..1.
    #[error("held-out share {share} is not in 0..1")]
    BadHeldOut {
        /// What was given.
        share: f64,
    },
}

impl CorpusError {
    /// What the user can do about it, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Stream(error) => error.hint(),
            Self::Template(error) => error.hint(),
            Self::BadHeldOut { .. } => None,
        }
    }
}

/// One source of a corpus.
///
/// In a config: `{ task = "gsm8k" }` or `{ text = "generic/books.jsonl" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorpusSource {
    /// All records of a task's `train.jsonl`, in instruction format.
    Task(String),
    /// A JSON-lines file with the fields `id` and `text`; a relative path is taken from the data directory.
    Text(PathBuf),
}

/// A stretch of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Template text: special tokens in it are to be parsed.
    Markup(&'a str),
    /// Content: nothing in it is special.
    Text(&'a str),
}

/// One training document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The record's id.
    pub id: String,
    /// The task, or the file's stem for plain text.
    pub source: String,
    /// The prompt in its template; absent for plain text.
    pub prompt: Option<Rendered>,
    /// The reference answer, or the plain text.
    pub content: String,
    /// The end of turn; empty for plain text.
    pub end_of_turn: String,
    /// Whether it measures the held-out loss instead of being trained on.
    pub held_out: bool,
}

impl Document {
    /// The document in order; an empty piece is left out.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let prompt = self.prompt.iter().flat_map(|p| {
            [
                Piece::Markup(&p.prefix),
                Piece::Text(&p.body),
                Piece::Markup(&p.suffix),
            ]
        });
        prompt
            .chain([Piece::Text(&self.content), Piece::Markup(&self.end_of_turn)])
            .filter(|piece| !matches!(piece, Piece::Markup("") | Piece::Text("")))
    }

    /// The whole text.
    pub fn text(&self) -> String {
        self.pieces()
            .map(|(Piece::Markup(text) | Piece::Text(text))| text)
            .collect()
    }

    /// Byte of [`Document::text`] at which the answer begins; 0 for plain text. What a loss on answers only masks by.
    pub fn response_start(&self) -> usize {
        self.prompt
            .as_ref()
            .map_or(0, |p| p.prefix.len() + p.body.len() + p.suffix.len())
    }
}

/// Documents of all sources, in the sources' order.
///
/// ```
/// use models::PromptTemplate;
/// use pretrain::{Corpus, CorpusSource};
/// use streams::DataSource;
///
/// let sources = [CorpusSource::Task("mini-code".into())];
/// let corpus = Corpus::load(&sources, &DataSource::embedded(), &PromptTemplate::default(), 0.05)?;
/// assert_eq!(corpus.training().count() + corpus.held_out().count(), 400);
/// assert!(corpus.documents()[0].text().ends_with("<|end|>"));
/// # Ok::<(), pretrain::CorpusError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Corpus {
    documents: Vec<Document>,
}

impl Corpus {
    /// Loads the sources; `held_out` is the share of documents held out, in `0..1`.
    ///
    /// # Errors
    /// Anything wrong in a file, a share outside `0..1`, an empty list of sources, or a record that some split file
    /// of the data directory (or an embedded test stream) reserves for testing.
    pub fn load(
        sources: &[CorpusSource],
        data: &DataSource,
        template: &PromptTemplate,
        held_out: f64,
    ) -> Result<Self, CorpusError> {
        if !(0.0..1.0).contains(&held_out) {
            return Err(CorpusError::BadHeldOut { share: held_out });
        }
        template.validate()?;
        let mut documents = Vec::new();
        for source in sources {
            let (name, loaded) = match source {
                CorpusSource::Task(task) => (task.clone(), task_documents(task, data, template)?),
                CorpusSource::Text(path) => {
                    let path = data
                        .data_dir()
                        .map_or_else(|| path.clone(), |folder| folder.join(path));
                    (path.display().to_string(), text_documents(&path)?)
                }
            };
            // Loading may download a task, and with it ids that are reserved.
            refuse_test_ids(&loaded, &data.test_ids()?, &name)?;
            documents.extend(loaded);
        }
        if documents.is_empty() {
            return Err(CorpusError::Stream(StreamError::EmptyStream {
                stream: "training corpus".to_owned(),
            }));
        }
        for document in &mut documents {
            document.held_out = is_held_out(&document.id, held_out);
        }
        Ok(Self { documents })
    }

    /// Shortens every prompt as [`PromptTemplate::fit`] does at run time; possible only once a tokenizer is there.
    ///
    /// # Errors
    /// As [`PromptTemplate::fit`].
    pub fn fit_prompts<E: From<TemplateError>>(
        &mut self,
        template: &PromptTemplate,
        mut count: impl FnMut(&Rendered) -> Result<usize, E>,
    ) -> Result<(), E> {
        for prompt in self.documents.iter_mut().filter_map(|d| d.prompt.as_mut()) {
            *prompt = template.fit(&prompt.body, &mut count)?.rendered;
        }
        Ok(())
    }

    /// All documents in the sources' order.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// The documents to train on, in the sources' order.
    pub fn training(&self) -> impl Iterator<Item = &Document> {
        self.documents.iter().filter(|d| !d.held_out)
    }

    /// The documents held out.
    pub fn held_out(&self) -> impl Iterator<Item = &Document> {
        self.documents.iter().filter(|d| d.held_out)
    }

    /// The documents to train on in the order of one epoch: a permutation by seed and epoch.
    pub fn epoch(&self, seed: u64, epoch: usize) -> impl Iterator<Item = &Document> {
        let mut order: Vec<&Document> = self.training().collect();
        StreamRng::new(seed, &format!("corpus epoch {epoch}")).shuffle(&mut order);
        order.into_iter()
    }
}

fn task_documents(
    task: &str,
    data: &DataSource,
    template: &PromptTemplate,
) -> Result<Vec<Document>, StreamError> {
    let prompts = data.load_training_pool(task)?;
    let document = |p: streams::Prompt| Document {
        id: p.id,
        source: p.task,
        prompt: Some(template.render(&p.prompt)),
        content: p.reference,
        end_of_turn: template.end_of_turn.clone(),
        held_out: false,
    };
    Ok(prompts.into_iter().map(document).collect())
}

fn text_documents(path: &std::path::Path) -> Result<Vec<Document>, StreamError> {
    let source = path
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    let document = |(id, content)| Document {
        id,
        source: source.clone(),
        prompt: None,
        content,
        end_of_turn: String::new(),
        held_out: false,
    };
    Ok(load_texts(path, "text")?
        .into_iter()
        .map(document)
        .collect())
}

fn refuse_test_ids(
    documents: &[Document],
    reserved: &HashMap<String, String>,
    data: &str,
) -> Result<(), StreamError> {
    let leak = documents
        .iter()
        .find_map(|d| reserved.get(&d.id).map(|split| (d, split)));
    leak.map_or(Ok(()), |(document, split)| {
        Err(StreamError::TestLeak {
            id: document.id.clone(),
            data: data.to_owned(),
            split: split.clone(),
        })
    })
}

/// Whether a document is held out at a share of `share`: SHA-256 of its id, read as a number in `0..1`, is below it.
/// Raising the share only ever adds documents.
pub fn is_held_out(id: &str, share: f64) -> bool {
    let digest = Sha256::new()
        .chain_update(b"held out\0")
        .chain_update(id.as_bytes())
        .finalize();
    let mut word = [0u8; 4];
    word.copy_from_slice(&digest[..4]);
    f64::from(u32::from_be_bytes(word)) / 4_294_967_296.0 < share
}
