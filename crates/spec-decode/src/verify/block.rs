//! Block verification (Sun et al. 2024, arXiv 2403.10444), composed with the group rule: all choices
//! of a draft are judged together.
//!
//! # The rule
//! Let the draft make choices 1 ... n ([`choice`](super::choice)), q_i and P_i the probabilities of
//! the outcome it takes at choice i, given those before. A draft is worth the weight
//!
//! `w_0 = 1`, `w_i = min(1, w_{i-1} P_i / q_i)`.
//!
//! Drawing from p in between, which the draft has no say in, leaves the weight alone. The draft is
//! followed to its end: a token drawn from p that is not the next proposal, or the last proposal.
//! There it stands with probability w_n. If it does not, the choices are gone through backwards:
//! choice i is where it falls with probability
//!
//! `h_i = R_i / (R_i + 1 - w_{i-1})`, `R_i = sum over outcomes x of max(0, w_{i-1} P_i(x) - q_i(x))`,
//!
//! and then the outcome of choice i is drawn from that residual. Choice 1 has h = 1.
//!
//! # Why the output has law p
//! Given all outcomes before choice i, the draft stands up to there with probability w_{i-1}. At the
//! end that is the rule. Before it, suppose it for choice i + 1: the draft stands beyond choice i
//! with probability A = sum_x q_i(x) min(1, w_{i-1} P_i(x) / q_i(x)) = sum_x min(q_i(x), w_{i-1}
//! P_i(x)) = w_{i-1} - R_i; h_i makes of the other cases, 1 - A = R_i + 1 - w_{i-1}, just R_i more,
//! together w_{i-1}. (For a token drawn from p, q_i = P_i: A = w_{i-1}, nothing to add.)
//!
//! So, given the outcomes before choice i, the output has outcome x there with probability min(q_i(x),
//! w_{i-1} P_i(x)) from the draft and max(0, w_{i-1} P_i(x) - q_i(x)) from the residual: together
//! w_{i-1} P_i(x), that is P_i(x) given that the draft stands up to choice i. Hence outcomes have law
//! P, and tokens law p, choice after choice. Which law q_i is used may depend on anything the draft
//! did before, also on whether the next draft token's law is known at all: the argument is given
//! that.
//!
//! # Never fewer tokens
//! Token by token, choices 1 ... i stand with probability prod_j min(1, P_j / q_j) <= w_i, for every
//! draft. So in expectation the block rule accepts at least as many of the proposals of a round. The
//! one exception is a coincidence: token by token, a residual that happens to draw the proposal
//! itself (possible where a token has two spellings) goes on behind it. Here what is behind it has
//! been looked at already, and the round ends.

use vocab_align::TargetId;

use super::choice::{Choice, Laws, OpenPaths, Position, Step};
use super::{Evidence, Origin, Score, Verdict};
use crate::Chance;
use crate::error::LawError;

/// A choice with the weight it was reached with.
struct Judged<'a> {
    index: usize,
    weight: f64,
    choice: Choice<'a>,
}

/// The draft followed to its end.
#[derive(Default)]
struct Path<'a> {
    choices: Vec<Judged<'a>>,
    scores: Vec<Score>,
    /// The token drawn from p that left the proposals, and which proposal it stands in for.
    left: Option<(usize, TargetId)>,
    /// w_n.
    weight: f64,
}

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let laws = Laws::new(evidence);
    let path = Path::follow(evidence, &laws, dice)?;
    if path.weight > 0.0 && dice.accept(path.weight, 1.0) {
        return match path.left {
            Some((accepted, last)) => Ok(Verdict {
                accepted,
                last,
                origin: Origin::Group,
                scores: path.scores,
            }),
            None => {
                let law = laws.at(evidence.proposals.len())?;
                evidence.all_accepted(path.scores, law, dice)
            }
        };
    }
    for (at, judged) in path.choices.iter().enumerate().rev() {
        let residual = judged.choice.residual(judged.weight);
        let left = judged.weight * residual.total();
        let lost = 1.0 - judged.weight;
        // The first choice is reached for certain; its residual is empty only by rounding.
        let falls = at == 0 || (left > 0.0 && dice.accept(left, left + lost));
        if falls {
            return Ok(Verdict {
                accepted: judged.index,
                last: judged.choice.reject(residual, dice)?,
                origin: Origin::Residual,
                scores: path.scores,
            });
        }
    }
    // Without a choice the weight is 1, and the draft has stood above.
    Err(LawError::NoMass { candidates: 0 })
}

impl<'a> Path<'a> {
    fn follow(
        evidence: &'a Evidence<'a>,
        laws: &'a Laws<'a>,
        dice: &mut dyn Chance,
    ) -> Result<Self, LawError> {
        let mut path = Self {
            weight: 1.0,
            ..Self::default()
        };
        let mut open = OpenPaths::default();
        for index in 0..=evidence.proposals.len() {
            let Some(position) = Position::new(laws, index)? else {
                break;
            };
            let proposal = evidence.proposals.get(index);
            let step = position.begin(&mut open)?;
            if let Some(proposal) = proposal {
                path.scores.push(position.score(&step, proposal)?);
            }
            let Some(token) = path.decide(step, index, dice)? else {
                break;
            };
            if proposal.is_none_or(|proposal| proposal.target != token) {
                path.left = Some((index, token));
                break;
            }
        }
        Ok(path)
    }

    /// The token the draft stands for at a position; `None` where it weighs nothing any more.
    fn decide(
        &mut self,
        mut step: Step<'a>,
        index: usize,
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
            self.choices.push(Judged {
                index,
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
