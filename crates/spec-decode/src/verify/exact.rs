//! The group rule, choice by choice: n-grams are merged and the output law is still p.
//!
//! Each [choice](super::choice) of the draft stands with probability min(1, P / q); else the
//! position's token is drawn from norm(max(0, P - q)), spread over the tokens of an outcome in
//! proportion to p. So each outcome has law P whatever q is: with probability min(P, q) it is the
//! draft's, with probability max(0, P - q) the residual's. Over one vocabulary every group is one
//! token, and this is ordinary speculative sampling, dice included.

use vocab_align::TargetId;

use super::choice::{Laws, OpenPaths, Position, Step};
use super::{Evidence, Origin, Verdict};
use crate::Chance;
use crate::error::LawError;

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let laws = Laws::new(evidence);
    let mut open = OpenPaths::default();
    let mut scores = Vec::with_capacity(evidence.proposals.len());
    // Behind the proposals the draft may end in a path that no n-gram completed. Its first token
    // is put to the test like any other: to draw from p just because of that token would spoil its
    // law for the others.
    for index in 0..=evidence.proposals.len() {
        let Some(position) = Position::new(&laws, index)? else {
            break;
        };
        let proposal = evidence.proposals.get(index);
        let step = position.begin(&mut open)?;
        if let Some(proposal) = proposal {
            scores.push(position.score(&step, proposal)?);
        }
        let (token, origin) = settle(step, dice)?;
        if proposal.is_none_or(|proposal| proposal.target != token) {
            return Ok(Verdict {
                accepted: index,
                last: token,
                origin,
                scores,
            });
        }
    }
    evidence.all_accepted(scores, laws.at(evidence.proposals.len())?, dice)
}

/// Decides a position, choice by choice.
fn settle(mut step: Step<'_>, dice: &mut dyn Chance) -> Result<(TargetId, Origin), LawError> {
    loop {
        let choice = match step {
            Step::Draw(undrafted) => return Ok((undrafted.draw(dice)?, Origin::Group)),
            Step::Test(choice) => choice,
        };
        let (p, q) = choice.outcome();
        if !dice.accept(p, q) {
            let token = choice.reject(choice.residual(1.0), dice)?;
            return Ok((token, Origin::Residual));
        }
        step = choice.accepted()?;
    }
}
