//! Errors of recipes, trainings and samples.

use std::error::Error;
use std::path::PathBuf;

use hub::HubError;
use lm::LmError;
use models::{ModelsError, TemplateError};
use spec_decode::{SamplingError, SpecError};
use streams::StreamError;
use vocab_align::AlignError;

use crate::corpus::CorpusError;

pub(crate) type Result<T, E = PretrainError> = std::result::Result<T, E>;

/// Reason for which a recipe cannot be used, or a model cannot be trained, written or sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainError {
    /// The documents to train on cannot be read or used.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The prompts of a task cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A download failed.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The folder of a finished model cannot be opened or used.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// A configuration or weights cannot be read, written or trained.
    #[error(transparent)]
    Lm(#[from] LmError),
    /// The chat template cannot be used or written.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A tokenizer cannot be read, or refuses a text.
    #[error(transparent)]
    Align(#[from] AlignError),
    /// An answer failed.
    #[error(transparent)]
    Decode(#[from] SpecError),
    /// The temperature of answers is outside its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A text is not the TOML of a recipe.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value cannot be written as JSON, or read from it.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A file or folder cannot be read, written, created, copied or removed.
    #[error("{}{what}", path.display())]
    Io {
        /// The file, or its folder.
        path: PathBuf,
        /// The words that follow the path.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A recipe, or a model or state that it begins with, cannot be used.
    #[error("{place}")]
    Within {
        /// The recipe's file or key, or what is wrong there.
        place: String,
        /// The cause.
        source: Box<Self>,
    },
    /// A recipe asks for what cannot be; the value says which of its keys, and why.
    #[error("{0}")]
    Fault(String),
    /// The state of a stopped training lacks the number of its steps, or has it in a form of before;
    /// the value is its file.
    #[error("{}: tensor `step` is missing, or of another version of the program", .0.display())]
    NoStep(PathBuf),
    /// The folder to write holds a finished model; the value is its path.
    #[error("{}: holds a finished model; choose another --out", .0.display())]
    Finished(PathBuf),
    /// A special token of the recipe is not one token; the value is its text.
    #[error("`{0}` is not one token of the trained tokenizer")]
    NoToken(String),
    /// The tokenizer library failed; the value is its error.
    #[error("tokenizer training: {0}")]
    Library(tokenizers::Error),
    /// A fault of this program, which no input leads to; the value is its description.
    #[error("{0}")]
    Internal(&'static str),
}

impl PretrainError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        Self::io_with(path, "")
    }

    pub(crate) fn create(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        Self::io_with(path, ": cannot be created")
    }

    pub(crate) fn io_with(
        path: impl Into<PathBuf>,
        what: &'static str,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, what, source }
    }

    pub(crate) fn cut(error: impl Into<Self>) -> Self {
        Self::within("train.cut.from", error)
    }

    pub(crate) fn within(place: impl Into<String>, error: impl Into<Self>) -> Self {
        Self::Within {
            place: place.into(),
            source: Box::new(error.into()),
        }
    }
}

/// The error that a [`PretrainError`] or a [`ModelsError`] passes on unchanged; any other cause
/// itself. A chain of causes leaves such errors out, as they have the same text.
pub fn passed_on<'a>(cause: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    models::passed_on(models::inner_error!(
        cause,
        PretrainError: Models Corpus Stream Hub Lm Template Align Decode Sampling Toml Json
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recipe;

    #[test]
    fn an_error_passed_on_is_found_in_a_chain() {
        let error = PretrainError::cut(HubError::NoHome);
        assert!(!passed_on(&error).is::<HubError>());
        let cause = error.source().unwrap();
        assert!(passed_on(cause).is::<HubError>());
        let fault = toml::from_str::<Recipe>("").unwrap_err();
        let error = PretrainError::within("recipe.toml", fault);
        let cause = error.source().unwrap();
        assert!(passed_on(cause).is::<toml::de::Error>());
        let error = PretrainError::from(ModelsError::from(LmError::OtherModel));
        assert!(passed_on(&error).is::<LmError>());
    }
}
