//! The losses that teach a drafter from a target with another vocabulary, on rows of logits.
//!
//! # The objective
//!
//! Hybrid distillation (OmniDraft, section 3.2):
//!
//! ```text
//! L = L_DM + lambda L_N-gram                                          (Eq. 3)
//! L = E[ KL(q' || p) [direct] - lambda log q(d) [n-gram] ]            (Eq. 4)
//! ```
//!
//! Eq. 4 is one expectation over drafted tokens: both terms share one normaliser. With P direct
//! positions and G draft tokens of n-grams in a batch, `learn.normaliser` of an experiment says
//!
//! ```text
//! tokens    L = (1 / (P + G)) ( sum KL  +  lambda sum -log q(d) )     (Eq. 4)
//! terms     L = (1 / P) sum KL  +  (lambda / G) sum -log q(d)
//! ```
//!
//! The second gives each term a mean of its own, so that its lambda weighs as much as
//! `lambda P / G` would in Eq. 4. This is the one place where weight and normaliser are written
//! down; crate `online` applies them.
//!
//! Where a target token has a draft token of the same text, the drafter's law is pulled towards
//! the target's ([`DirectLoss`], in target space on the shared tokens); where a target token is
//! spelled by several draft tokens, that spelling is ([`NgramLoss`], in draft space). [`alm`]
//! replaces both: it compares likelihoods of aligned chunks only. Which positions are which is
//! decided by whoever aligns the text; this crate sees rows.
//!
//! Special tokens, the end of a turn among them, are taught by [`negative_log_likelihood`] in the sum
//! of the direct positions, whichever loss that is. The gradient of the reverse divergence at a token
//! is in proportion to the drafter's own mass there, and a drafter that has read prose gives such
//! tokens next to none: it would never find them, as it would never find an n-gram.
//!
//! A row may also be over the draft tokens that drafting begins with, each standing for its
//! *group* of target tokens: `q(d)` against the group's mass `P(d) = sum p(t)`. The same functions
//! grade it; [`acceptance`] is then what the group rule of exact verification accepts,
//! `sum_d min(P(d), q(d))`.
//!
//! Every function takes the logits of a row (or of the rows of one chunk), returns the loss in nats
//! and leaves `weight * d loss / d logits` in place of the logits: no graph, no second buffer of
//! that size. Arithmetic is f32 with sums in f64, in a fixed order and without fused operations:
//! the same bits on every machine.
//!
//! Symbols: `x` logits, `q` the drafter's softmax over the row, `p` the target's law at the same
//! columns (which need not sum to one over them: what is missing is on tokens the drafter has no
//! counterpart of), `[A]` one if `A` holds, else zero.
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
mod direct;
mod math;
mod ngram;
mod rows;

pub use alm::{alm, binarised_kl};
pub use direct::DirectLoss;
pub use direct::acceptance::{acceptance, log_acceptance};
pub use direct::forward_kl::forward_kl;
pub use direct::jsd::jensen_shannon;
pub use direct::nll::negative_log_likelihood;
pub use direct::reverse_kl::reverse_kl;
pub use ngram::NgramLoss;
pub use ngram::approximate_kl::{Merged, approximate_kl};
pub use ngram::nll::ngram_likelihood;
pub use rows::log_sum_exp;

/// The paper's lambda, fixed at this value in all its experiments.
pub const PAPER_LAMBDA: f64 = 0.2;
