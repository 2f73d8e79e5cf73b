//! What an arm knows about how long to draft: its acceptance head, its chains, the plans made of
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adaptive_draft::{
    Chain, CostMeter, Costs, Example, Head, HeadConfig, HeadReport, HeadTrainer, LabelRecorder,
    MeasuredCosts, Plan, SCALARS, Score,
};
use anyhow::{Context, Result, bail};
use spec_decode::DraftPolicy;

use experiment::{ArmConfig, DecodeConfig, HeadTraining, PolicyName};

/// The training of a head inside an arm's state.
const HEAD: &str = "head.safetensors";
/// What throughput rules know, inside an arm's state.
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

/// The drafting half of an arm's state.
pub(super) struct Adaptive {
    training: HeadTraining,
    trainer: Option<HeadTrainer>,
    /// One for each score that this arm's policy, or that of a guest, reads.
    chains: Vec<Chain>,
    plans: BTreeMap<(Score, usize), Arc<Plan>>,
    costs: Costs,
    /// What rounds were found to take, where decisions follow that.
    measured: Option<MeasuredCosts>,
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
                    None => Head::new(features, arm.head.hidden, seed),
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
            .map(|arm| arm.decode.score.into())
            .collect();
        scores.sort_unstable();
        scores.dedup();
        Ok(Self {
            training: arm.head.training,
            trainer,
            chains: scores.into_iter().map(Chain::new).collect(),
            plans: BTreeMap::new(),
            costs: (&arm.decode.costs).into(),
            measured: arm.decode.costs.measured.then(MeasuredCosts::default),
            unjudged: arm.head.unjudged,
            every: arm.learn.every,
            prompts: 0,
            settings: arm.head.settings(),
            seed,
        })
    }

    /// Whether proposals behind the first rejected one are to be scored.
    pub(super) fn scores_unjudged(&self) -> bool {
        self.unjudged && self.training.is_online()
    }

    /// What decisions weigh.
    pub(super) fn costs(&self) -> Costs {
        let measured = self.measured.as_ref();
        measured.map_or_else(|| self.costs.clone(), |found| found.costs(&self.costs))
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
            PolicyName::Throughput => self.plan(decode.score.into(), decode.k),
            _ => None,
        };
        let head = self.trainer.as_ref().map(HeadTrainer::head);
        let policy = decode.draft_policy(head, plan, streamed)?;
        let collects = self.training.is_online();
        let policy: Box<dyn DraftPolicy + 'a> = match &mut self.measured {
            Some(measured) => Box::new(CostMeter::new(policy, measured)),
            None => policy,
        };
        if !streamed || (!collects && self.chains.is_empty()) {
            return Ok(policy);
        }
        self.plans.clear();
        let examples = collects.then_some(examples);
        let chains = &mut self.chains;
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
        let chain = self.chains.iter().find(|chain| chain.score() == score)?;
        let costs = self.costs();
        let plans = &mut self.plans;
        let made = || Arc::new(Plan::new(chain, &costs, longest));
        let plan = plans.entry((score, longest)).or_insert_with(made);
        Some(Arc::clone(plan))
    }

    /// Takes in the judged tokens of a streamed prompt.
    pub(super) fn take_in(&mut self, examples: Vec<Example>) {
        self.prompts += 1;
        if let Some(trainer) = &mut self.trainer {
            trainer.extend(examples);
        }
    }

    /// Writes the chains, if a policy reads any, and the head's training, if the stream trains one.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        if !self.chains.is_empty() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            Chain::save(&self.chains, &folder.join(CHAINS))?;
        }
        let Some(trainer) = self.trainer.as_ref().filter(|_| self.training.is_online()) else {
            return Ok(());
        };
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        Ok(trainer.save(&folder.join(HEAD))?)
    }

    /// Goes on with what [`save`](Self::save) wrote. Chains of scores that nobody read then start
    /// anew.
    pub(super) fn load(&mut self, folder: &Path) -> Result<()> {
        if !self.chains.is_empty() {
            let path = folder.join(CHAINS);
            let saved = match path.is_file() {
                true => Chain::load(&path)?,
                false => Vec::new(),
            };
            for chain in &mut self.chains {
                match saved.iter().find(|saved| saved.score() == chain.score()) {
                    Some(saved) => *chain = saved.clone(),
                    None => tracing::warn!(
                        state = %folder.display(),
                        "no drafts were recorded for the throughput rule by {:?}: it starts without knowledge",
                        chain.score()
                    ),
                }
            }
            self.plans.clear();
        }
        if !self.training.is_online() {
            return Ok(());
        }
        if let Some(trainer) = &mut self.trainer {
            let features = trainer.head().features();
            let saved = HeadTrainer::load(&folder.join(HEAD), self.settings, self.seed)?;
            if saved.head().features() != features {
                bail!("the saved head belongs to another drafter");
            }
            *trainer = saved;
        }
        Ok(())
    }

    /// Trains the head if it is its turn behind a streamed prompt, after which the drafter was
    /// `distilled` or not, or has no learner (`None`). At the `end` of a stream joint training
    /// takes what is left.
    pub(super) fn train(
        &mut self,
        distilled: Option<bool>,
        end: bool,
    ) -> Result<Option<HeadUpdate>> {
        let Some(trainer) = self.trainer.as_mut() else {
            return Ok(None);
        };
        let began = Instant::now();
        let due = self.prompts.is_multiple_of(self.every as u32);
        let report = match self.training {
            HeadTraining::Joint if end || distilled.unwrap_or(due) => trainer.step_on_fresh()?,
            HeadTraining::Interleaved if !end && distilled != Some(true) => {
                trainer.step_on_buffer()?
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
