//! The policy that follows a plan.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spec_decode::{DraftPolicy, DraftStep};

use super::Plan;
use crate::head::HeadScratch;
use crate::{DraftSignal, Head, write_features};

/// Score from which acceptance is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Score {
    /// P(accept) of an acceptance head (Eq. 5).
    #[default]
    Head,
    /// The drafter's own probability, at temperature 1.
    Confidence,
    /// The position in the draft.
    Position,
}

/// Computes scores of tokens. It keeps its buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scorer {
    features: Vec<f32>,
    scratch: HeadScratch,
}

impl Scorer {
    /// The score of a token. Without a head, the drafter's own probability is used.
    pub(crate) fn score(&mut self, by: Score, head: Option<&Head>, step: &DraftStep<'_>) -> f64 {
        if by == Score::Position {
            return 0.0;
        }
        let signal = DraftSignal::of(step.token, step.logits);
        match head {
            Some(head) if by == Score::Head => {
                write_features(signal, step.state, &mut self.features);
                head.probability(&self.features, &mut self.scratch)
            }
            _ => signal.probability(),
        }
    }
}

/// Policy that follows a [`Plan`]. Before each forward it decides if the token to be drawn is worth
/// the cost of the forward and of one more position to verify.
///
/// A drawn token is always proposed: a decision between a forward and its draw would waste the
/// forward to save a position. A draft may end inside a cached n-gram, because nearly every token
/// begins one. The chain estimates the value of such a piece as that of any token.
#[derive(Clone, Debug)]
pub struct Throughput<'a> {
    plan: Arc<Plan>,
    head: Option<&'a Head>,
    explore: Option<usize>,
    rounds: usize,
    /// True if this round still has a token to draft that the plan would not.
    curious: bool,
    /// S, the probability that all drafted tokens are accepted.
    stands: f64,
    scorer: Scorer,
}

impl<'a> Throughput<'a> {
    /// A policy that follows `plan`, with scores by `head` if the plan's are those of a head. With
    /// `explore`, the first of every so many rounds drafts one token more than the plan would, so
    /// that the chain learns what comes after the tokens at which drafts end. One is enough: what
    /// is learnt there moves the end.
    // To explore with the longest drafts took 30% of the time where positions are expensive:
    // results/LOG.md, 2026-11-28.
    pub fn new(plan: Arc<Plan>, head: Option<&'a Head>, explore: Option<usize>) -> Self {
        Self {
            plan,
            head,
            explore,
            rounds: 0,
            curious: false,
            stands: 1.0,
            scorer: Scorer::default(),
        }
    }

    /// As [`stop_after`](DraftPolicy::stop_after), for callers that have the score of the token at
    /// `position` already.
    pub fn stop_at(&mut self, position: usize, score: f64) -> bool {
        if self.decided(position) {
            return false;
        }
        self.stands *= self.plan.acceptance(position, score);
        !self.plan.goes_on(position + 1, self.stands, score) && !std::mem::take(&mut self.curious)
    }

    /// True if the draft has its longest length, whatever is drafted.
    fn decided(&self, position: usize) -> bool {
        position + 1 >= self.plan.longest()
    }
}

impl DraftPolicy for Throughput<'_> {
    fn next_len(&mut self) -> usize {
        self.stands = 1.0;
        self.curious = self
            .explore
            .is_some_and(|every| self.rounds.is_multiple_of(every.max(1)));
        self.rounds += 1;
        match self.plan.begins() {
            true => self.plan.longest(),
            false => usize::from(std::mem::take(&mut self.curious)).min(self.plan.longest()),
        }
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        // Then a score is not worth its time.
        if self.decided(step.position) {
            return false;
        }
        let by = self.plan.chain().score();
        let score = self.scorer.score(by, self.head, step);
        self.stop_at(step.position, score)
    }

    fn is_worth(&self, others: usize, chance: f64) -> bool {
        self.plan.is_worth(others, chance)
    }

    fn draft_acceptance(&self, position: usize, probability: f64) -> f64 {
        match self.plan.chain().score() {
            Score::Confidence => self.plan.acceptance(position, probability),
            _ => probability,
        }
    }
}
