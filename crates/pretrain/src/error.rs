//! Errors of recipes, trainings and samples.

use std::error::Error;
use std::path::PathBuf;

use hub::HubError;
use lm::LmError;
use models::{ModelsError, TemplateError};
use serde_json::Value;
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
    /// A file cannot be read, written or removed.
    #[error("{}", path.display())]
    Io {
        /// The file, or its folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A recipe cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The recipe.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The folder of a model cannot be created.
    #[error("{}: cannot be created", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A given tokenizer cannot be copied.
    #[error("{}: tokenizer.from", path.display())]
    Tokenizer {
        /// Path or name of the tokenizer.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A recipe has a fault.
    #[error("{}", path.display())]
    Recipe {
        /// The recipe.
        path: PathBuf,
        /// Description of the fault.
        source: Box<Self>,
    },
    /// The model that is cut cannot be read.
    #[error("train.cut.from")]
    Cut {
        /// The cause.
        source: Box<Self>,
    },
    /// The initial weights cannot be read.
    #[error("train.from = {}", path.display())]
    Beginning {
        /// Folder of the weights.
        path: PathBuf,
        /// The cause.
        source: Box<Self>,
    },
    /// The initial weights belong to a model of another shape.
    #[error("train.from: that model has another shape than [model]")]
    OtherShape {
        /// Description of the first difference.
        source: LmError,
    },
    /// The state of a stopped training belongs to another model.
    #[error("the saved state belongs to another model; use another --out")]
    OtherState {
        /// Description of the first difference.
        source: LmError,
    },
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
    /// The tokenizer has another number of tokens than the recipe names.
    #[error(
        "tokenizer.vocab_size is {wanted}, but the text yields {found} tokens; lower it to that"
    )]
    VocabSize {
        /// Number of tokens in the recipe.
        wanted: usize,
        /// Number of tokens of the tokenizer.
        found: usize,
    },
    /// The text to train on is too short.
    #[error("the training corpus has {tokens} tokens, fewer than one sequence of {sequence}")]
    ShortText {
        /// Number of tokens of the text.
        tokens: usize,
        /// Number of tokens of a sequence.
        sequence: usize,
    },
    /// The loss of a step is not finite.
    #[error("step {step}: the loss is {loss}; lower train.lr")]
    Diverged {
        /// The step, counted from 0.
        step: u64,
        /// The loss.
        loss: f64,
    },
    /// A recipe names two sources of initial weights.
    #[error("train.from and train.cut both say what to begin with; name one")]
    TwoBeginnings,
    /// The number of digits in a token is outside its range; the value is the number.
    #[error("tokenizer.digits = {0} is outside 1..=3")]
    Digits(usize),
    /// The template ends a turn with another token than the tokenizer; the value is the
    /// tokenizer's.
    #[error("template.end_of_turn must be tokenizer.eos (`{0}`)")]
    EndOfTurn(String),
    /// A step has no token to predict.
    #[error("train.sequence must be at least 2 and train.batch at least 1")]
    EmptyStep,
    /// A sequence is longer than the model's context; the value is the length of the context.
    #[error("train.sequence exceeds model.max_positions = {0}")]
    LongSequence(usize),
    /// An interval of steps is 0.
    #[error("train.eval_every and train.save_every must be at least 1")]
    NoInterval,
    /// The unlikelihood phase has no answers, or answers without tokens.
    #[error("unlikelihood.answers and unlikelihood.answer_tokens must be at least 1")]
    NoAnswers,
    /// A prompt and its answer are longer than the model's context; the value is the length of the
    /// context.
    #[error(
        "1 + template.max_prompt_tokens + unlikelihood.answer_tokens exceed model.max_positions = {0}"
    )]
    LongAnswers(usize),
    /// The unlikelihood phase names a task that is not read; the value is its name.
    #[error("unlikelihood.tasks: `{0}` is no task of data.sources")]
    UnknownTask(String),
    /// A weight of a loss is negative or not finite.
    #[error("{key} = {value} is no weight")]
    Weight {
        /// Key of the recipe.
        key: &'static str,
        /// The weight.
        value: f64,
    },
    /// More blocks are to be kept than the model has.
    #[error("model.layers = {kept}, but the model of train.cut has {held} blocks")]
    FewBlocks {
        /// Number of blocks to keep.
        kept: usize,
        /// Number of blocks of the model that is cut.
        held: usize,
    },
    /// A recipe lists another number of blocks than are to be kept.
    #[error("train.cut.blocks names {named} blocks, but model.layers = {kept}")]
    BlockCount {
        /// Number of blocks in the list.
        named: usize,
        /// Number of blocks to keep.
        kept: usize,
    },
    /// The blocks to keep are not in rising order.
    #[error("train.cut.blocks must rise")]
    BlockOrder,
    /// A block to keep is not there.
    #[error("train.cut.blocks: there is no block {block}: the model has {held}")]
    NoBlock {
        /// The block, counted from 0.
        block: usize,
        /// Number of blocks of the model that is cut.
        held: usize,
    },
    /// A recipe describes another shape than that of the model that is cut.
    #[error("{key} is {told}, but {own} in the model of train.cut")]
    CutShape {
        /// Key of the recipe.
        key: &'static str,
        /// Its value in the recipe.
        told: Value,
        /// The value of the model that is cut.
        own: Value,
    },
    /// The tokenizer library failed; the value is its error.
    #[error("tokenizer training: {0}")]
    Library(tokenizers::Error),
    /// A fault of this program, which no input leads to; the value is its description.
    #[error("{0}")]
    Internal(&'static str),
}

impl PretrainError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn create(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Create { path, source }
    }

    pub(crate) fn cut(error: impl Into<Self>) -> Self {
        Self::Cut {
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
        let error = PretrainError::Recipe {
            path: "recipe.toml".into(),
            source: Box::new(fault.into()),
        };
        let cause = error.source().unwrap();
        assert!(passed_on(cause).is::<toml::de::Error>());
        let error = PretrainError::from(ModelsError::from(LmError::OtherModel));
        assert!(passed_on(&error).is::<LmError>());
    }
}
