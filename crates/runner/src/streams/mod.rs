//! Prompt streams: what the drafter is adapted on, in which order, and in which words.
//!
//! The paper (section 5, Table 7) streams four tasks once, online: every prompt is decoded, verified and learned
//! from in the order it arrives. This module turns files into such streams:
//!
//! * [`Prompt`] and [`load_prompts`] read JSON lines and say which line is wrong;
//! * [`PaperSplit`] and [`IdSelector`] select the ids of a published train/test split;
//! * [`DataSource`] and [`StreamSpec`] find a task in a data directory, on the hub or among the embedded [`mini`]
//!   streams, and order it by a seed that gives the same order on every machine;
//! * [`ChatTemplate`] wraps a prompt in the words the model was trained on and shortens a long one, as text, so
//!   that drafter and target read the same bytes whatever their tokenizers;
//! * [`Corpus`] serves the same records as training documents, never one of a test split.
//!
//! ```
//! use runner::streams::{DataSource, Split, StreamSpec};
//!
//! let spec = StreamSpec::new("mini-math", Split::Test).limit(3).shuffled();
//! let prompts = spec.load(&DataSource::embedded(), 7)?;
//! assert_eq!(prompts.len(), 3);
//! assert!(prompts[0].reference.contains("#### "));
//! # Ok::<(), runner::streams::StreamError>(())
//! ```

mod chat;
mod clock;
mod corpus;
mod error;
pub mod mini;
mod record;
mod rng;
mod select;
mod source;
mod template;

pub use chat::{CHAT_TEMPLATE_FILE, ChatTemplate};
pub use corpus::{Corpus, CorpusSource, Document, Piece, is_held_out};
pub use error::StreamError;
pub use record::{Prompt, load_prompts, load_texts, parse_prompts};
pub use rng::StreamRng;
pub use select::{IdSelector, PaperSplit};
pub use source::{DATA_ENV, DATA_HUB, DataSource, Split, StreamSpec};
pub use template::{Fitted, PromptTemplate, Rendered, TEMPLATE_FILE};
