//! An arm's knowledge of draft lengths: its acceptance head, its chains, and the plans made from
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use adaptive_draft::{
    Chain, Costs, Example, Head, HeadReport, HeadTrainer, LabelRecorder, Plan, SCALARS, Score,
};
use spec_decode::DraftPolicy;

use super::error::{OnlineError, Result};
use super::relabel::{Drafts, JudgedDraft};
use super::state::{ArmState, Generation, SavedState};
use experiment::{ArmConfig, DecodeConfig, HeadLabels, HeadOptions, HeadTraining, PolicyName};

/// Numbers of one training step of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadUpdate {
    /// The trainer's report.
    pub report: HeadReport,
    /// Number of prompts of the stream answered before it.
    pub prompts_seen: u32,
    /// Wall time.
    pub seconds: f64,
}

/// Makes examples of recorded drafts with the present drafter.
pub(super) type Again<'a> = &'a mut dyn FnMut(&[&JudgedDraft]) -> Result<Vec<Example>>;

/// Statistics of the drafter for one target, or for one of its tasks (B.3 of the paper: heads are
/// switched with the adapters).
#[derive(Clone)]
struct Knowledge {
    trainer: Option<HeadTrainer>,
    /// One chain for each score that the policy of this arm or of a guest reads.
    chains: Vec<Chain>,
    /// Drafts that the head learns from if its labels follow the drafter.
    drafts: Drafts,
}

/// The drafting half of an arm's state.
pub(super) struct Adaptive {
    /// Settings of the head. Its `per` (run, target or task) applies to all statistics.
    head: HeadOptions,
    /// Name of the statistics in use.
    name: String,
    known: Knowledge,
    /// The other statistics, by name.
    others: BTreeMap<String, Knowledge>,
    /// Initial statistics.
    fresh: Knowledge,
    plans: BTreeMap<(Score, usize), Arc<Plan>>,
    /// True if decisions follow measured costs, which change with every answer.
    measured: bool,
    /// Number of prompts between two training steps of a head whose drafter does not learn.
    every: usize,
    /// Number of prompts streamed so far.
    pub(super) prompts: u32,
    seed: u64,
}

impl Adaptive {
    /// The initial state of `arm`; `width` is the length of the drafter's hidden state. `guests`
    /// are arms that answer held-out prompts with this state as well.
    pub(super) fn new(
        arm: &ArmConfig,
        guests: &[&ArmConfig],
        width: usize,
        seed: u64,
    ) -> Result<Self> {
        let features = width + SCALARS;
        let trainer = match arm.head.training {
            HeadTraining::None => None,
            _ => {
                let head = match &arm.head.path {
                    Some(path) => Head::load(path).map_err(OnlineError::at("head.path"))?,
                    None => Head::new(features, arm.head.settings().hidden, seed),
                };
                if head.features() != features {
                    return Err(OnlineError::Features {
                        head: head.features(),
                        drafter: features,
                    });
                }
                Some(HeadTrainer::new(head, arm.head.settings(), seed))
            }
        };
        let mut scores: Vec<Score> = std::iter::once(arm)
            .chain(guests.iter().copied())
            .filter(|arm| arm.decode.policy == PolicyName::Throughput)
            .map(|arm| arm.decode.score)
            .collect();
        scores.sort_unstable();
        scores.dedup();
        let fresh = Knowledge {
            trainer,
            chains: scores.into_iter().map(Chain::new).collect(),
            drafts: Drafts::default(),
        };
        Ok(Self {
            head: arm.head.clone(),
            name: String::new(),
            known: fresh.clone(),
            others: BTreeMap::new(),
            fresh,
            plans: BTreeMap::new(),
            measured: arm.decode.costs.measured,
            every: arm.learn.every,
            prompts: 0,
            seed,
        })
    }

    /// Switches to the head and the chains of a target and a task.
    pub(super) fn turn_to(&mut self, target: &str, task: &str) {
        let name = self.head.per.key(target, task);
        if name == self.name {
            return;
        }
        let next = self
            .others
            .remove(&name)
            .unwrap_or_else(|| self.fresh.clone());
        let last = std::mem::replace(&mut self.known, next);
        let before = std::mem::replace(&mut self.name, name);
        // Statistics without a name are those before the first target. They are dropped.
        if !before.is_empty() {
            self.others.insert(before, last);
        }
        self.plans.clear();
    }

    /// The policy of one response, by the present `costs`. If it is `streamed`, its drafts are
    /// recorded for the chains, and as `examples` if the stream trains the head.
    pub(super) fn policy<'a>(
        &'a mut self,
        decode: &DecodeConfig,
        costs: &Costs,
        streamed: bool,
        examples: &'a mut Vec<Example>,
    ) -> Result<Box<dyn DraftPolicy + 'a>> {
        if self.measured {
            self.plans.clear();
        }
        let plan = match decode.policy {
            PolicyName::Throughput => self.plan(decode.score, costs, decode.k),
            _ => None,
        };
        let head = self.known.trainer.as_ref().map(HeadTrainer::head);
        let policy = decode.draft_policy(head, plan, streamed)?;
        let collects = self.head.training.is_online();
        if !streamed || (!collects && self.known.chains.is_empty()) {
            return Ok(policy);
        }
        self.plans.clear();
        let examples = collects.then_some(examples);
        let chains = &mut self.known.chains;
        Ok(Box::new(LabelRecorder::new(policy, head, chains, examples)))
    }

    /// The best plan for the present chain of this score. It is kept until the chain or the costs
    /// may have changed.
    fn plan(&mut self, score: Score, costs: &Costs, longest: usize) -> Option<Arc<Plan>> {
        let chain = self
            .known
            .chains
            .iter()
            .find(|chain| chain.score() == score)?;
        let plans = &mut self.plans;
        let made = || Arc::new(Plan::new(chain, costs, longest));
        let plan = plans.entry((score, longest)).or_insert_with(made);
        Some(Arc::clone(plan))
    }

    /// True if drafts are read again when the head is trained.
    pub(super) fn relabels(&self) -> bool {
        self.head.training.is_online() && self.head.labels == HeadLabels::Current
    }

    /// Adds the examples of a streamed prompt, and the drafts that are to be read again.
    pub(super) fn take_in(&mut self, examples: Vec<Example>, drafts: Vec<JudgedDraft>) {
        let most = self.head.settings().buffer;
        self.known.drafts.extend(drafts, most);
        self.prompts += 1;
        if let Some(trainer) = &mut self.known.trainer {
            trainer.extend(examples);
        }
    }

    fn all(&self) -> impl Iterator<Item = (&String, &Knowledge)> {
        std::iter::once((&self.name, &self.known)).chain(&self.others)
    }

    /// The chains in use, by name.
    pub(super) fn chains(&self) -> BTreeMap<String, Vec<Chain>> {
        let used = self.all().filter(|(_, known)| !known.chains.is_empty());
        let chains = |(name, known): (&String, &Knowledge)| (name.clone(), known.chains.clone());
        used.map(chains).collect()
    }

    /// Forgets the drafts that the head would learn from.
    pub(super) fn forget_drafts(&mut self) {
        self.known.drafts = Drafts::default();
    }

    /// Writes the heads, if the stream trains any.
    pub(super) fn save_heads(&self, to: &Generation<'_>) -> Result<()> {
        for (name, known) in self.all().filter(|_| self.head.training.is_online()) {
            if let Some(trainer) = &known.trainer {
                to.head(name, trainer)?;
            }
        }
        Ok(())
    }

    /// Continues from a state; to be called before the first [`turn_to`](Self::turn_to). Chains of
    /// scores that were not in use then start anew.
    pub(super) fn load(&mut self, saved: &SavedState, known: &ArmState) -> Result<()> {
        let trains = self.head.training.is_online();
        let heads = match trains {
            true => saved.heads()?,
            false => Vec::new(),
        };
        if heads.is_empty() && trains {
            return Err(OnlineError::Lacking("no acceptance head was saved"));
        }
        let names: BTreeSet<&String> = heads.iter().chain(known.chains.keys()).collect();
        for name in names {
            let mut own = self.fresh.clone();
            let chains = known.chains.get(name).map_or(&[][..], Vec::as_slice);
            for chain in &mut own.chains {
                match chains.iter().find(|saved| saved.score() == chain.score()) {
                    Some(saved) => *chain = saved.clone(),
                    None => tracing::warn!(
                        head = name,
                        "no drafts were recorded for the throughput rule by {:?}: it starts without knowledge",
                        chain.score()
                    ),
                }
            }
            if let Some(trainer) = own.trainer.as_mut().filter(|_| trains) {
                let features = trainer.head().features();
                let saved = saved.head(name, features, self.head.settings(), self.seed)?;
                *trainer = saved.ok_or_else(|| OnlineError::NoHead(name.clone()))?;
            }
            if *name == self.name {
                self.known = own;
            } else {
                self.others.insert(name.clone(), own);
            }
        }
        self.plans.clear();
        Ok(())
    }

    /// Trains the head if a training step is due after a streamed prompt. `distilled` is true if
    /// that prompt's update has just trained the drafter, `None` if the drafter has no learner. At
    /// the `end` of a stream joint training uses the remaining examples. `again` makes examples of
    /// drafts if labels follow the drafter.
    pub(super) fn train(
        &mut self,
        distilled: Option<bool>,
        end: bool,
        again: Again<'_>,
    ) -> Result<Option<HeadUpdate>> {
        let Some(trainer) = self.known.trainer.as_mut() else {
            return Ok(None);
        };
        let began = Instant::now();
        let due = self.prompts.is_multiple_of(self.every as u32);
        let joint = self.head.training == HeadTraining::Joint && (end || distilled.unwrap_or(due));
        let interleaved =
            self.head.training == HeadTraining::Interleaved && !end && distilled != Some(true);
        let drafts = &mut self.known.drafts;
        let report = match (self.head.labels, joint, interleaved) {
            (HeadLabels::Recorded, true, _) => trainer.step_on_fresh()?,
            (HeadLabels::Recorded, _, true) => trainer.step_on_buffer()?,
            (HeadLabels::Current, true, _) => {
                let drafts = drafts.fresh().collect::<Vec<_>>();
                trainer.step_on(&again(&drafts)?)?
            }
            (HeadLabels::Current, _, true) => {
                let drawn = drafts.draw(self.head.settings().batch, self.seed, trainer.steps());
                trainer.step_on(&again(&drawn.collect::<Vec<_>>())?)?
            }
            _ => None,
        };
        Ok(report.map(|report| HeadUpdate {
            report,
            prompts_seen: self.prompts,
            seconds: began.elapsed().as_secs_f64(),
        }))
    }
}
