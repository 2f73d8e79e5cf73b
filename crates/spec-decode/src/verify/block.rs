//! Block verification (Sun et al. 2024, arXiv 2403.10444), composed with the group rule: all
//! choices of a draft are verified together.
//!
//! # The rule
//! Let the draft make choices 1 ... n ([`choice`](super::choice)), and let q_i and P_i be the
//! probabilities of the outcome that it takes at choice i, given the outcomes before. A draft has
//! the weight
//!
//! `w_0 = 1`, `w_i = min(1, w_{i-1} P_i / q_i)`.
//!
//! A token drawn from p in between, on which the draft has no influence, does not change the
//! weight. The draft is followed to its end: a token drawn from p that is not the next proposal, or
//! the last proposal. There the whole draft is accepted with probability w_n. Otherwise the choices
//! are visited backwards. The draft is rejected at choice i with probability
//!
//! `h_i = R_i / (R_i + 1 - w_{i-1})`, `R_i = sum over outcomes x of max(0, w_{i-1} P_i(x) - q_i(x))`,
//!
//! and then the outcome of choice i is drawn from that residual. Choice 1 has h = 1.
//!
//! # Proof that the output has distribution p
//! Given all outcomes before choice i, the draft is accepted up to there with probability w_{i-1}.
//! At the end that is the rule. Before it, suppose it for choice i + 1. The draft is accepted
//! beyond choice i with probability A = sum_x q_i(x) min(1, w_{i-1} P_i(x) / q_i(x)) = sum_x
//! min(q_i(x), w_{i-1} P_i(x)) = w_{i-1} - R_i. Of the other cases, 1 - A = R_i + 1 - w_{i-1}, h_i
//! selects just R_i more, together w_{i-1}. (For a token drawn from p, q_i = P_i: A = w_{i-1},
//! nothing to add.)
//!
//! So, given the outcomes before choice i, the output has outcome x there with probability
//! min(q_i(x), w_{i-1} P_i(x)) from the draft and max(0, w_{i-1} P_i(x) - q_i(x)) from the
//! residual: together w_{i-1} P_i(x), that is P_i(x) given that the draft is accepted up to choice
//! i. Hence outcomes have distribution P, and tokens have distribution p, choice after choice. The
//! distribution q_i may depend on anything the draft did before, even on the next draft token's
//! distribution being known at all, because the argument is conditional on that.
//!
//! # Never fewer tokens
//! Token by token, choices 1 ... i are accepted with probability prod_j min(1, P_j / q_j) <= w_i,
//! for every draft. In expectation the block rule therefore accepts at least as many of the
//! proposals of a round. The one exception is a coincidence: token by token, a residual that
//! happens to draw the proposal itself (possible if a token has two n-grams) continues after it. In
//! a block the later proposals have been used already, and the round ends.

use vocab_align::TargetId;

use super::chain::{Begun, Judged, Laws, Step};
use super::{Origin, Score, Verdict};
use crate::Chance;
use crate::error::LawError;

/// A choice, with the weight with which it was reached.
struct Weighed<C> {
    index: usize,
    weight: f64,
    choice: C,
}

/// The draft followed to its end.
struct Path<C> {
    choices: Vec<Weighed<C>>,
    /// The token drawn from p at which the output left the proposals, and the index of the proposal
    /// that it replaces.
    left: Option<(usize, TargetId)>,
    /// Number of proposals that were followed.
    followed: usize,
    /// Weight w_n of the whole draft.
    weight: f64,
    scores: Vec<Score>,
}

/// Applies the rule to the proposals of a draft, whose chains of choices `begin` begins.
pub(super) fn judge<'a, C: Judged<'a>>(
    laws: &Laws<'_>,
    proposals: &[TargetId],
    begin: impl FnMut(usize) -> Result<Begun<'a, C>, LawError>,
    dice: &mut dyn Chance,
) -> Result<Verdict, LawError> {
    let mut path = Path::follow(proposals, begin, dice)?;
    let scores = std::mem::take(&mut path.scores);
    if path.weight > 0.0 && dice.accept(path.weight, 1.0) {
        return match path.left {
            Some((accepted, last)) => Ok(Verdict {
                accepted,
                last,
                origin: Origin::Group,
                scores,
            }),
            None => {
                let law = laws.at(path.followed)?;
                Verdict::all_accepted(path.followed, scores, law, dice)
            }
        };
    }
    for (at, judged) in path.choices.iter().enumerate().rev() {
        let residual = judged.choice.residual(judged.weight);
        let left = judged.weight * residual.total();
        let lost = 1.0 - judged.weight;
        // The first choice is reached with certainty; its residual is empty only by rounding.
        let falls = at == 0 || (left > 0.0 && dice.accept(left, left + lost));
        if falls {
            return Ok(Verdict {
                accepted: judged.index,
                last: judged.choice.reject(residual, dice)?,
                origin: Origin::Residual,
                scores,
            });
        }
    }
    // Without a choice the weight is 1, and the draft was accepted above.
    Err(LawError::NoMass { candidates: 0 })
}

impl<'a, C: Judged<'a>> Path<C> {
    fn follow(
        proposals: &[TargetId],
        mut begin: impl FnMut(usize) -> Result<Begun<'a, C>, LawError>,
        dice: &mut dyn Chance,
    ) -> Result<Self, LawError> {
        let mut path = Self {
            choices: Vec::new(),
            left: None,
            followed: 0,
            weight: 1.0,
            scores: Vec::new(),
        };
        while let Some((step, score)) = begin(path.followed)? {
            path.scores.extend(score);
            let Some(token) = path.decide(step, dice)? else {
                break;
            };
            if proposals.get(path.followed) != Some(&token) {
                path.left = Some((path.followed, token));
                break;
            }
            path.followed += 1;
        }
        Ok(path)
    }

    /// Decides which token the draft's path takes at the next position; `None` if the path's weight is 0.
    fn decide(
        &mut self,
        mut step: Step<'a, C>,
        dice: &mut dyn Chance,
    ) -> Result<Option<TargetId>, LawError> {
        loop {
            let choice = match step {
                Step::Draw(undrafted) => return undrafted.draw(dice).map(Some),
                Step::Test(choice) => choice,
            };
            let before = self.weight;
            let (p, q) = choice.outcome();
            self.weight = (before * (p / q)).min(1.0);
            let next = (self.weight > 0.0).then(|| choice.accepted()).transpose()?;
            self.choices.push(Weighed {
                index: self.followed,
                weight: before,
                choice,
            });
            let Some(next) = next else {
                return Ok(None);
            };
            step = next;
        }
    }
}
