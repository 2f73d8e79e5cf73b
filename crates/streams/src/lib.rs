//! Prompt streams: the prompts on which the drafter is adapted, and their order.
//!
//! The paper (section 5, Table 7) streams four tasks once, online: every prompt is decoded,
//! verified and learned from in the order it arrives. This crate turns files into such streams:
//!
//! * [`Prompt`] and [`load_prompts`] read JSON lines, those of published benchmarks too; an error
//!   names the line;
//! * [`PaperSplit`] selects the ids of a published train/test split;
//! * [`DataSource`] finds a task in a data directory, from a [`TaskSource`] (a hub, for example) or
//!   among the embedded mini streams ([`MiniTask`]);
//! * [`StreamSpec`] says which of its prompts are streamed and in which order: training prompts
//!   by the run's seed or in the file's order, held-out prompts in one order for all runs.
//!   [`StreamRng`] gives the same order on every machine.
//!
//! Chat templates are in crate `models`, downloads in crate `hub`.
//!
//! ```
//! use streams::{DataSource, Split, StreamSpec};
//!
//! let spec = StreamSpec::new("mini-math", Split::Train).limit(3).shuffled();
//! let prompts = spec.load(&DataSource::embedded(), 7)?;
//! assert_eq!(prompts.len(), 3);
//! assert!(prompts[0].reference.contains("#### "));
//! # Ok::<(), streams::StreamError>(())
//! ```

mod error;
mod form;
mod mini;
mod record;
mod rng;
mod select;
mod source;

pub use error::{LineFault, SourceError, StreamError};
pub use form::{load_prompts, parse_prompts};
pub use mini::MiniTask;
pub use record::{Prompt, Text, load_texts};
pub use rng::StreamRng;
pub use select::PaperSplit;
pub use source::{DATA_ENV, DataSource, Split, StreamSpec, TEST_ORDER_SEED, TaskSource};
