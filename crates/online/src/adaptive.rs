//! What an arm knows about how long to draft: its acceptance head, its chains, the plans made of
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adaptive_draft::{
    Chain, Costs, Example, Head, HeadConfig, HeadReport, HeadTrainer, LabelRecorder, MeasuredCosts,
    Plan, SCALARS, Score,
};
use anyhow::{Context, Result, bail};
use spec_decode::{DraftPolicy, RoundOutcome};

use super::relabel::{Drafts, JudgedDraft};
use super::state;
use experiment::{ArmConfig, DecodeConfig, HeadLabels, HeadTraining, PolicyName, Scope};

/// Heads inside an arm's state, a folder each.
const HEADS: &str = "heads";
/// The training of a head inside its folder.
const HEAD: &str = "head.safetensors";
/// What throughput rules know, inside the folder of a head.
const CHAINS: &str = "chains.txt";

/// Numbers of one step of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadUpdate {
    /// What the trainer says.
    pub report: HeadReport,
    /// Prompts of the stream answered before it.
    pub prompts_seen: u32,
    /// Wall time.
    pub seconds: f64,
}

/// Makes examples of drafts by the drafter as it is now.
pub(super) type Again<'a> = &'a mut dyn FnMut(&[&JudgedDraft]) -> Result<Vec<Example>>;

/// What is known of the drafter beside one target, or one of its tasks (B.3 of the paper: heads are
/// switched with the adapters).
#[derive(Clone)]
struct Knowledge {
    trainer: Option<HeadTrainer>,
    /// One for each score that this arm's policy, or that of a guest, reads.
    chains: Vec<Chain>,
    /// What the head learns from where its labels follow the drafter.
    drafts: Drafts,
}

/// The drafting half of an arm's state.
pub(super) struct Adaptive {
    training: HeadTraining,
    labels: HeadLabels,
    /// What has knowledge of its own.
    per: Scope,
    /// Whose knowledge is in use.
    name: String,
    known: Knowledge,
    /// That of the others, by name.
    others: BTreeMap<String, Knowledge>,
    /// What every knowledge starts from.
    fresh: Knowledge,
    plans: BTreeMap<(Score, usize), Arc<Plan>>,
    costs: Costs,
    /// Costs of rounds as measured, by target; `None` if decisions follow the given costs.
    measured: Option<BTreeMap<String, MeasuredCosts>>,
    /// Name of the target in use.
    target: String,
    unjudged: bool,
    /// Prompts between two steps of a head whose drafter does not learn.
    every: usize,
    prompts: u32,
    settings: HeadConfig,
    seed: u64,
}

impl Adaptive {
    /// The state `arm` starts from; `width` is that of the drafter's hidden state. `guests`
    /// answer held-out prompts from it too.
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
                    Some(path) => Head::load(path).context("head.path")?,
                    None => Head::new(features, arm.head.settings().hidden, seed),
                };
                if head.features() != features {
                    bail!(
                        "head.path: the head reads {} features, the drafter has {features}",
                        head.features()
                    );
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
            training: arm.head.training,
            labels: arm.head.labels,
            per: arm.head.per,
            name: String::new(),
            known: fresh.clone(),
            others: BTreeMap::new(),
            fresh,
            plans: BTreeMap::new(),
            costs: (&arm.decode.costs).into(),
            measured: arm.decode.costs.measured.then(BTreeMap::new),
            target: String::new(),
            unjudged: arm.head.unjudged,
            every: arm.learn.every,
            prompts: 0,
            settings: arm.head.settings(),
            seed,
        })
    }

    /// Goes on with the head and the chains that belong to a target and a task.
    pub(super) fn turn_to(&mut self, target: &str, task: &str) {
        target.clone_into(&mut self.target);
        let name = self.per.key(target, task);
        if name == self.name {
            return;
        }
        let next = self
            .others
            .remove(&name)
            .unwrap_or_else(|| self.fresh.clone());
        let last = std::mem::replace(&mut self.known, next);
        let before = std::mem::replace(&mut self.name, name);
        // The one without a name only stood for the start.
        if !before.is_empty() {
            self.others.insert(before, last);
        }
        self.plans.clear();
    }

    /// Whether proposals behind the first rejected one are to be scored.
    pub(super) fn scores_unjudged(&self) -> bool {
        self.unjudged && self.training.is_online()
    }

    /// What decisions weigh.
    pub(super) fn costs(&self) -> Costs {
        let measured = self.measured.as_ref();
        let measured = measured.and_then(|targets| targets.get(&self.target));
        measured.map_or_else(|| self.costs.clone(), |found| found.costs(&self.costs))
    }

    /// Takes in what the rounds of a response took, copied ones too.
    pub(super) fn measure(&mut self, rounds: &[RoundOutcome]) {
        if let Some(targets) = &mut self.measured {
            let measured = targets.entry(self.target.clone()).or_default();
            rounds.iter().for_each(|round| measured.observe(round));
        }
    }

    /// The policy of one response; what it drafts on the stream is learnt from.
    pub(super) fn policy<'a>(
        &'a mut self,
        decode: &DecodeConfig,
        streamed: bool,
        examples: &'a mut Vec<Example>,
    ) -> Result<Box<dyn DraftPolicy + 'a>> {
        if self.measured.is_some() {
            self.plans.clear();
        }
        let plan = match decode.policy {
            PolicyName::Throughput => self.plan(decode.score, decode.k),
            _ => None,
        };
        let head = self.known.trainer.as_ref().map(HeadTrainer::head);
        let policy = decode.draft_policy(head, plan, streamed)?;
        let collects = self.training.is_online();
        if !streamed || (!collects && self.known.chains.is_empty()) {
            return Ok(policy);
        }
        self.plans.clear();
        let examples = collects.then_some(examples);
        let chains = &mut self.known.chains;
        Ok(Box::new(LabelRecorder::new(
            policy,
            head,
            chains,
            examples,
            self.unjudged,
        )))
    }

    /// The best rule for what the chain of this score has seen. Made once where nothing changes.
    fn plan(&mut self, score: Score, longest: usize) -> Option<Arc<Plan>> {
        let chain = self
            .known
            .chains
            .iter()
            .find(|chain| chain.score() == score)?;
        let costs = self.costs();
        let plans = &mut self.plans;
        let made = || Arc::new(Plan::new(chain, &costs, longest));
        let plan = plans.entry((score, longest)).or_insert_with(made);
        Some(Arc::clone(plan))
    }

    /// Whether drafts are read again when the head is trained.
    pub(super) fn relabels(&self) -> bool {
        self.training.is_online() && self.labels == HeadLabels::Current
    }

    /// Takes in the judged tokens of a streamed prompt, and the drafts to be read again.
    pub(super) fn take_in(&mut self, examples: Vec<Example>, drafts: Vec<JudgedDraft>) {
        let most = self.settings.buffer;
        self.known.drafts.extend(drafts, most);
        self.prompts += 1;
        if let Some(trainer) = &mut self.known.trainer {
            trainer.extend(examples);
        }
    }

    /// Writes chains, if a policy reads any, and heads' training, if the stream trains one.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let active = std::iter::once((&self.name, &self.known));
        for (name, known) in active.chain(&self.others) {
            let trainer = known.trainer.as_ref().filter(|_| self.training.is_online());
            if known.chains.is_empty() && trainer.is_none() {
                continue;
            }
            let folder = folder.join(HEADS).join(state::file_name(name));
            state::write_name(&folder, name)?;
            if !known.chains.is_empty() {
                Chain::save(&known.chains, &folder.join(CHAINS))?;
            }
            if let Some(trainer) = trainer {
                trainer.save(&folder.join(HEAD))?;
            }
        }
        Ok(())
    }

    /// Goes on with what [`save`](Self::save) wrote; to be called before anything is turned to.
    /// Chains of scores that nobody read then start anew.
    pub(super) fn load(&mut self, folder: &Path) -> Result<()> {
        let saved = state::named_folders(&folder.join(HEADS))?;
        if saved.is_empty() && self.training.is_online() {
            bail!("{}: no acceptance head was saved here", folder.display());
        }
        for (name, folder) in saved {
            let known = self.load_one(&folder)?;
            if name == self.name {
                self.known = known;
            } else {
                self.others.insert(name, known);
            }
        }
        self.plans.clear();
        Ok(())
    }

    fn load_one(&self, folder: &Path) -> Result<Knowledge> {
        let mut known = self.fresh.clone();
        if !known.chains.is_empty() {
            let path = folder.join(CHAINS);
            let saved = match path.is_file() {
                true => Chain::load(&path)?,
                false => Vec::new(),
            };
            for chain in &mut known.chains {
                match saved.iter().find(|saved| saved.score() == chain.score()) {
                    Some(saved) => *chain = saved.clone(),
                    None => tracing::warn!(
                        state = %folder.display(),
                        "no drafts were recorded for the throughput rule by {:?}: it starts without knowledge",
                        chain.score()
                    ),
                }
            }
        }
        if let Some(trainer) = known.trainer.as_mut().filter(|_| self.training.is_online()) {
            let features = trainer.head().features();
            let saved = HeadTrainer::load(&folder.join(HEAD), self.settings, self.seed)?;
            if saved.head().features() != features {
                bail!("the saved head belongs to another drafter");
            }
            *trainer = saved;
        }
        Ok(known)
    }

    /// Prompts streamed so far.
    pub(super) fn prompts(&self) -> u32 {
        self.prompts
    }

    /// Counts on from there.
    pub(super) fn count_from(&mut self, prompts: u32) {
        self.prompts = prompts;
    }

    /// Trains the head if it is its turn behind a streamed prompt, after which the drafter was
    /// `distilled` or not, or has no learner (`None`). At the `end` of a stream joint training
    /// takes what is left.
    /// `again` makes examples of drafts where labels follow the drafter.
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
        let joint = self.training == HeadTraining::Joint && (end || distilled.unwrap_or(due));
        let interleaved =
            self.training == HeadTraining::Interleaved && !end && distilled != Some(true);
        let drafts = &mut self.known.drafts;
        let report = match (self.labels, joint, interleaved) {
            (HeadLabels::Recorded, true, _) => trainer.step_on_fresh()?,
            (HeadLabels::Recorded, _, true) => trainer.step_on_buffer()?,
            (HeadLabels::Current, true, _) => {
                let drafts = drafts.fresh().collect::<Vec<_>>();
                trainer.step_on(&again(&drafts)?)?
            }
            (HeadLabels::Current, _, true) => {
                let drawn = drafts.draw(self.settings.batch, self.seed, trainer.steps());
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
