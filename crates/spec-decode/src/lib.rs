//! Speculative decoding across vocabularies: Algorithm 1 of the paper, one round at a time.
//!
//! ```text
//! draft -> translate -> verify -> commit
//! ```
//!
//! A small *drafter* M_q with vocabulary V_q drafts k tokens d; they are translated to m <= k
//! tokens t of the *target*'s vocabulary V_p, directly or merged as cached n-grams; the target M_p
//! scores all of them in one forward and decides how many are accepted; the accepted text is
//! converted back into the drafter's tokens. The items of each step:
//!
//! | step | module | in the paper |
//! |---|---|---|
//! | choice of tokens that may be drafted | [`Walk`], [`Mask`] | suppression outside the intersection (SpD_DM), extended to n-grams |
//! | drafting | [`Draft`], [`DraftPolicy`] | Algorithm 1, drafting of k tokens |
//! | drafting without a model | [`PromptLookup`], [`History`], [`SuffixLookup`] | not in the paper: a baseline, and earlier text with which a draft can begin |
//! | distribution of a row of logits | [`Sampling`] | temperature; further options beyond the paper |
//! | translation | [`translate()`] | section 3.1, Eq. 1 |
//! | q' over V_p, residual | [`Pushforward`] | Eq. 2, norm(max(0, p - q')) |
//! | verification | [`verify()`], [`VerifyMode`] | rejection sampling; modes beyond the paper |
//! | rollback, n-gram insertion | [`Session`] | translating back, insertion of unseen n-grams |
//! | acceptance rate, n-gram hits | [`Totals`] | section B.1, Tables 1-5 |
//!
//! # Output distribution
//! At temperature 0 every mode gives the target's greedy decoding token for token. Above 0, `tli`,
//! `exact` and `slem` give exactly the target's distribution, whatever the drafter and the cache
//! are; `paper` (Eq. 1-2) does so only as long as nothing is merged. Tests enumerate every outcome
//! to show both, and [`goodness`] tests samples of models too large to enumerate.
//!
//! "The target's distribution" is its *processed* distribution: logits, repetition penalty,
//! temperature, top-k, top-p, min-p ([`SamplingOptions`]). Ties are broken by the lower id, so it
//! is a function of the logits. The drafter's logits are processed in the same way, but any
//! proposal distribution is as exact.
//!
//! `tli` and `exact` can verify the tokens of a draft one by one or all together ([`Acceptance`]).
//! All together accepts at least as many in expectation (`verify/block.rs` has the proof, and a
//! rare exception). Looked-up text ([`CopySource`]) is proposed with probability 1 and verified by
//! the same rules. Alternatives ([`SessionConfig::alternatives`]) keep every exact mode exact.
//!
//! Over one vocabulary `tli` and `exact` are ordinary speculative sampling, token for token with
//! the same random numbers ([`Dice`]); [`Pair::shared`] makes such a pair. This holds for the
//! distribution and the random numbers, not for contexts: here too the drafter reads the text as
//! its tokenizer encodes it. If the target emits `a`, `b` and the tokenizer would write `ab`, the
//! drafter reads `ab`, as in its training. Hybrid distillation learns nothing at a draft token that
//! stands for several target tokens.
//!
//! # Special tokens
//! | target token | in the drafter's context | drafted |
//! |---|---|---|
//! | end of turn, end of text, beginning of text | the drafter's token of that role (end of turn and end of text can replace each other) | as that token, if the two correspond one to one |
//! | any other special token the drafter has by name | that token | as that token |
//! | added token with text (`<think>`, `<tool_call>` if they are not special) | its text in draft tokens | as an n-gram, once learnt, or by a token of the same text |
//! | marker: other special token without a counterpart | its name in draft tokens | as an n-gram of these tokens, once learnt |
//! | padding and unknown that the drafter does not have by name, reserved rows of the embedding | nothing | never: only the target emits it |
//!
//! Tokens that cannot be proposed are groups of their own with no proposal mass: the target still
//! emits each with exactly its probability. Mode `tli` never proposes a token that is not one draft
//! token, and mode `slem` no marker (its drafts are text). A draft ends after a stop token of the
//! session. It continues after other special tokens, including an end of turn that is not a stop
//! token.
//!
//! # Tolerances
//! The only tolerance in verification is [`rounding_tolerance`]: the largest difference of two sums
//! of probabilities by rounding alone. A rejection with an empty residual is allowed within it and
//! is an error beyond. ([`SparseDraft::check`] and [`Session::settle_round`] let probabilities from
//! another machine exceed 1 by 1e-6.) Every other impossible probability (NaN or infinite logits, a
//! row without mass, a drafted token of probability 0, a negative Eq. 2) is an error that names
//! round and model.
//!
//! # Symbols
//! p: the target's distribution at a position; q: the drafter's, masked and renormalised; q': its
//! image in V_p; k: draft length; m: proposals in a round. Probabilities are f64, logits f32.
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
//! let drafter = FakeModel::<DraftId>::new(vocab.len(), hashed_rows(1, vocab.len(), letters.clone(), 1.0));
//! let target = FakeModel::<TargetId>::new(vocab.len(), hashed_rows(1, vocab.len(), letters, 1.0));
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

mod alternative;
mod buffer;
mod chance;
mod copy_source;
mod draft;
mod error;
pub mod goodness;
mod history;
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
mod suffix;
pub mod testkit;
mod translate;
mod verify;

pub use engine::{Alternative, DeviceLogits, LanguageModel, ModelError, check_call, conformance};

pub use chance::{Chance, Dice, Purpose, StreamName};
pub use copy_source::CopySource;
pub use draft::{Draft, DraftLaw};
pub use error::{LawError, Role, SpecError};
pub use history::{Found, History};
pub use lexicon::{DirectMap, Lexicon, Place};
pub use lookup::PromptLookup;
pub use mask::{Mask, Walk};
pub use metrics::{RoundOutcome, Timings, Totals};
pub use model::Rows;
pub use plain::{PlainConfig, PlainGeneration, decode_plain};
pub use policy::{ConstantLength, CopyPlan, DraftPolicy, DraftStep, LONGEST_COPY};
pub use residual::{Pushforward, rounding_tolerance};
pub use sampling::{Sampling, SamplingError, SamplingOptions, argmax, largest_possible, moments};
pub use session::{
    DraftedRound, DraftingRound, Finish, Generation, JudgedRound, Pair, Prefill, Prompt, Session,
    SessionConfig,
};
pub use sink::{NoSink, TeacherSink};
pub use suffix::{CorpusError, SharedCorpus, SuffixCorpus, SuffixLookup};
pub use translate::{Proposal, is_looked_up, translate};
pub use verify::{
    Acceptance, ChoiceScore, ChoiceScores, Evidence, Groups, Origin, Score, SparseChoice,
    SparseDraft, SparseFault, SparseOutcome, Verdict, VerifyMode, verify,
};
