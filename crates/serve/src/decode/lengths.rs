//! How long drafts are.

use std::sync::Arc;

use adaptive_draft::{
    Chain, CopyOrDraft, CopyRecord, Costs, DraftSignal, MeasuredCosts, Plan, Score, Throughput,
};
use spec_decode::{ConstantLength, CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

/// Rounds after which a plan is made anew.
const STALE: usize = 64;
/// Of so many rounds of an answer, the first is as long as possible, to see what else would not be.
const EXPLORE: usize = 16;

/// What is known of the drafter beside one target.
pub(crate) struct Lengths {
    chain: Chain,
    costs: MeasuredCosts,
    plan: Arc<Plan>,
    longest: usize,
    rounds: usize,
}

impl Lengths {
    /// Goes on with a chain that was kept.
    pub(crate) fn new(chain: Option<Chain>, longest: usize) -> Self {
        let chain = chain.unwrap_or_else(|| Chain::new(Score::Confidence));
        let plan = Arc::new(Plan::new(&chain, &Costs::default(), longest));
        Self {
            chain,
            costs: MeasuredCosts::default(),
            plan,
            longest,
            rounds: 0,
        }
    }

    pub(crate) fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Takes in a round. `alone`: its times are its own, since no other sequence was decoded.
    pub(crate) fn observe(&mut self, scores: &[f64], outcome: &RoundOutcome, alone: bool) {
        if outcome.looked_up() > 0 {
            return;
        }
        self.chain.learn(scores, outcome);
        if alone {
            self.costs.observe(outcome);
        }
        self.rounds += 1;
        if self.rounds.is_multiple_of(STALE) {
            let costs = self.costs.costs(&Costs::default());
            self.plan = Arc::new(Plan::new(&self.chain, &costs, self.longest));
        }
    }

    /// The policy of an answer.
    pub(crate) fn policy(&self) -> Adapted {
        let plan = Arc::clone(&self.plan);
        Adapted {
            inner: Throughput::new(plan, None, true, Some(EXPLORE)),
            scores: Vec::new(),
        }
    }
}

/// Drafts by a plan, and keeps the scores of a round.
pub(crate) struct Adapted {
    inner: Throughput<'static>,
    scores: Vec<f64>,
}

impl DraftPolicy for Adapted {
    fn next_len(&mut self) -> usize {
        self.scores.clear();
        self.inner.next_len()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let signal = DraftSignal::of(step.token, step.logits);
        self.scores.push(signal.probability());
        self.inner.stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.inner.observe(outcome);
    }
}

/// The draft lengths of an answer.
pub(crate) enum Lengthy {
    Constant(ConstantLength),
    Adapted(Box<Adapted>),
}

/// The policy of an answer: how long to draft and, with looking up, what to copy.
pub(crate) enum Policy {
    Draft(Lengthy),
    /// What copies are worth is learnt anew in every answer: nothing of one shows in another.
    Lookup(Box<CopyOrDraft<Box<CopyRecord>, Lengthy>>),
}

impl Policy {
    pub(crate) fn new(lengthy: Lengthy, lookup: bool) -> Self {
        match lookup {
            false => Self::Draft(lengthy),
            true => {
                let record = Box::<CopyRecord>::default();
                let costs = Costs::default();
                Self::Lookup(Box::new(CopyOrDraft::new(
                    lengthy,
                    record,
                    costs,
                    true,
                    Some(EXPLORE),
                )))
            }
        }
    }

    /// Scores of the tokens drafted last, where lengths are adapted.
    pub(crate) fn scores(&self) -> &[f64] {
        let lengthy = match self {
            Self::Draft(lengthy) => lengthy,
            Self::Lookup(policy) => policy.inner(),
        };
        match lengthy {
            Lengthy::Constant(_) => &[],
            Lengthy::Adapted(adapted) => &adapted.scores,
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
