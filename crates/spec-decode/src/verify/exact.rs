//! The group rule, choice by choice: n-grams are merged and the output law is still p.
//!
//! Each [choice](super::choice) of the draft stands with probability min(1, P / q); else the
//! position's token is drawn from norm(max(0, P - q)), spread over the tokens of an outcome in
//! proportion to p. So each outcome has law P whatever q is: with probability min(P, q) it is the
//! draft's, with probability max(0, P - q) the residual's. Over one vocabulary every group is one
//! token, and this is ordinary speculative sampling, dice included.

use vocab_align::TargetId;

use super::choice::{Chains, Drafted, Judged, Laws, Step};
use super::{Evidence, Origin, Verdict};
use crate::Chance;
use crate::error::LawError;

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let laws = Laws::new(evidence.rows, evidence.sampling);
    judge(&mut Drafted::new(evidence, &laws), dice)
}

/// The rule over the chains of a draft.
pub(super) fn judge<'a>(
    chains: &mut impl Chains<'a>,
    dice: &mut dyn Chance,
) -> Result<Verdict, LawError> {
    // Behind the proposals the draft may end in a path that no n-gram completed. Its first token
    // is put to the test like any other: to draw from p just because of that token would spoil its
    // law for the others.
    let mut index = 0;
    while let Some(step) = chains.begin(index)? {
        let (token, origin) = settle(step, dice)?;
        if chains.proposal(index) != Some(token) {
            return Ok(Verdict {
                accepted: index,
                last: token,
                origin,
                scores: chains.scores(),
            });
        }
        index += 1;
    }
    let law = chains.law(index)?;
    Verdict::all_accepted(index, chains.scores(), law, dice)
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
