//! Errors of model folders, their engines and their templates.

use std::error::Error;
use std::path::PathBuf;

use hub::HubError;
use lm::{LmError, ModelError};
use spec_decode::SpecError;
use torch_engine::TorchError;
use vocab_align::AlignError;
use weights::WeightsError;

use crate::{DeviceError, FolderError, TEMPLATE_FILE, TORCH_PREFIX};

pub(crate) type Result<T, E = ModelsError> = std::result::Result<T, E>;

/// Reason for which a model folder cannot be opened, or its engine cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// A download failed.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A path is not a model folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A configuration or weights cannot be read, or an engine refuses them.
    #[error(transparent)]
    Lm(#[from] LmError),
    /// Headers of weights cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tokenizer cannot be read, or refuses a text.
    #[error(transparent)]
    Align(#[from] AlignError),
    /// A template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A device is not supported.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An engine failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An answer to an earlier question of a conversation failed.
    #[error(transparent)]
    Decode(#[from] SpecError),
    /// A JSON file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not JSON.
    #[error("{}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The weights of a folder cannot be packed, or no engine takes them.
    #[error("{}: the decode engine cannot be built", path.display())]
    Engine {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: Box<Self>,
    },
    /// A worker of PyTorch cannot be started with a model.
    #[error("{TORCH_PREFIX}{}", model.display())]
    Worker {
        /// The folder or name of the model.
        model: PathBuf,
        /// The worker's error.
        source: TorchError,
    },
    /// A file, a prompt, a context or a shape cannot be used.
    #[error("{0}")]
    Refused(String),
    /// An engine has no weights in this process: it replays a recording, or a worker has them.
    #[error("this engine has no weights that could be replaced")]
    NoWeights,
    /// An engine is not on the processor.
    #[error("this engine does not keep what enters a block")]
    NoStates,
}

/// The error that one of these variants of an error type passes on unchanged; any other cause
/// itself.
#[macro_export]
macro_rules! inner_error {
    ($cause:expr, $error:ident: $($variant:ident)+) => {{
        let cause: &(dyn std::error::Error + 'static) = $cause;
        let boxed = cause.downcast_ref::<Box<$error>>().map(Box::as_ref);
        let inner: &(dyn std::error::Error + 'static) =
            match boxed.or_else(|| cause.downcast_ref::<$error>()) {
                $(Some($error::$variant(error)) => error,)+
                _ => cause,
            };
        inner
    }};
}

/// The error that a [`ModelsError`] passes on unchanged; any other cause itself. A chain of causes
/// leaves such errors out, as they have the same text.
pub fn passed_on<'a>(cause: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    inner_error!(cause, ModelsError: Hub Folder Lm Weights Align Template Device Model Decode)
}

/// The kind of fault of a chat template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateFault {
    /// It does not parse, or uses an unsupported feature.
    Syntax,
    /// It raised an exception.
    Raised,
    /// It needs a variable that was not given.
    Missing,
    /// It does not show the user's message as required.
    Message,
}

/// Reason for which a template cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file or folder cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A model's template file is malformed.
    #[error("{}: {source}", path.display())]
    MalformedTemplate {
        /// The file.
        path: PathBuf,
        /// The parser's error, with the key.
        source: serde_json::Error,
    },
    /// A chat template does not parse, or raises an exception.
    #[error("{origin}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    ChatTemplate {
        /// The file, and the key if the template is part of a JSON file.
        origin: String,
        /// Line of the template, from 1, if known.
        line: Option<usize>,
        /// Description of the fault.
        message: String,
        /// Kind of the fault.
        kind: TemplateFault,
    },
    /// A model has several templates and no default.
    #[error("{}: several chat templates ({names}), none of which is called default", path.display())]
    NoDefault {
        /// The model folder.
        path: PathBuf,
        /// Names of the templates.
        names: String,
    },
    /// The special tokens that a template names cannot be read.
    #[error(transparent)]
    Specials(#[from] AlignError),
    /// A template parses but cannot be used.
    #[error("prompt template: {reason}")]
    BadTemplate {
        /// Description of the fault.
        reason: String,
    },
    /// The template alone is longer than a prompt may be.
    #[error(
        "the prompt template alone takes {needed} tokens, max_prompt_tokens is {max_prompt_tokens}"
    )]
    PromptBudget {
        /// Tokens of the template around an empty prompt.
        needed: usize,
        /// The budget.
        max_prompt_tokens: usize,
    },
}

impl TemplateError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::MalformedTemplate { path, .. } if path.ends_with(TEMPLATE_FILE) => {
                "omnidraft.json knows the keys max_prompt_tokens and prompt_markers (`special` or `text`)"
            }
            Self::ChatTemplate { kind, .. } => match kind {
                TemplateFault::Syntax => {
                    "the template is read as transformers reads it; what it uses is not known here"
                }
                TemplateFault::Raised => {
                    "the template itself refuses these messages; it may want a system message or other variables"
                }
                TemplateFault::Missing => {
                    "variables are given by --chat-template-kwargs, or by chat_template_kwargs of an experiment's model or a request; special tokens by tokenizer_config.json"
                }
                TemplateFault::Message => "the template must show a message of the role user",
            },
            Self::NoDefault { .. } => {
                "save the one to use as chat_template.jinja in the model's folder"
            }
            Self::PromptBudget { .. } => "raise max_prompt_tokens in the model's omnidraft.json",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
