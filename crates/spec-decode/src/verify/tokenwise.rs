//! Token by token: accept with min(1, p / q'), else draw from norm(max(0, p - q')).
//!
//! Without n-grams in the lexicon this is mode `tli`, and over one shared vocabulary it is ordinary
//! speculative sampling (Leviathan, Kalman and Matias, arXiv 2211.17192; Chen et al., arXiv
//! 2302.01318). With n-grams it is the paper's rule, whose q' (Eq. 2) adjusts only the n-gram that
//! was matched.

use vocab_align::{TargetId, TokenId};

use super::chain::row_of;
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
        let token = proposal.target;
        // A looked-up token is proposed with probability 1.
        let direct = evidence.lexicon.direct();
        let proposed = match is_looked_up(proposal) {
            true => None,
            false => Some(Pushforward::new(evidence.draft, proposal, direct)?),
        };
        let q = proposed.map_or(1.0, |proposed| proposed.probability(token));
        let p = law[token.index()];
        scores.push(Score::new(p, q));
        if dice.accept(p, q) {
            continue;
        }
        return Ok(Verdict {
            accepted: index,
            last: draw_residual(law, proposed, token, (p, q), dice)?,
            origin: Origin::Residual,
            scores,
        });
    }
    let free = evidence.rows.row(evidence.proposals.len());
    evidence.sampling.law(free, &mut law)?;
    Verdict::all_accepted(evidence.proposals.len(), scores, &law, dice)
}

/// Draws from p without what was `proposed`; without the rejected token if that was looked up.
fn draw_residual(
    law: Row<f64>,
    proposed: Option<Pushforward<'_>>,
    rejected: TargetId,
    (p, q): (f64, f64),
    dice: &mut dyn Chance,
) -> Result<TargetId, LawError> {
    let mut residual = row_of(&law);
    match proposed {
        Some(proposed) => proposed.subtract_from(&mut residual),
        None => residual[rejected.index()] = 0.0,
    }
    if residual.iter().all(|&mass| mass == 0.0) {
        check_empty_residual(rejected, p, q, law.len())?;
        residual = law;
    }
    Ok(TargetId::new(dice.pick(&residual)? as u32))
}
