//! Hybrid distillation (OmniDraft, section 3.2): a drafter learns from a target with another vocabulary, on the
//! responses that speculative decoding verified.
//!
//! | step | item |
//! |---|---|
//! | which losses, and how they are weighted | [`Terms`] |
//! | the target's distribution, recorded while a round verifies | [`Recorder`] |
//! | a response, aligned in both vocabularies | [`Example`] |
//! | examples as a loss on logits, with gradients (Eq. 3-4) | [`Batch`] |
//! | examples that are seen once more | [`Replay`] |
//! | one term on one row | [`DirectLoss`], [`NgramLoss`], [`alm`] |
//!
//! # The objective
//!
//! ```text
//! L = L_DM + lambda L_N-gram                                          (Eq. 3)
//! L = E[ KL(q' || p) [direct] - lambda log q(d) [n-gram] ]            (Eq. 4)
//! ```
//!
//! Eq. 4 is one expectation over drafted tokens: both terms share one normaliser. With P direct
//! positions and G draft tokens of n-grams in a batch,
//!
//! ```text
//! L = (1 / (P + G)) ( sum KL  +  lambda sum -log q(d) )
//! ```
//!
//! Weight and normaliser are written down here, and applied in [`Batch`].
//!
//! At a target token with a draft token of the same text, the drafter's distribution is pulled towards the target's
//! ([`DirectLoss`], in target space on the shared tokens). At a target token that is merged from several draft tokens,
//! those draft tokens become more likely ([`NgramLoss`], in draft space). [`alm`] replaces both: it compares
//! likelihoods of aligned chunks only. [`Example::new`] aligns the text and so finds the positions of each term.
//!
//! Special tokens, such as the end of a turn, are taught by [`negative_log_likelihood`] under every
//! [`DirectLoss`], in the sum of the direct positions. The gradient of the reverse KL at a token is
//! in proportion to the drafter's own mass on it. A drafter trained on prose gives special tokens
//! almost none, so the reverse KL would never teach them.
//!
//! # The terms
//!
//! Every function of a term takes the logits of a row (or of the rows of one chunk), returns the loss in nats
//! and leaves `weight * d loss / d logits` in place of the logits: no graph, no second buffer of
//! that size. Arithmetic is f32 with sums in f64, in a fixed order and without fused operations:
//! the same bits on every machine.
//!
//! Symbols: `x` logits, `q` the drafter's softmax over the row, `p` the target's distribution at the same columns (its
//! sum may be below one: the missing mass is on tokens without a counterpart in the drafter), `[A]` one if `A` holds,
//! else zero.
//!
//! # Example
//!
//! A toy target answers, its distributions are recorded on the way, and the answer teaches the drafter. `logits` stands
//! for a model that is trained: it returns the logits of a group, `[positions, columns]`.
//!
//! ```
//! use distill_loss::{
//!     Batch, DirectLoss, Example, Graded, NgramLoss, Objective, PAPER_LAMBDA, Recorder, Response, Terms,
//! };
//! use spec_decode::testkit::{FakeModel, ToyVocab, hashed_rows, toy_pair};
//! use spec_decode::{ConstantLength, Prompt, Session, SessionConfig, StreamName, VerifyMode};
//! use vocab_align::{DraftId, TargetId};
//!
//! // The target has a token `ab`, which stands for two draft tokens.
//! let own = ToyVocab { merges: &[], added: &[] };
//! let targets = ToyVocab { merges: &[("a", "b")], added: &[] };
//! let letters: Vec<u32> = (b'a'..=b'd').map(u32::from).collect();
//! let more = [letters.clone(), vec![256]].concat();
//! let drafter = FakeModel::<DraftId>::new(own.len(), hashed_rows(1, own.len(), letters, 1.0));
//! let target = FakeModel::<TargetId>::new(targets.len(), hashed_rows(2, targets.len(), more, 1.0));
//!
//! // A verified answer, recorded for Eq. 4 with the paper's terms.
//! let terms = Terms::hybrid(DirectLoss::ReverseKl, NgramLoss::Nll, PAPER_LAMBDA);
//! let pair = toy_pair(&own, &targets)?;
//! let mut recorder = Recorder::new(&pair.alignment, terms);
//! let mut session = Session::new(drafter, target, pair.clone(), SessionConfig::new(VerifyMode::Exact, 40))?;
//! let prompt = Prompt { draft: &[DraftId(97)], target: &[TargetId(97)] };
//! session.generate(prompt, StreamName::new(0, 0), None, &mut ConstantLength(4), &mut recorder)?;
//!
//! // What it teaches, and the loss with its gradient.
//! let example = Example::new(Response::of(&session, 1), recorder, &pair, terms, true);
//! let batch = Batch::new([&example], [], terms);
//! assert!(batch.positions() > 0 && batch.ngram_tokens() > 0);
//! let logits = |positions: usize, columns: usize| vec![0.0_f32; positions * columns];
//! let mut graded = Graded::default();
//! for (group, scored) in batch.scored(0).iter().enumerate() {
//!     let columns = scored.columns.map_or(own.len(), |subset| batch.columns()[subset].len());
//!     let mut rows = logits(scored.positions.len(), columns);
//!     graded.add(batch.grade(0, group, &mut rows));
//!     // `rows` is the gradient now; that of a row of softmax sums to nothing.
//!     assert!(rows.iter().sum::<f32>().abs() < 1e-4);
//! }
//! let losses = batch.losses(graded);
//! let (direct, ngram) = (batch.positions() as f64, batch.ngram_tokens() as f64);
//! let eq_4 = (direct * losses.direct + PAPER_LAMBDA * ngram * losses.ngram) / (direct + ngram);
//! assert!((losses.loss - eq_4).abs() < 1e-9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One term on one row:
//!
//! ```
//! // One position, two shared tokens; the teacher is certain of the first.
//! let mut logits = [0.0, 0.0];
//! let mut teacher = [-0.01, -5.0];
//! let loss = distill_loss::reverse_kl(&mut logits, &mut teacher, 1.0);
//! // 0.5 * (ln 0.5 + 0.01) + 0.5 * (ln 0.5 + 5)
//! assert!((loss - 1.8119).abs() < 1e-3);
//! // Descending raises the first logit and lowers the second.
//! assert!(logits[0] < 0.0 && logits[1] > 0.0);
//! ```

mod alm;
mod batch;
mod direct;
mod example;
mod math;
mod ngram;
mod objective;
mod replay;
mod rows;
mod teacher;
mod terms;

pub use alm::{BinarisedKl, alm, binarised_kl};
pub use batch::{Batch, Losses, MissingStates};
pub use direct::DirectLoss;
pub use direct::acceptance::{acceptance, log_acceptance};
pub use direct::forward_kl::forward_kl;
pub use direct::nll::negative_log_likelihood;
pub use direct::reverse_kl::reverse_kl;
pub use example::{Chunk, Columns, Example, Response, Special};
pub use ngram::NgramLoss;
pub use ngram::approximate_kl::{Merged, approximate_kl};
pub use ngram::nll::ngram_likelihood;
pub use objective::{Graded, Objective, Scored};
pub use replay::Replay;
pub use rows::log_sum_exp;
pub use teacher::{Record, Recorder, Taught, TeacherRow};
pub use terms::Terms;

/// The paper's lambda, fixed at this value in all its experiments.
pub const PAPER_LAMBDA: f64 = 0.2;
