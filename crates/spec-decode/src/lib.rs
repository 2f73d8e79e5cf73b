//! Speculative decoding across vocabularies: Algorithm 1 of the paper, one round at a time.
//!
//! ```text
//! draft -> translate -> verify -> commit
//! ```
//!
//! A small *drafter* M_q with vocabulary V_q drafts k tokens d; they are translated to m <= k
//! tokens t of the *target*'s vocabulary V_p, directly or merged as cached n-grams; the target
//! M_p scores all of them in one forward and decides how many stand; what was accepted goes back
//! into the drafter's tokens. The modules are named after these steps:
//!
//! | step | module | in the paper |
//! |---|---|---|
//! | which tokens may be drafted | [`Walk`], [`Mask`] | suppression outside the intersection (SpD_DM), extended to n-grams |
//! | drafting | [`Draft`], [`DraftPolicy`] | Algorithm 1, drafting of k tokens |
//! | translation | [`translate()`] | section 3.1, Eq. 1 |
//! | q' over V_p, residual | [`Pushforward`] | Eq. 2, norm(max(0, p - q')) |
//! | verification | [`verify()`], [`VerifyMode`] | rejection sampling; modes beyond the paper |
//! | rollback, n-gram insertion | [`Session`] | translating back, insertion of unseen n-grams |
//! | acceptance rate, n-gram hits | [`Totals`] | section B.1, Tables 1-5 |
//!
//! # Which output law
//! At temperature 0 every mode gives the target's greedy decoding token for token. Above, `tli`,
//! `exact` and `slem` give the target's law exactly, whatever drafter and cache; `paper` (Eq. 1-2)
//! does so only as long as nothing is merged. Tests enumerate every outcome to show both.
//!
//! # Symbols
//! p: the target's law at a position; q: the drafter's, masked and renormalised; q': its image in
//! V_p; k: draft length; m: proposals in a round. Probabilities are f64, logits f32.
//!
//! # Example
//! Any two types that implement [`LanguageModel`] will do. Here one toy model plays both roles, so
//! every draft is accepted: each round emits k + 1 tokens for one target forward.
//!
//! ```
//! use spec_decode::testkit::{FakeModel, ToyVocab, hashed_rows, toy_pair};
//! use spec_decode::{
//!     ConstantLength, NoSink, Prompt, Session, SessionConfig, StreamName, VerifyMode,
//! };
//! use vocab_align::{DraftId, TargetId};
//!
//! let vocab = ToyVocab { merges: &[("a", "b")], added: &[] };
//! let letters: Vec<u32> = (b'a'..=b'z').map(u32::from).collect();
//! let drafter = FakeModel::new(vocab.len(), hashed_rows(1, vocab.len(), letters.clone(), 1.0));
//! let target = FakeModel::new(vocab.len(), hashed_rows(1, vocab.len(), letters, 1.0));
//!
//! let pair = toy_pair(&vocab, &vocab)?;
//! let config = SessionConfig::new(VerifyMode::Tli, 20);
//! let mut session = Session::new(drafter, target, pair, config)?;
//! let prompt = Prompt { draft: &[DraftId(97)], target: &[TargetId(97)] };
//! let name = StreamName::new(0, 0);
//! let done = session.generate(prompt, name, None, &mut ConstantLength(4), &mut NoSink)?;
//! assert_eq!(done.tokens.len(), 20);
//! assert_eq!(done.totals.rounds, 4);
//! assert_eq!(done.totals.block_efficiency(), 5.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chance;
mod draft;
mod error;
mod fault;
pub mod goodness;
mod lexicon;
mod lookup;
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
pub use lookup::PromptLookup;
pub use mask::{Mask, Walk};
pub use metrics::{RoundOutcome, Timings, Totals};
pub use model::{LanguageModel, ModelError, Rows};
pub use plain::{PlainConfig, PlainGeneration, decode_plain, decode_plain_with};
pub use policy::{ConstantLength, DraftPolicy, DraftStep};
pub use residual::{Pushforward, rounding_tolerance};
pub use sampling::{Sampling, SamplingError, SamplingOptions, argmax, masked_argmax};
pub use session::{Finish, Generation, Pair, Prefill, Prompt, Session, SessionConfig};
pub use sink::{NoSink, TeacherSink};
pub use translate::{Proposal, translate};
pub use verify::{
    Evidence, Groups, Origin, Score, UnknownMode, Verdict, VerifyMode, unjudged_scores, verify,
};
