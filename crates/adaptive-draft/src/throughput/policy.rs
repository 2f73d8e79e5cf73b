//! Following a plan.

use std::sync::Arc;

use spec_decode::{DraftPolicy, DraftStep};
use vocab_align::DraftId;

use super::Plan;
use crate::head::HeadScratch;
use crate::{DraftSignal, Head, write_features};

/// What acceptance is predicted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Score {
    /// P(accept) of a head.
    Head,
    /// The drafter's own probability, at temperature 1.
    Confidence,
    /// The position in the draft.
    Position,
}

/// Scores tokens; keeps its buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scorer {
    features: Vec<f32>,
    scratch: HeadScratch,
}

impl Scorer {
    /// The score of a token. Without a head, the drafter's own probability stands in.
    pub(crate) fn score(
        &mut self,
        by: Score,
        head: Option<&Head>,
        token: DraftId,
        logits: &[f32],
        state: &[f32],
    ) -> f64 {
        if by == Score::Position {
            return 0.0;
        }
        let signal = DraftSignal::of(token, logits);
        match head {
            Some(head) if by == Score::Head => {
                write_features(signal, state, &mut self.features);
                head.probability(&self.features, &mut self.scratch)
            }
            _ => signal.probability(),
        }
    }
}

/// Drafts as a [`Plan`] says: before each forward, whether the token it would draw is worth its cost
/// and that of one more position to verify.
///
/// What has been drawn is always proposed. Nothing is decided between a forward and its draw: that
/// would throw the forward away to save a position. A draft may end inside a cached n-gram: nearly every
/// token begins one, and what a piece is worth is in the chain, as any token's.
#[derive(Clone, Debug)]
pub struct Throughput<'a> {
    plan: Arc<Plan>,
    head: Option<&'a Head>,
    explore: Option<usize>,
    rounds: usize,
    exploring: bool,
    /// S, the probability that all drafted tokens stand.
    stands: f64,
    scorer: Scorer,
}

impl<'a> Throughput<'a> {
    /// Follows `plan`, of scores by `head` where it is one of a head. `explore` makes the first of
    /// every so many rounds as long as possible, so that the chain learns of what it would never see.
    pub fn new(plan: Arc<Plan>, head: Option<&'a Head>, explore: Option<usize>) -> Self {
        Self {
            plan,
            head,
            explore,
            rounds: 0,
            exploring: false,
            stands: 1.0,
            scorer: Scorer::default(),
        }
    }

    /// As [`stop_after`](DraftPolicy::stop_after), for who has the score of the token at `position`
    /// already.
    pub fn stop_at(&mut self, position: usize, score: f64) -> bool {
        if self.decided(position) {
            return false;
        }
        self.stands *= self.plan.acceptance(position, score);
        !self.plan.goes_on(position + 1, self.stands, score)
    }

    /// Whether the draft goes on to its longest whatever is drafted, or is there.
    fn decided(&self, position: usize) -> bool {
        self.exploring || position + 1 >= self.plan.longest()
    }
}

impl DraftPolicy for Throughput<'_> {
    fn next_len(&mut self) -> usize {
        self.stands = 1.0;
        self.exploring = self
            .explore
            .is_some_and(|every| self.rounds.is_multiple_of(every.max(1)));
        self.rounds += 1;
        if self.exploring || self.plan.begins() {
            self.plan.longest()
        } else {
            0
        }
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        // Then a score is not worth its time.
        if self.decided(step.position) {
            return false;
        }
        let by = self.plan.chain().score();
        let score = self
            .scorer
            .score(by, self.head, step.token, step.logits, step.state);
        self.stop_at(step.position, score)
    }
}
