//! Errors of chat and prompt templates.

use std::path::PathBuf;

use crate::TEMPLATE_FILE;

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
    Specials(#[from] vocab_align::AlignError),
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
