//! Verification at temperature 0: a proposal is accepted if it is the target's argmax. There is no
//! randomness.

use vocab_align::{TargetId, TokenId};

use super::{Origin, Score, Verdict};
use crate::translate::Proposal;

/// Verifies by the target's argmax at each position.
pub(crate) fn verify<E>(
    proposals: &[Proposal],
    best: impl Fn(usize) -> Result<u32, E>,
) -> Result<Verdict, E> {
    let best = |index| best(index).map(TargetId::new);
    let mut scores = Vec::with_capacity(proposals.len());
    for (index, proposal) in proposals.iter().enumerate() {
        let best = best(index)?;
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
    let accepted = proposals.len();
    Ok(Verdict {
        accepted,
        last: best(accepted)?,
        origin: Origin::Bonus,
        scores,
    })
}
