//! Temperature 0: no randomness and no laws, a proposal stands while it is the target's argmax.

use vocab_align::{TargetId, TokenId};

use super::{Evidence, Origin, Score, Verdict};
use crate::error::LawError;
use crate::sampling::argmax;

pub(super) fn verify(evidence: &Evidence<'_>) -> Result<Verdict, LawError> {
    let mut scores = Vec::with_capacity(evidence.proposals.len());
    for (index, proposal) in evidence.proposals.iter().enumerate() {
        let best = TargetId::new(argmax(evidence.rows.row(index))? as u32);
        let stands = best == proposal.target;
        scores.push(Score::new(f64::from(u8::from(stands)), 1.0));
        if !stands {
            return Ok(Verdict {
                accepted: index,
                last: best,
                origin: Origin::Residual,
                scores,
            });
        }
    }
    let accepted = evidence.proposals.len();
    Ok(Verdict {
        accepted,
        last: TargetId::new(argmax(evidence.rows.row(accepted))? as u32),
        origin: Origin::Bonus,
        scores,
    })
}
