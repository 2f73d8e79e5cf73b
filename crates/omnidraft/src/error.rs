//! Everything that can go wrong in this crate.

use std::path::PathBuf;

use spec_decode::{Role, SamplingError, SpecError};
use vocab_align::AlignError;

/// The error of another crate, kept as it is.
pub type Source = Box<dyn std::error::Error + Send + Sync + 'static>;

/// A model, a prompt, a round or a server that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder or file is no model that can be opened.
    #[error("{}: the model cannot be opened", path.display())]
    Open {
        /// The folder or file.
        path: PathBuf,
        /// Error of the crate in which it occurred.
        source: Source,
    },
    /// A model is there, but an engine for it cannot be built.
    #[error("{}: the engine cannot be built", path.display())]
    Engine {
        /// The model.
        path: PathBuf,
        /// Error of the crate in which it occurred.
        source: Source,
    },
    /// A model cannot read a prompt: its template or its tokenizer refuses it.
    #[error("the {role} cannot read the prompt")]
    Prompt {
        /// The model.
        role: Role,
        /// Error of the template or the tokenizer.
        source: Source,
    },
    /// There are not as many prompts as sessions.
    #[error("{prompts} prompts for {sessions} sessions")]
    Prompts {
        /// Prompts given.
        prompts: usize,
        /// Sessions given.
        sessions: usize,
    },
    /// A tokenizer cannot be read, or refuses a text.
    #[error(transparent)]
    Align(#[from] AlignError),
    /// A sampling option is outside its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A session could not be built, or a response failed.
    #[error(transparent)]
    Decode(#[from] SpecError),
    /// The drafter cannot learn: an option is outside its range, its model has no gradient here, or
    /// a loss is not finite.
    #[error("the drafter cannot learn")]
    Learn {
        /// Error of the crate in which it occurred.
        source: Source,
    },
    /// The server did not start, or did not end well.
    #[error("the server failed")]
    Serve {
        /// Error of the crate in which it occurred.
        source: Source,
    },
}
