//! Alternatives: second choices of the drafter that the target scores along with a draft.
//!
//! A round ends with a token that the target draws in place of the first rejected proposal. If the
//! same forward has scored that very token there, the target's row after it is known, and one more
//! token is drawn from it. Acceptance and draws depend on no alternative: one only spares the
//! forward after a token that is drawn already. So the output has the target's distribution in every
//! mode that keeps it; in mode `paper` it comes nearer to it.

use vocab_align::{DraftId, TargetId, TokenId};

use crate::buffer::Row;
use crate::lexicon::DirectMap;
use crate::sampling::Sampling;

/// A token that may stand in place of a proposal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Second {
    pub(crate) target: TargetId,
    /// The drafter's probability of the draft up to there, times that of this token, at temperature
    /// 1.
    pub(crate) chance: f64,
}

/// A [`Second`] with its place in the target's forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed {
    /// Number of the forward's tokens before it.
    pub(crate) after: usize,
    pub(crate) second: Second,
}

/// Second choices of a draft in progress.
#[derive(Clone, Debug)]
pub(crate) struct Seconds {
    /// One a drafted token, if there is any.
    found: Vec<Option<Second>>,
    /// The drafter's probability of the whole draft so far.
    stands: f64,
}

impl Default for Seconds {
    fn default() -> Self {
        Self {
            found: Vec::new(),
            stands: 1.0,
        }
    }
}

impl Seconds {
    /// Notes a drafted token, given the drafter's raw logits; without them there is no second choice
    /// in its place.
    pub(crate) fn note(&mut self, first: DraftId, logits: &[f32], direct: &DirectMap) {
        let mut law = Row::of(logits.len());
        let one = Sampling::new(1.0).ok();
        let known = one.and_then(|one| one.law(logits, &mut law).ok());
        if known.is_none() {
            self.found.push(None);
            // Later second choices have no known chance.
            self.stands = 0.0;
            return;
        }
        let mut best: Option<(TargetId, f64)> = None;
        for (column, &mass) in law.iter().enumerate() {
            if mass > best.map_or(0.0, |(_, mass)| mass) && column != first.index() {
                let target = direct.target_of(DraftId::new(column as u32));
                best = target.map(|target| (target, mass)).or(best);
            }
        }
        let stands = self.stands;
        self.found.push(best.map(|(target, mass)| Second {
            target,
            chance: stands * mass,
        }));
        self.stands *= law.get(first.index()).copied().unwrap_or(0.0);
    }

    /// The second choice in place of a drafted token.
    pub(crate) fn of(&self, drafted: usize) -> Option<Second> {
        self.found.get(drafted).copied().flatten()
    }
}
