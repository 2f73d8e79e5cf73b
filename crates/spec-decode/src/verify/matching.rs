//! String-level exact matching: the target samples as in plain decoding, and a proposal is accepted
//! if it equals that sample. This needs no proposal distribution, so any proposal is admissible.

use vocab_align::{TargetId, TokenId};

use super::{Evidence, Origin, Score, Verdict};
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let mut law = Row::of(evidence.rows.vocab());
    let mut scores = Vec::with_capacity(evidence.proposals.len());
    for (index, proposal) in evidence.proposals.iter().enumerate() {
        evidence.sampling.law(evidence.rows.row(index), &mut law)?;
        scores.push(Score::new(law[proposal.target.index()], 1.0));
        let sampled = TargetId::new(dice.pick(&law)? as u32);
        if sampled != proposal.target {
            return Ok(Verdict {
                accepted: index,
                last: sampled,
                origin: Origin::Residual,
                scores,
            });
        }
    }
    let free = evidence.rows.row(evidence.proposals.len());
    evidence.sampling.law(free, &mut law)?;
    Verdict::all_accepted(evidence.proposals.len(), scores, &law, dice)
}
