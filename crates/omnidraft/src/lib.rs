#![doc = include_str!("../README.md")]

mod error;
#[cfg(feature = "learn")]
mod learn;
#[cfg(feature = "learn")]
mod learning;
#[cfg(feature = "models")]
mod model;
pub mod prelude;
mod prompts;
#[cfg(feature = "serve")]
mod server;
mod session;
#[cfg(feature = "models")]
mod together;

pub use adaptive_draft;
pub use distill_loss;
pub use engine;
pub use ngram_cache;
pub use spec_decode;
pub use vocab_align;

pub use error::{Error, Source};
#[cfg(feature = "learn")]
pub use learn::LearnOptions;
#[cfg(feature = "models")]
pub use model::{Drafter, Model, Target};
#[cfg(feature = "serve")]
pub use serve::{Http, LearnOptions as ServerLearning, Options as ServerOptions};
#[cfg(feature = "serve")]
pub use server::Server;
pub use session::{Answer, Builder, Session};
#[cfg(feature = "models")]
pub use together::generate_together;

/// The programs on the page about the library, compiled and run.
#[cfg(all(doctest, feature = "models"))]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
