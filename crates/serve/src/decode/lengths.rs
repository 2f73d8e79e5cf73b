//! Adaptive draft lengths.

use std::collections::BTreeMap;
use std::sync::Arc;

use adaptive_draft::{
    Chain, CopyOrDraft, CopyRecord, Costs, DraftSignal, Example, Head, HeadScratch, Plan, SCALARS,
    Score, Throughput, labels, write_features,
};
use spec_decode::{DraftPolicy, DraftStep, RoundOutcome};

use super::costs::ConcurrentCosts;
use crate::models::target_of;
use crate::options::MAX_ADAPTERS;

/// Number of rounds after which a plan is recomputed.
const STALE: usize = 64;
/// Period of exploration: one of so many rounds of an answer drafts a token more than the plan, so
/// that the acceptance of longer drafts is observed.
pub(super) const EXPLORE: usize = 16;
/// Number of training steps after which a head is used; before that, the drafter's own probability.
const TRAINED: u64 = 32;

/// Statistics of draft lengths, of each adapter its own.
pub(super) struct DraftLengths {
    known: BTreeMap<String, AdapterLengths>,
    /// Number of features of a token that a head reads.
    features: usize,
    longest: usize,
}

/// Statistics of one adapter of the drafter for its target.
struct AdapterLengths {
    /// Acceptance at each value of the drafter's own probability, and at each value of its head's.
    own: Chain,
    by_head: Chain,
    head: Option<(u64, Arc<Head>)>,
    plan: Arc<Plan>,
    /// Number of concurrent sequences that the plan was made for; 0 for a plan by assumed costs.
    concurrency: usize,
    rounds: usize,
}

/// Predicted acceptance of the tokens of one draft.
#[derive(Default)]
pub(super) struct Scores {
    own: Vec<f64>,
    /// Predictions of the head, if there is one.
    by_head: Vec<f64>,
}

impl DraftLengths {
    /// Starts from saved chains. `width` is the length of the drafter's hidden states, `longest`
    /// the maximum draft length.
    pub(super) fn new(kept: BTreeMap<String, Vec<Chain>>, width: usize, longest: usize) -> Self {
        let known = |(name, chains)| (name, AdapterLengths::new(chains, longest));
        Self {
            known: kept.into_iter().map(known).collect(),
            features: width + SCALARS,
            longest,
        }
    }

    /// The chains to be saved, by adapter.
    pub(super) fn chains(&self) -> BTreeMap<String, Vec<Chain>> {
        let chains = |known: &AdapterLengths| vec![known.own.clone(), known.by_head.clone()];
        let all = self.known.iter();
        all.map(|(name, known)| (name.clone(), chains(known)))
            .collect()
    }

    /// True if an adapter has statistics of its own, or may have.
    fn has_room(&self, adapter: &str) -> bool {
        self.known.len() < MAX_ADAPTERS || self.known.contains_key(adapter)
    }

    /// Statistics that an answer uses and adds to: those of `adapter`, or of its target if too many
    /// adapters have their own.
    fn of(&mut self, adapter: &str) -> &mut AdapterLengths {
        let name = match self.has_room(adapter) {
            true => adapter,
            false => target_of(adapter),
        };
        let longest = self.longest;
        let fresh = || AdapterLengths::new(Vec::new(), longest);
        self.known.entry(name.to_owned()).or_insert_with(fresh)
    }

    /// Replaces the head of an adapter; `steps` is the number of its training steps. The head of an
    /// adapter that shares the statistics of its target is left out: the target has its own.
    pub(super) fn follow(
        &mut self,
        adapter: &str,
        head: Arc<Head>,
        steps: u64,
        costs: &ConcurrentCosts,
    ) {
        if !self.has_room(adapter) && target_of(adapter) != adapter {
            return;
        }
        let longest = self.longest;
        let known = self.of(adapter);
        known.head = Some((steps, head));
        if known.trained() && known.plan.chain().score() != Score::Head {
            known.replan(costs, longest);
        }
    }

    /// True if the head of this adapter decides where its drafts end.
    pub(super) fn by_head(&self, adapter: &str) -> bool {
        let plan = self.known.get(adapter).map(|known| &known.plan);
        plan.is_some_and(|plan| plan.chain().score() == Score::Head)
    }

    /// Records a round without looked-up text. If the plan is recomputed, `costs` gives the number
    /// of concurrent sequences and the costs of rounds among them.
    pub(super) fn observe(
        &mut self,
        adapter: &str,
        scores: &Scores,
        outcome: &RoundOutcome,
        costs: impl FnOnce() -> ConcurrentCosts,
    ) {
        let known = self.of(adapter);
        // In a round without a draft the scores are those of an earlier one.
        if !outcome.draft.is_empty() {
            known.own.learn(&scores.own, outcome);
            if scores.by_head.len() == scores.own.len() {
                known.by_head.learn(&scores.by_head, outcome);
            }
        }
        known.rounds += 1;
        if known.rounds.is_multiple_of(STALE) {
            let longest = self.longest;
            self.of(adapter).replan(&costs(), longest);
        }
    }

    /// The policy of an answer that is one of `costs.concurrency` sequences. `records` is true if
    /// examples for the head are kept.
    pub(super) fn policy(
        &mut self,
        adapter: &str,
        costs: &ConcurrentCosts,
        records: bool,
    ) -> LengthPolicy {
        let (features, longest) = (self.features, self.longest);
        let known = self.of(adapter);
        if known.concurrency != costs.concurrency {
            known.replan(costs, longest);
        }
        let head = known.head.as_ref().map(|(_, head)| Arc::clone(head));
        LengthPolicy::Adaptive(Box::new(AdaptiveLength {
            by: known.plan.chain().score(),
            inner: Throughput::new(Arc::clone(&known.plan), None, Some(EXPLORE)),
            head: head.filter(|head| head.features() == features),
            width: features,
            scores: Scores::default(),
            scratch: HeadScratch::default(),
            features: Vec::new(),
            drafted: Vec::new(),
            head_examples: records.then(Vec::new),
        }))
    }
}

impl AdapterLengths {
    fn new(kept: Vec<Chain>, longest: usize) -> Self {
        let chain = |score: Score| {
            let kept = kept.iter().find(|chain| chain.score() == score);
            kept.cloned().unwrap_or_else(|| Chain::new(score))
        };
        let own = chain(Score::Confidence);
        Self {
            plan: Arc::new(Plan::new(&own, &Costs::default(), longest)),
            by_head: chain(Score::Head),
            own,
            head: None,
            concurrency: 0,
            rounds: 0,
        }
    }

    fn trained(&self) -> bool {
        self.head
            .as_ref()
            .is_some_and(|(steps, _)| *steps >= TRAINED)
    }

    fn replan(&mut self, costs: &ConcurrentCosts, longest: usize) {
        self.concurrency = costs.concurrency;
        let chain = match self.trained() {
            true => &self.by_head,
            false => &self.own,
        };
        self.plan = Arc::new(Plan::new(chain, &costs.costs, longest));
    }
}

/// The policy of an answer: the draft length and, with lookup, the length of copies. The acceptance
/// of copies is estimated anew in every answer, so that no answer reveals anything of another.
pub(super) type Policy = CopyOrDraft<Box<CopyRecord>, LengthPolicy>;

/// The draft length policy of an answer.
pub(super) enum LengthPolicy {
    /// The same length in every round.
    Constant(usize),
    Adaptive(Box<AdaptiveLength>),
}

/// A draft length that follows a plan, with scores and examples of every round.
pub(super) struct AdaptiveLength {
    /// The score that the plan is computed from.
    by: Score,
    inner: Throughput<'static>,
    head: Option<Arc<Head>>,
    /// Number of features of a token.
    width: usize,
    scores: Scores,
    scratch: HeadScratch,
    /// Features of the token just drafted.
    features: Vec<f32>,
    /// Features of the tokens of this round.
    drafted: Vec<Vec<f32>>,
    /// Tokens that verification decided, as examples for the head; `None` if none are kept.
    head_examples: Option<Vec<Example>>,
}

impl LengthPolicy {
    /// Predicted acceptance of the tokens drafted last, if lengths are adapted.
    pub(super) fn scores(&self) -> Option<&Scores> {
        match self {
            Self::Constant(_) => None,
            Self::Adaptive(own) => Some(&own.scores),
        }
    }

    /// Takes out the examples for the head.
    pub(super) fn take_head_examples(&mut self) -> Vec<Example> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Adaptive(own) => own.head_examples.take().unwrap_or_default(),
        }
    }
}

impl DraftPolicy for LengthPolicy {
    fn next_len(&mut self) -> usize {
        match self {
            Self::Constant(length) => *length,
            Self::Adaptive(own) => {
                own.scores.own.clear();
                own.scores.by_head.clear();
                own.drafted.clear();
                own.inner.next_len()
            }
        }
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let Self::Adaptive(own) = self else {
            return false;
        };
        let signal = DraftSignal::of(step.token, step.logits);
        let mut score = signal.probability();
        own.scores.own.push(score);
        if own.head.is_some() || own.head_examples.is_some() {
            write_features(signal, step.state, &mut own.features);
            // An engine may provide no hidden states.
            if own.features.len() == own.width {
                if let Some(head) = &own.head {
                    let chance = head.probability(&own.features, &mut own.scratch);
                    own.scores.by_head.push(chance);
                    if own.by == Score::Head {
                        score = chance;
                    }
                }
                if own.head_examples.is_some() {
                    own.drafted.push(own.features.clone());
                }
            }
        }
        own.inner.stop_at(step.position, score)
    }

    fn is_worth(&self, others: usize, chance: f64) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Adaptive(own) => own.inner.is_worth(others, chance),
        }
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        let Self::Adaptive(own) = self else {
            return;
        };
        own.inner.observe(outcome);
        let Some(head_examples) = &mut own.head_examples else {
            return;
        };
        for (features, label) in own.drafted.drain(..).zip(labels(outcome)) {
            if let Some(label) = label {
                head_examples.push(Example {
                    features,
                    label: label.accepted as f32,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_user_without_room_does_not_replace_its_targets() {
        let (width, longest) = (4, 8);
        let mut lengths = DraftLengths::new(BTreeMap::new(), width, longest);
        let costs = ConcurrentCosts {
            concurrency: 1,
            costs: Costs::default(),
        };
        let head = Arc::new(Head::new(width + SCALARS, 8, 1));
        lengths.follow("L", Arc::clone(&head), TRAINED, &costs);
        for user in 1..MAX_ADAPTERS {
            lengths.follow(&format!("L/{user}"), Arc::clone(&head), 1, &costs);
        }
        assert!(lengths.by_head("L") && !lengths.by_head("L/1"));
        lengths.follow("L/late", Arc::clone(&head), 1, &costs);
        assert_eq!(lengths.known.len(), MAX_ADAPTERS);
        assert_eq!(
            lengths.known["L"].head.as_ref().map(|own| own.0),
            Some(TRAINED)
        );
        lengths.follow("L/1", head, TRAINED, &costs);
        assert!(lengths.by_head("L/1"));
    }
}
