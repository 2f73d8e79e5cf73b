//! Token by token: accept with min(1, p / q'), else draw from norm(max(0, p - q')).
//!
//! With a lexicon without n-grams this is mode `tli`, and over one shared vocabulary it is
//! ordinary speculative sampling (Leviathan, Kalman and Matias, arXiv 2211.17192; Chen et al., arXiv
//! 2302.01318); with n-grams it is the paper's rule, whose q' (Eq. 2) adjusts
//! only the n-gram matched here.

use vocab_align::{TargetId, TokenId};

use super::{Evidence, Origin, Score, Verdict};
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;
use crate::residual::{Pushforward, check_empty_residual};

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let mut law = Row::of(evidence.rows.vocab());
    let mut scores = Vec::with_capacity(evidence.proposals.len());
    for (index, proposal) in evidence.proposals.iter().enumerate() {
        evidence.sampling.law(evidence.rows.row(index), &mut law)?;
        let proposed = Pushforward::new(evidence.draft, proposal, evidence.lexicon.direct())?;
        let score = Score {
            target: law[proposal.target.index()],
            proposal: proposed.probability(proposal.target),
        };
        scores.push(score);
        if dice.accept(score.target, score.proposal) {
            continue;
        }
        return Ok(Verdict {
            accepted: index,
            last: draw_residual(law, &proposed, proposal.target, score, dice)?,
            origin: Origin::Residual,
            scores,
        });
    }
    evidence.all_accepted(scores, &mut law, dice)
}

fn draw_residual(
    law: Row<f64>,
    proposed: &Pushforward<'_>,
    rejected: TargetId,
    score: Score,
    dice: &mut dyn Chance,
) -> Result<TargetId, LawError> {
    let mut residual = Row::of(law.len());
    residual.copy_from_slice(&law);
    proposed.subtract_from(&mut residual);
    if residual.iter().all(|&mass| mass == 0.0) {
        check_empty_residual(rejected, score.target, score.proposal, law.len())?;
        residual = law;
    }
    Ok(TargetId::new(dice.pick(&residual)? as u32))
}
