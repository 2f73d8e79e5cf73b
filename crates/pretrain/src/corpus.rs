//! Training documents for `omnidraft pretrain`.
//!
//! There are three kinds: a task's records in instruction format (template, reference, end of
//! turn), exactly as prompts are put at run time; the same with the answers of a recorded target;
//! and plain text (`{"id", "text"}` lines). No document that a split file or an embedded stream
//! reserves for testing is among them. A share of the rest is held out by a hash of the id, so that
//! the same documents are held out whatever the other sources are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use models::{PromptTemplate, Rendered, TemplateError};
use streams::{DataSource, Split, StreamError, Text, load_texts};
use trace::{TraceError, TraceFile, file_sha256};
use vocab_align::{AlignError, TargetId, TokenId, Vocabulary};

/// Reason why a corpus cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// A stream or one of its files has a fault.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The chat template has a fault.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A recording has a fault.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The tokenizer of a recording has a fault.
    #[error(transparent)]
    Tokenizer(#[from] AlignError),
    /// A recording cannot be used for training.
    #[error("{}: {message}", path.display())]
    Recorded {
        /// The recording.
        path: PathBuf,
        /// Description of the fault.
        message: String,
    },
    /// The held-out share, which is the value, is outside `0..1`.
    #[error("held-out share {0} is not in 0..1")]
    BadHeldOut(f64),
}

impl CorpusError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Stream(error) => error.hint(),
            Self::Template(error) => error.hint(),
            Self::Trace(error) => error.hint(),
            Self::Recorded { .. } => Some(
                "a source of recorded answers is { trace = { file = \"FILE.parquet\", tokenizer = \"FOLDER\" } }"
                    .to_owned(),
            ),
            Self::Tokenizer(_) | Self::BadHeldOut(_) => None,
        }
    }
}

/// One source of a corpus.
///
/// In a config: `{ task = "gsm8k" }`, `{ text = "generic/books.jsonl" }` or
/// `{ trace = { file = "qwen-gsm8k-train.parquet", tokenizer = "models/qwen" } }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CorpusSource {
    /// All records of a task's `train.jsonl`, in instruction format.
    Task(String),
    /// A JSON-lines file with the fields `id` and `text`; a relative path is taken from the data
    /// directory.
    Text(PathBuf),
    /// The answers of a recorded target, in instruction format with this model's own template.
    Trace(Recorded),
}

/// A recorded target. Its prompts are found in the data by their ids, so the task must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The recording, of a training split, relative to the recipe.
    pub file: PathBuf,
    /// The target's `tokenizer.json` or its folder, relative to the recipe.
    pub tokenizer: PathBuf,
}

/// One training document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The record's id.
    pub id: String,
    /// The task; for a recorded target, task and name of the target; for plain text, the file's
    /// stem.
    pub source: String,
    /// The prompt in its template; `None` for plain text.
    pub prompt: Option<Rendered>,
    /// The reference answer, or the plain text.
    pub content: String,
    /// The end of turn of the template; empty for plain text.
    pub end_of_turn: String,
}

impl Document {
    /// The whole text.
    pub fn text(&self) -> String {
        let prompt = self.prompt.as_ref().map_or("", |p| p.text.as_str());
        [prompt, &self.content, &self.end_of_turn].concat()
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
/// assert_eq!(corpus.training.len() + corpus.held_out.len(), 400);
/// assert!(corpus.training.iter().all(|document| document.text().ends_with("<|end|>")));
/// # Ok::<(), pretrain::CorpusError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Corpus {
    /// The documents to train on.
    pub training: Vec<Document>,
    /// The documents that measure the held-out loss.
    pub held_out: Vec<Document>,
}

impl Corpus {
    /// Loads the sources; `held_out` is the share of documents held out, in `0..1`.
    ///
    /// # Errors
    /// Anything wrong in a file; a share outside `0..1`; no documents; a record that some split
    /// file of the data directory, or an embedded test stream, reserves for testing.
    pub fn load(
        sources: &[CorpusSource],
        data: &DataSource,
        template: &PromptTemplate,
        held_out: f64,
    ) -> Result<Self, CorpusError> {
        if !(0.0..1.0).contains(&held_out) {
            return Err(CorpusError::BadHeldOut(held_out));
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
                CorpusSource::Trace(recorded) => (
                    recorded.file.display().to_string(),
                    recorded.documents(data, template)?,
                ),
            };
            // Loading may download a task, and with it ids that are reserved.
            refuse_test_ids(&loaded, &data.test_ids()?, &name)?;
            documents.extend(loaded);
        }
        if documents.is_empty() {
            return Err(StreamError::EmptyStream("training corpus".to_owned()).into());
        }
        let (held_out, training) = documents
            .into_iter()
            .partition(|document| is_held_out(&document.id, held_out));
        Ok(Self { training, held_out })
    }

    /// Shortens every prompt as [`PromptTemplate::fit`] does at run time. This needs a tokenizer,
    /// so it is a separate step.
    ///
    /// # Errors
    /// As [`PromptTemplate::fit`].
    pub fn fit_prompts<E: From<TemplateError>>(
        &mut self,
        template: &PromptTemplate,
        mut count: impl FnMut(&Rendered) -> Result<usize, E>,
    ) -> Result<(), E> {
        let documents = self.training.iter_mut().chain(&mut self.held_out);
        for prompt in documents.filter_map(|d| d.prompt.as_mut()) {
            *prompt = template.fit(prompt.body(), &mut count)?.rendered;
        }
        Ok(())
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
    };
    Ok(prompts.into_iter().map(document).collect())
}

impl Recorded {
    fn documents(
        &self,
        data: &DataSource,
        template: &PromptTemplate,
    ) -> Result<Vec<Document>, CorpusError> {
        let file = TraceFile::open(&self.file)?;
        let info = file.info();
        let refused = |message: String| CorpusError::Recorded {
            path: self.file.clone(),
            message,
        };
        if info.split != Split::Train.name() {
            return Err(refused(format!(
                "it holds answers of the split `{}`; only those of `train` may be read",
                info.split
            )));
        }
        let vocabulary = self.vocabulary()?;
        let tokenizer = PathBuf::from(vocabulary.file());
        if file_sha256(&tokenizer)? != info.tokenizer_sha256 {
            let message = format!(
                "{} is not the tokenizer it was recorded with",
                tokenizer.display()
            );
            return Err(refused(message));
        }
        let pool = data.load_training_pool(&info.task)?;
        let prompts: HashMap<&str, &str> = pool
            .iter()
            .map(|prompt| (prompt.id.as_str(), prompt.prompt.as_str()))
            .collect();
        file.entries()
            .iter()
            .map(|entry| {
                let prompt = prompts.get(entry.id.as_str()).ok_or_else(|| {
                    refused(format!("task `{}` has no prompt `{}`", info.task, entry.id))
                })?;
                let answer = &entry.path[..entry.answer_len];
                // An answer that was cut off has no end to learn.
                let (answer, ended) = match answer.split_last() {
                    Some((last, before)) if info.stop.contains(last) => (before, true),
                    _ => (answer, false),
                };
                let ids: Vec<TargetId> = answer.iter().map(|id| TargetId::new(*id)).collect();
                Ok(Document {
                    id: entry.id.clone(),
                    source: format!("{}, answers of {}", info.task, self.name()),
                    prompt: Some(template.render(prompt)),
                    content: vocabulary.decode_lossy(&ids),
                    end_of_turn: match ended {
                        true => template.end_of_turn.clone(),
                        false => String::new(),
                    },
                })
            })
            .collect()
    }

    fn vocabulary(&self) -> Result<Vocabulary<TargetId>, AlignError> {
        match self.tokenizer.is_dir() {
            true => Vocabulary::from_file(&self.tokenizer.join("tokenizer.json")),
            false => Vocabulary::from_file(&self.tokenizer),
        }
    }

    /// Name of the recorded target: that of its tokenizer's folder.
    pub(crate) fn name(&self) -> String {
        let folder = match self.tokenizer.extension() {
            Some(_) if !self.tokenizer.is_dir() => self.tokenizer.parent(),
            _ => Some(self.tokenizer.as_path()),
        };
        let name = folder.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

fn text_documents(path: &std::path::Path) -> Result<Vec<Document>, StreamError> {
    let source = path
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    let document = |text: Text| Document {
        id: text.id,
        source: source.clone(),
        prompt: None,
        content: text.text,
        end_of_turn: String::new(),
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

/// True if the SHA-256 of a document's id, read as a number in `0..1`, is below `share`: the
/// document is held out. Raising the share only adds documents.
pub fn is_held_out(id: &str, share: f64) -> bool {
    let digest = Sha256::new()
        .chain_update(b"held out\0")
        .chain_update(id.as_bytes())
        .finalize();
    let mut word = [0u8; 4];
    word.copy_from_slice(&digest[..4]);
    f64::from(u32::from_be_bytes(word)) / 4_294_967_296.0 < share
}
