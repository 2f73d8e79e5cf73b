//! Verification at temperature 0: a proposal is accepted if it is the target's argmax. There is no
//! randomness.

use vocab_align::{TargetId, TokenId};

use super::{Origin, Score, Verdict};

/// Verifies proposed tokens by the target's argmax at each position.
pub(crate) fn verify<E>(
    proposals: impl ExactSizeIterator<Item = TargetId>,
    best: impl Fn(usize) -> Result<u32, E>,
) -> Result<Verdict, E> {
    let best = |index| best(index).map(TargetId::new);
    let accepted = proposals.len();
    let mut scores = Vec::with_capacity(accepted);
    for (index, proposal) in proposals.enumerate() {
        let best = best(index)?;
        let stands = best == proposal;
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
    Ok(Verdict {
        accepted,
        last: best(accepted)?,
        origin: Origin::Bonus,
        scores,
    })
}
