//! The training state of a drafter: weights or adapters, optimiser, examples to replay, running
//! mean.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use adaptive_draft::Agreed;
use distill_loss::{Batch, Example, Replay, Terms};
use lm::{AdamWConfig, Checkpoint, LmError};
use trainer::AdapterState;

use super::error::{OnlineError, Result};
use super::state::weights as files;
use super::weights::{Gradients, LearntWeights};
use experiment::LearnConfig;
use streams::StreamRng;

/// Decoupled weight decay.
const WEIGHT_DECAY: f64 = 0.01;
/// Names of two settings in errors: the option of a command, and the key of a run.
const BLOCKS: &str = "--learn-blocks (learn.blocks of a run)";
const RANK: &str = "--adapter-rank (learn.lora.rank of a run)";
/// Norm that gradients are scaled down to.
const MAX_GRAD_NORM: f64 = 1.0;

/// Numbers of one update.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Number of earlier updates of this drafter.
    pub number: u32,
    /// Number of prompts that it has learnt from, including those of this update.
    pub prompts_seen: u32,
    /// The minimised loss.
    pub loss: f64,
    /// Mean direct term or, for ALM, mean divergence of a chunk, nats; NaN without positions.
    pub direct: f64,
    /// Mean n-gram term, nats; NaN without tokens.
    pub ngram: f64,
    /// Number of positions of the direct term, or of chunks of ALM.
    pub direct_positions: usize,
    /// Number of tokens of the n-gram term.
    pub ngram_tokens: usize,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Seconds of forward and backward.
    pub pass_seconds: f64,
    /// Seconds of the optimiser, and of merging adapters.
    pub step_seconds: f64,
    /// Agreement of the drafter with the text before it learnt from it; only if its last blocks
    /// learn, it does not draft with a running mean, and there was an earlier update.
    pub agreed: Option<Agreed>,
}

/// Training state of one adapter, or of the drafter if all its weights are trained.
struct AdapterTraining {
    /// `None` while the trainer holds the adapter, and without adapters.
    adapter: Option<AdapterState>,
    replay: Replay,
    /// Running mean of the weights, if the drafter decodes with it.
    average: Option<LearntWeights>,
}

/// The learning part of a drafter; it can be moved to another thread.
pub(super) struct DrafterTraining {
    trainer: Gradients,
    config: LearnConfig,
    terms: Terms,
    seed: u64,
    /// Name of the adapter in training.
    name: String,
    adapter_training: AdapterTraining,
    others: BTreeMap<String, AdapterTraining>,
    /// Unused weights, whose memory is reused.
    spare: Option<LearntWeights>,
    /// Number of updates. `prompts`: number of prompts that they learnt from.
    pub(super) updates: u32,
    pub(super) prompts: u32,
    /// Maximum bytes of all examples to replay.
    replay_limit: usize,
}

impl DrafterTraining {
    /// Starts from `checkpoint`. `seed` determines the initial adapters and replay.
    pub(super) fn new(
        checkpoint: &Checkpoint,
        terms: Terms,
        config: LearnConfig,
        seed: u64,
    ) -> Result<Self> {
        let optimizer = AdamWConfig {
            weight_decay: WEIGHT_DECAY,
            max_grad_norm: Some(MAX_GRAD_NORM),
            ..AdamWConfig::default()
        };
        let trainer = Gradients::new(checkpoint, optimizer, &config, adapter_seed(seed, ""));
        let trainer = trainer.map_err(|error| match error {
            LmError::Blocks { .. } => OnlineError::at(BLOCKS)(error),
            LmError::Rank { .. } => OnlineError::at(RANK)(error),
            error => error.into(),
        })?;
        let average = (config.ema > 0.0).then(|| trainer.weights());
        Ok(Self {
            trainer,
            terms,
            seed,
            name: String::new(),
            adapter_training: AdapterTraining {
                adapter: None,
                replay: replay(&config, seed, ""),
                average,
            },
            others: BTreeMap::new(),
            spare: None,
            updates: 0,
            prompts: 0,
            replay_limit: usize::MAX,
            config,
        })
    }

    /// Name of the adapter or of the weights in training; empty until one is
    /// [turned to](Self::turn_to).
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Switches to the adapter called `name`, a new one if there is none yet. Without adapters
    /// there is a single training state, which only takes the name. Returns true if the adapter has
    /// changed.
    pub(super) fn turn_to(&mut self, name: &str) -> Result<bool> {
        if name == self.name {
            return Ok(false);
        }
        if self.config.adapters().is_none() {
            name.clone_into(&mut self.name);
            return Ok(false);
        }
        let mut next = match self.others.remove(name) {
            Some(adapter_training) => adapter_training,
            None => self.fresh_training(name)?,
        };
        if let Some(state) = &mut next.adapter {
            self.trainer.swap_adapter(state)?;
        }
        // The trainer's previous adapter is now in the place of the next one.
        self.adapter_training.adapter = next.adapter.take();
        let last = std::mem::replace(&mut self.adapter_training, next);
        let name = std::mem::replace(&mut self.name, name.to_owned());
        // A training state without a name is that before the first target. It is dropped.
        if !name.is_empty() {
            self.others.insert(name, last);
        }
        Ok(true)
    }

    fn fresh_training(&mut self, name: &str) -> Result<AdapterTraining> {
        let seed = adapter_seed(self.seed, name);
        Ok(AdapterTraining {
            adapter: self.trainer.fresh_adapter(seed),
            replay: replay(&self.config, self.seed, name),
            // Set by the first update, since a new adapter changes nothing.
            average: None,
        })
    }

    /// Writes every adapter, or the weights if there are none, each into a folder of its name, with
    /// the optimiser's state and the running mean. Examples to replay are not kept.
    pub(super) fn save(&mut self, root: &Path, base: &str) -> Result<()> {
        let active = self.name.clone();
        let names: Vec<String> = self.others.keys().cloned().collect();
        for name in names.into_iter().chain([active.clone()]) {
            self.turn_to(&name)?;
            let mean = self.adapter_training.average.as_ref();
            let mean = mean.map(LearntWeights::tensors);
            files::save(root, &name, &self.trainer, base, mean)?;
        }
        self.turn_to(&active)?;
        Ok(())
    }

    /// Loads the files that [`save`](Self::save) wrote. Of several weights those of the present
    /// name are loaded.
    pub(super) fn load(&mut self, root: &Path) -> Result<()> {
        let optimizer = self.trainer.optimizer().config();
        let model = self.trainer.config().clone();
        let follows = self.config.ema > 0.0;
        if self.config.adapters().is_none() {
            let blocks = self.config.blocks;
            let (weights, optimizer, mean) =
                files::load_weights(root, &self.name, &model, blocks, optimizer)?;
            self.trainer.load(&weights, optimizer)?;
            self.adapter_training.average = follows.then(|| mean.unwrap_or(weights));
            return Ok(());
        }
        for saved in files::load_adapters(root, &model, optimizer)? {
            let state = self.trainer.saved_adapter(&saved.adapter, saved.optimizer);
            let place = format!("{}: `{}`", root.display(), saved.name);
            let state = state.map_err(OnlineError::at(place))?;
            let mut adapter_training = self.fresh_training(&saved.name)?;
            adapter_training.adapter = Some(state);
            adapter_training.average = saved.mean.filter(|_| follows);
            self.others.insert(saved.name, adapter_training);
        }
        // `turn_to` does nothing for the present name, so its adapter goes into training here.
        if let Some(mut own) = self.others.remove(&self.name) {
            if let Some(state) = &mut own.adapter {
                self.trainer.swap_adapter(state)?;
            }
            own.adapter = None;
            self.adapter_training = own;
        }
        Ok(())
    }

    /// Takes back unused weights.
    pub(super) fn give_back(&mut self, weights: LearntWeights) {
        self.spare = Some(weights);
    }

    /// Learns from `fresh` and from replayed examples; `None` if there is nothing to learn from.
    /// If losses or gradients are not finite, the weights stay as they were, and the examples are
    /// dropped: later ones can be learnt from.
    pub(super) fn learn(&mut self, fresh: Vec<Example>) -> Result<Option<(Update, LearntWeights)>> {
        let learnt = self.try_learn(fresh);
        if learnt.is_err() {
            self.trainer.clear_gradient();
        }
        learnt
    }

    fn try_learn(&mut self, mut fresh: Vec<Example>) -> Result<Option<(Update, LearntWeights)>> {
        let began = Instant::now();
        if self.config.likely > 0.0 {
            let (likely, sampled) = (self.config.likely, self.config.sampled);
            let vocabulary = self.trainer.config().vocab_size;
            for (index, example) in (self.prompts..).zip(&mut fresh) {
                let mut rng = StreamRng::new(self.seed, &format!("columns {index}"));
                example.narrow(likely, sampled, vocabulary, &mut rng);
            }
        }
        self.prompts += fresh.iter().filter(|example| !example.goes_on).count() as u32;
        let again = self.adapter_training.replay.draw();
        let batch = Batch::new(&fresh, again, self.terms);
        let mut agreed = None;
        let step = if batch.is_empty() {
            None
        } else {
            let graded = self.trainer.accumulate(&batch)?;
            // Before the first update the present weights are the initial ones. Beside a running
            // mean they are not those that draft.
            let first = match self.updates {
                0 => None,
                _ if self.config.ema > 0.0 => None,
                _ => {
                    // Agreement is that of the direct term; the other one needs all columns.
                    let direct = Batch::new(&fresh, [], self.terms.without_ngrams());
                    match direct.is_empty() {
                        true => None,
                        false => self.trainer.evaluate_first(&direct)?,
                    }
                }
            };
            agreed = first.and_then(|first| {
                Some(Agreed {
                    learner: Batch::agreed(graded)?,
                    frozen: Batch::agreed(first)?,
                    positions: Batch::compared(graded),
                })
            });
            let losses = batch.losses(graded);
            if !losses.loss.is_finite() {
                return Err(OnlineError::Diverged(losses.loss));
            }
            Some((losses, batch.positions(), batch.ngram_tokens()))
        };
        let Some((losses, direct_positions, ngram_tokens)) = step else {
            self.keep(fresh);
            return Ok(None);
        };
        let passed = began.elapsed().as_secs_f64();
        if self.config.ema > 0.0 && self.adapter_training.average.is_none() {
            self.adapter_training.average = Some(self.trainer.weights());
        }
        let stepping = Instant::now();
        let grad_norm = self.trainer.step(self.config.lr)?;
        let step_seconds = stepping.elapsed().as_secs_f64();
        self.keep(fresh);
        self.follow();
        let spare = self.spare.take();
        let weights = match &self.adapter_training.average {
            None => self.trainer.weights_over(spare)?,
            Some(average) => average.clone(),
        };
        let update = Update {
            number: self.updates,
            prompts_seen: self.prompts,
            loss: losses.loss,
            direct: losses.direct,
            ngram: losses.ngram,
            direct_positions,
            ngram_tokens,
            grad_norm,
            seconds: began.elapsed().as_secs_f64(),
            pass_seconds: passed,
            step_seconds,
            agreed,
        };
        self.updates += 1;
        Ok(Some((update, weights)))
    }

    /// Limits the bytes of the examples to replay.
    pub(super) fn limit_replay(&mut self, bytes: usize) {
        self.replay_limit = bytes;
    }

    /// Bytes of the examples to replay, of all adapters together.
    pub(super) fn replay_bytes(&self) -> usize {
        let others = self.others.values().map(|other| other.replay.bytes());
        self.adapter_training.replay.bytes() + others.sum::<usize>()
    }

    /// Keeps examples to replay. If there are too many, the oldest of the adapter with the most are
    /// dropped.
    fn keep(&mut self, examples: Vec<Example>) {
        self.adapter_training.replay.keep(examples);
        let others = self.others.values_mut().map(|other| &mut other.replay);
        let mut all: Vec<&mut Replay> = others.collect();
        all.push(&mut self.adapter_training.replay);
        let mut bytes: usize = all.iter().map(|replay| replay.bytes()).sum();
        while bytes > self.replay_limit {
            let Some(largest) = all.iter_mut().max_by_key(|replay| replay.bytes()) else {
                return;
            };
            bytes -= largest.bytes();
            largest.forget();
            bytes += largest.bytes();
        }
    }

    /// Moves the running mean towards the last weights.
    fn follow(&mut self) {
        let Some(average) = &mut self.adapter_training.average else {
            return;
        };
        let last = self.trainer.weights();
        let share = (1.0 - self.config.ema) as f32;
        for (name, mean) in average.tensors_mut() {
            let Some(tensor) = last.tensors().get(name) else {
                continue;
            };
            for (mean, weight) in mean.data.iter_mut().zip(&tensor.data) {
                *mean += share * (weight - *mean);
            }
        }
    }

    /// The weights to decode with: the last ones or, with `ema`, their running mean.
    pub(super) fn weights(&self) -> LearntWeights {
        match &self.adapter_training.average {
            Some(average) => average.clone(),
            None => self.trainer.weights(),
        }
    }
}

/// An empty replay buffer, whose random stream is named by seed and adapter.
fn replay(config: &LearnConfig, seed: u64, name: &str) -> Replay {
    let rng = StreamRng::new(seed, &format!("replay{name}"));
    Replay::new(config.replay, config.replay_window, rng)
}

/// The seed of an adapter.
fn adapter_seed(seed: u64, name: &str) -> u64 {
    let mut rng = StreamRng::new(seed, &format!("adapter {name}"));
    let half = |rng: &mut StreamRng| rng.below(1 << 32) as u64;
    half(&mut rng) << 32 | half(&mut rng)
}
