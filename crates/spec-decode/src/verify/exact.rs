//! The group rule, choice by choice: n-grams are merged, and the output still has distribution p.
//!
//! Each [choice](super::choice) of the draft is accepted with probability min(1, P / q). Otherwise
//! the position's token is drawn from norm(max(0, P - q)), spread over the tokens of an outcome in
//! proportion to p. Outcomes therefore have distribution P whatever q is: with probability min(P,
//! q) an outcome comes from the draft, with probability max(0, P - q) from the residual. Over one
//! vocabulary every group is one token, and this is ordinary speculative sampling, including the
//! use of dice.

use vocab_align::TargetId;

use super::chain::{Begun, Judged, Laws, Step};
use super::{Origin, Verdict};
use crate::Chance;
use crate::error::LawError;

/// Applies the rule to the proposals of a draft, whose chains of choices `begin` begins.
pub(super) fn judge<'a, C: Judged<'a>>(
    laws: &Laws<'_>,
    proposals: &[TargetId],
    mut begin: impl FnMut(usize) -> Result<Begun<'a, C>, LawError>,
    dice: &mut dyn Chance,
) -> Result<Verdict, LawError> {
    // After the proposals the draft may end in a path that no n-gram completed. Its first token is
    // verified like any other: to draw from p because of that token would distort its distribution
    // for the others.
    let (mut index, mut scores) = (0, Vec::new());
    while let Some((step, score)) = begin(index)? {
        scores.extend(score);
        let (token, origin) = settle(step, dice)?;
        if proposals.get(index) != Some(&token) {
            return Ok(Verdict {
                accepted: index,
                last: token,
                origin,
                scores,
            });
        }
        index += 1;
    }
    Verdict::all_accepted(index, scores, laws.at(index)?, dice)
}

/// Decides a position, choice by choice.
fn settle<'a, C: Judged<'a>>(
    mut step: Step<'a, C>,
    dice: &mut dyn Chance,
) -> Result<(TargetId, Origin), LawError> {
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
