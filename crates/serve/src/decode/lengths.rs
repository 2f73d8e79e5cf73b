//! Adaptive draft lengths.

use std::collections::BTreeMap;
use std::sync::Arc;

use adaptive_draft::{
    Chain, CopyOrDraft, CopyRecord, Costs, DraftSignal, Example, Head, HeadScratch, Plan, SCALARS,
    Score, Throughput, labels, write_features,
};
use spec_decode::{ConstantLength, CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use super::target_of;
use crate::options::MOST_ADAPTERS;

/// Number of rounds after which a plan is recomputed.
const STALE: usize = 64;
/// Period of exploration: one of so many rounds of an answer drafts the maximum length, so that the
/// acceptance of long drafts is observed.
const EXPLORE: usize = 16;
/// Number of training steps after which a head is used; before that, the drafter's own probability.
const TRAINED: u64 = 32;

/// Statistics of draft lengths, of each adapter its own.
pub(super) struct Lengths {
    known: BTreeMap<String, Knowledge>,
    /// Number of features of a token that a head reads.
    features: usize,
    longest: usize,
}

/// Statistics of one adapter of the drafter for its target.
struct Knowledge {
    /// Acceptance at each value of the drafter's own probability, and at each value of its head's.
    own: Chain,
    by_head: Chain,
    head: Option<(u64, Arc<Head>)>,
    plan: Arc<Plan>,
    /// Number of concurrent sequences that the plan was made for.
    crowd: usize,
    rounds: usize,
}

/// Predicted acceptance of the tokens of one draft.
#[derive(Default)]
pub(super) struct Scores {
    own: Vec<f64>,
    /// Predictions of the head, if there is one.
    by_head: Vec<f64>,
}

impl Lengths {
    /// Starts from saved chains. `width` is the length of the drafter's hidden states, `longest`
    /// the maximum draft length.
    pub(super) fn new(kept: BTreeMap<String, Vec<Chain>>, width: usize, longest: usize) -> Self {
        let known = |(name, chains)| (name, Knowledge::new(chains, longest));
        Self {
            known: kept.into_iter().map(known).collect(),
            features: width + SCALARS,
            longest,
        }
    }

    /// The chains to be saved, by adapter.
    pub(super) fn chains(&self) -> BTreeMap<String, Vec<Chain>> {
        let chains = |known: &Knowledge| vec![known.own.clone(), known.by_head.clone()];
        let all = self.known.iter();
        all.map(|(name, known)| (name.clone(), chains(known)))
            .collect()
    }

    /// Statistics that an answer uses and adds to: those of `adapter`, or of its target if too many
    /// adapters have their own.
    fn of(&mut self, adapter: &str) -> &mut Knowledge {
        let full = self.known.len() >= MOST_ADAPTERS && !self.known.contains_key(adapter);
        let name = if full { target_of(adapter) } else { adapter };
        let longest = self.longest;
        let fresh = || Knowledge::new(Vec::new(), longest);
        self.known.entry(name.to_owned()).or_insert_with(fresh)
    }

    /// Replaces the head of an adapter; `steps` is the number of its training steps.
    pub(super) fn follow(
        &mut self,
        adapter: &str,
        head: Arc<Head>,
        steps: u64,
        costs: (usize, &Costs),
    ) {
        let longest = self.longest;
        let known = self.of(adapter);
        known.head = Some((steps, head));
        if known.trained() && known.plan.chain().score() != Score::Head {
            known.replan(costs, longest);
        }
    }

    /// True if drafts of this adapter end by its head.
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
        costs: impl FnOnce() -> (usize, Costs),
    ) {
        let known = self.of(adapter);
        known.own.learn(&scores.own, outcome);
        if scores.by_head.len() == scores.own.len() {
            known.by_head.learn(&scores.by_head, outcome);
        }
        known.rounds += 1;
        if known.rounds.is_multiple_of(STALE) {
            let longest = self.longest;
            let (crowd, costs) = costs();
            self.of(adapter).replan((crowd, &costs), longest);
        }
    }

    /// The policy of an answer that is one of `crowd` sequences. `records` is true if examples for
    /// the head are kept.
    pub(super) fn policy(
        &mut self,
        adapter: &str,
        (crowd, costs): (usize, &Costs),
        records: bool,
    ) -> Adapted {
        let (features, longest) = (self.features, self.longest);
        let known = self.of(adapter);
        if known.crowd != crowd {
            known.replan((crowd, costs), longest);
        }
        let head = known.head.as_ref().map(|(_, head)| Arc::clone(head));
        Adapted {
            by: known.plan.chain().score(),
            inner: Throughput::new(Arc::clone(&known.plan), None, Some(EXPLORE)),
            head: head.filter(|head| head.features() == features),
            width: features,
            scores: Scores::default(),
            scratch: HeadScratch::default(),
            features: Vec::new(),
            drafted: Vec::new(),
            judged: records.then(Vec::new),
        }
    }
}

impl Knowledge {
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
            crowd: 1,
            rounds: 0,
        }
    }

    fn trained(&self) -> bool {
        self.head
            .as_ref()
            .is_some_and(|(steps, _)| *steps >= TRAINED)
    }

    fn replan(&mut self, (crowd, costs): (usize, &Costs), longest: usize) {
        self.crowd = crowd;
        let chain = match self.trained() {
            true => &self.by_head,
            false => &self.own,
        };
        self.plan = Arc::new(Plan::new(chain, costs, longest));
    }
}

/// A draft length policy that follows a plan and records what a round shows.
pub(super) struct Adapted {
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
    judged: Option<Vec<Example>>,
}

impl DraftPolicy for Adapted {
    fn next_len(&mut self) -> usize {
        self.scores.own.clear();
        self.scores.by_head.clear();
        self.drafted.clear();
        self.inner.next_len()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let signal = DraftSignal::of(step.token, step.logits);
        let mut score = signal.probability();
        self.scores.own.push(score);
        if self.head.is_some() || self.judged.is_some() {
            write_features(signal, step.state, &mut self.features);
            // An engine may provide no hidden states.
            if self.features.len() == self.width {
                if let Some(head) = &self.head {
                    let chance = head.probability(&self.features, &mut self.scratch);
                    self.scores.by_head.push(chance);
                    if self.by == Score::Head {
                        score = chance;
                    }
                }
                if self.judged.is_some() {
                    self.drafted.push(self.features.clone());
                }
            }
        }
        self.inner.stop_at(step.position, score)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.inner.observe(outcome);
        let Some(judged) = &mut self.judged else {
            return;
        };
        for (features, label) in self.drafted.drain(..).zip(labels(outcome, false)) {
            if let Some(label) = label {
                judged.push(Example {
                    features,
                    label: label.accepted as f32,
                });
            }
        }
    }
}

/// The draft length policy of an answer.
pub(super) enum Lengthy {
    Constant(ConstantLength),
    Adapted(Box<Adapted>),
}

/// The policy of an answer: the draft length and, with lookup, the length of copies.
pub(crate) enum Policy {
    Draft(Lengthy),
    /// The acceptance of copies is estimated anew in every answer: nothing of one shows in another.
    Lookup(Box<CopyOrDraft<Box<CopyRecord>, Lengthy>>),
}

impl Policy {
    /// `lookup` holds the costs of rounds, by which copies are weighed, and the maximum draft
    /// length.
    pub(super) fn new(lengthy: Lengthy, lookup: Option<(Costs, usize)>) -> Self {
        match lookup {
            None => Self::Draft(lengthy),
            Some((costs, longest)) => {
                let record = Box::<CopyRecord>::default();
                Self::Lookup(Box::new(CopyOrDraft::new(
                    lengthy,
                    record,
                    costs,
                    longest,
                    true,
                    Some(EXPLORE),
                )))
            }
        }
    }

    /// Predicted acceptance of the tokens drafted last, if lengths are adapted.
    pub(super) fn scores(&self) -> Option<&Scores> {
        let lengthy = match self {
            Self::Draft(lengthy) => lengthy,
            Self::Lookup(policy) => policy.inner(),
        };
        match lengthy {
            Lengthy::Constant(_) => None,
            Lengthy::Adapted(adapted) => Some(&adapted.scores),
        }
    }

    /// Takes out the examples for the head.
    pub(super) fn take_judged(&mut self) -> Vec<Example> {
        let lengthy = match self {
            Self::Draft(lengthy) => lengthy,
            Self::Lookup(policy) => policy.inner_mut(),
        };
        match lengthy {
            Lengthy::Constant(_) => Vec::new(),
            Lengthy::Adapted(adapted) => adapted.judged.take().unwrap_or_default(),
        }
    }

    fn inner(&mut self) -> &mut dyn DraftPolicy {
        match self {
            Self::Draft(lengthy) => lengthy,
            Self::Lookup(policy) => policy.as_mut(),
        }
    }
}

impl Lengthy {
    fn inner(&mut self) -> &mut dyn DraftPolicy {
        match self {
            Self::Constant(policy) => policy,
            Self::Adapted(policy) => policy.as_mut(),
        }
    }
}

impl DraftPolicy for Lengthy {
    fn next_len(&mut self) -> usize {
        self.inner().next_len()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.inner().stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.inner().observe(outcome);
    }
}

impl DraftPolicy for Policy {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        self.inner().plan_copy(found)
    }

    fn next_len(&mut self) -> usize {
        self.inner().next_len()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.inner().stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.inner().observe(outcome);
    }
}
