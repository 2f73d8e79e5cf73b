//! Token by token: accept with min(1, p / q'), else draw from norm(max(0, p - q')).
//!
//! Without n-grams in the lexicon this is mode `tli`, and over one shared vocabulary it is ordinary
//! speculative sampling (Leviathan, Kalman and Matias, arXiv 2211.17192; Chen et al., arXiv
//! 2302.01318). With n-grams it is the paper's rule, whose q' (Eq. 2) adjusts only the n-gram that
//! was matched.

use vocab_align::{TargetId, TokenId};

use super::{Evidence, Origin, Score, Verdict};
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;
use crate::residual::{Pushforward, check_empty_residual};
use crate::translate::is_looked_up;

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let mut law = Row::of(evidence.rows.vocab());
    let mut scores = Vec::with_capacity(evidence.proposals.len());
    for (index, proposal) in evidence.proposals.iter().enumerate() {
        evidence.sampling.law(evidence.rows.row(index), &mut law)?;
        if is_looked_up(proposal) {
            scores.push(evidence.score(&law, proposal)?);
            if dice.accept(law[proposal.target.index()], 1.0) {
                continue;
            }
            return Ok(Verdict {
                accepted: index,
                last: draw_other(&mut law, proposal.target, dice)?,
                origin: Origin::Residual,
                scores,
            });
        }
        let proposed = Pushforward::new(evidence.draft, proposal, evidence.lexicon.direct())?;
        let (p, q) = (
            law[proposal.target.index()],
            proposed.probability(proposal.target),
        );
        scores.push(Score::new(p, q));
        if dice.accept(p, q) {
            continue;
        }
        return Ok(Verdict {
            accepted: index,
            last: draw_residual(law, &proposed, proposal.target, (p, q), dice)?,
            origin: Origin::Residual,
            scores,
        });
    }
    let free = evidence.rows.row(evidence.proposals.len());
    evidence.sampling.law(free, &mut law)?;
    Verdict::all_accepted(evidence.proposals.len(), scores, &law, dice)
}

/// The residual of a token proposed with probability 1: p without it.
fn draw_other(
    law: &mut [f64],
    rejected: TargetId,
    dice: &mut dyn Chance,
) -> Result<TargetId, LawError> {
    let mass = std::mem::take(&mut law[rejected.index()]);
    if law.iter().all(|&mass| mass == 0.0) {
        check_empty_residual(rejected, mass, 1.0, law.len())?;
        law[rejected.index()] = mass;
    }
    Ok(TargetId::new(dice.pick(law)? as u32))
}

fn draw_residual(
    law: Row<f64>,
    proposed: &Pushforward<'_>,
    rejected: TargetId,
    (p, q): (f64, f64),
    dice: &mut dyn Chance,
) -> Result<TargetId, LawError> {
    let mut residual = Row::of(law.len());
    residual.copy_from_slice(&law);
    proposed.subtract_from(&mut residual);
    if residual.iter().all(|&mass| mass == 0.0) {
        check_empty_residual(rejected, p, q, law.len())?;
        residual = law;
    }
    Ok(TargetId::new(dice.pick(&residual)? as u32))
}
