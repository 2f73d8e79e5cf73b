//! Speculative decoding across vocabularies.

mod chance;
mod draft;
mod error;
mod fault;
mod lexicon;
mod mask;
mod metrics;
mod model;
mod plain;
mod policy;
mod residual;
mod sampling;
mod session;
mod sink;
#[doc(hidden)]
pub mod testkit;
mod translate;
mod verify;

pub use chance::{Chance, Dice, Purpose, StreamName};
pub use draft::{Draft, DraftLaw, MAX_COMPLETION_STEPS};
pub use error::{LawError, Role, SpecError};
pub use lexicon::{DirectMap, Lexicon, Place};
pub use mask::Walk;
pub use metrics::{RoundOutcome, Timings, Totals};
pub use model::{LanguageModel, ModelError, Rows};
pub use plain::{PlainConfig, PlainGeneration, decode_plain, decode_plain_with};
pub use policy::{ConstantLength, DraftPolicy, DraftStep};
pub use residual::{Pushforward, rounding_tolerance};
pub use sampling::{Sampling, argmax, masked_argmax};
pub use session::{Finish, Generation, Pair, Prefill, Prompt, Session, SessionConfig};
pub use sink::{NoSink, TeacherSink};
pub use translate::{Proposal, translate};
pub use verify::{
    Evidence, Groups, Origin, Score, UnknownMode, Verdict, VerifyMode, unjudged_scores, verify,
};
