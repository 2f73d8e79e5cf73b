//! Everything that can be wrong with the words around a prompt.

use std::path::PathBuf;

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file or folder cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A model's template file is not what it should be.
    #[error("{}: {source}", path.display())]
    MalformedTemplate {
        /// The file.
        path: PathBuf,
        /// The parser's complaint, with the key.
        source: serde_json::Error,
    },
    /// A chat template does not parse, or raises an exception.
    #[error("{origin}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    ChatTemplate {
        /// The file, and the key where the template is part of one.
        origin: String,
        /// Line of the template, from 1, where it is known.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// A template parses but cannot be used.
    #[error("prompt template: {reason}")]
    BadTemplate {
        /// What is wrong.
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
    /// What the user can do about it, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::MalformedTemplate { .. } => {
                "omnidraft.json knows the keys max_prompt_tokens and prompt_markers (`special` or `text`)"
            }
            Self::ChatTemplate { .. } => {
                "the template must render one message of the role user; remove it to ask in plain text"
            }
            Self::PromptBudget { .. } => "raise max_prompt_tokens in the model's omnidraft.json",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
