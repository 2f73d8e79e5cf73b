#![doc = include_str!("../README.md")]

mod decode;
mod error;
mod http;
mod learn;
mod logs;
mod models;
mod options;
mod random;
mod remote;
mod request;
mod service;
mod stats;

pub use error::{ApiError, ServeError, passed_on};
pub use http::{Http, Limits, interrupted, serve, watch_interrupts};
pub use learn::{KnownRow, RecordedAnswer, RecordedLearner};
pub use logs::{Log, LogError};
pub use models::{Encoded, Models, Target, name_of};
pub use options::{Expose, LearnOptions, LearnScope, LookupScope, Options, RemoteOptions};
pub use request::{Done, Event, LogProbs, Piece, Request, Token, TokenOrigin};
pub use service::{Events, Service};
pub use stats::{About, Stats};
