//! Models from disk.

use std::path::Path;

use lm::{EngineSettings, WeightType};
use models::{Engine, ModelFolder, import_gguf};
use tempfile::TempDir;
use vocab_align::{DraftId, TargetId, TokenId, Vocabulary};

use crate::{Error, Source};

/// A model in the role of the drafter.
pub type Drafter = Model<DraftId>;

/// A model in the role of the target.
pub type Target = Model<TargetId>;

/// An open model: its weights on disk, its tokenizer and its chat template.
///
/// Engines of one model share its weights, so that a second sequence costs no second copy.
pub struct Model<I: TokenId> {
    folder: ModelFolder<I>,
    settings: EngineSettings,
    /// The folder of an unpacked GGUF file, until the model is dropped.
    _unpacked: Option<TempDir>,
}

impl<I: TokenId> Model<I> {
    /// Opens a model folder as Hugging Face lays it out (`config.json`, `tokenizer.json`, weights in
    /// safetensors, PyTorch's format or GGUF), a `.gguf` file that holds a tokenizer, or
    /// `hf:owner/name[@revision]`, which is downloaded first.
    ///
    /// A GGUF file is linked into a temporary folder beside it; if no folder can be made there, it
    /// is copied into one of the system's.
    ///
    /// # Errors
    /// [`Error::Open`]: nothing there, something missing or malformed, an architecture that is not
    /// known.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let opened = match path.extension() {
            Some(ending) if ending == "gguf" => unpack(path),
            _ => ModelFolder::load(path)
                .map(|folder| (folder, None))
                .map_err(Source::from),
        };
        let (folder, unpacked) = opened.map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            folder,
            settings: EngineSettings::new(WeightType::F32, threads),
            _unpacked: unpacked,
        })
    }

    /// Sets the storage type of weights and the number of threads of the engines. By default
    /// weights are f32 and all processors are used. Results do not depend on the number of threads.
    #[must_use]
    pub fn with_settings(mut self, settings: EngineSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Settings of the engines.
    pub fn settings(&self) -> EngineSettings {
        self.settings
    }

    /// Its tokens.
    pub fn vocabulary(&self) -> &Vocabulary<I> {
        &self.folder.text.vocabulary
    }

    /// The model as the other crates know it.
    pub fn folder(&self) -> &ModelFolder<I> {
        &self.folder
    }

    /// An engine for one sequence, with an empty KV cache.
    ///
    /// # Errors
    /// [`Error::Engine`]: weights that cannot be read, a device that is not there.
    pub fn engine(&self) -> Result<Engine, Error> {
        let built = self.folder.engine(self.settings);
        built.map_err(|error| Error::Engine {
            path: self.folder.text.path.clone(),
            source: error.into(),
        })
    }
}

/// Makes a folder of a GGUF file, beside it where that can be written, and opens it.
fn unpack<I: TokenId>(file: &Path) -> Result<(ModelFolder<I>, Option<TempDir>), Source> {
    let beside = file.parent().unwrap_or(Path::new(""));
    // Beside the file a link will do; elsewhere all of it would have to be copied.
    let folder = tempfile::tempdir_in(beside).or_else(|_| tempfile::tempdir())?;
    let model = folder.path().join("model");
    import_gguf(file, &model)?;
    Ok((ModelFolder::load(&model)?, Some(folder)))
}
