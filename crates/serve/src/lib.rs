#![doc = include_str!("../README.md")]

mod ask;
mod decode;
mod error;
mod http;
mod learn;
mod models;
mod options;
mod remote;
mod service;
mod stats;

pub use ask::{Ask, Done, Event, From, LogProbs, Piece, Token};
pub use error::ApiError;
pub use http::{About, Http, Limits, interrupted, serve, watch_interrupts};
pub use learn::{LearntBy, SavedState};
pub use models::{Encoded, Models, Target, name_of};
pub use options::{Expose, LearnOptions, LearnScope, LookupScope, Options, RemoteOptions};
pub use service::{Events, Service};
pub use stats::Stats;
