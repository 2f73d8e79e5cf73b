//! `omnidraft bench learn`: costs of learning.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use cpu_engine::{CpuEngine, EngineOptions};
use distill_loss::{Chunk, Example, TeacherRow};
use lm::host::Products;
use lm::{Checkpoint, LoraConfig, Projections, WeightType, random_checkpoint, tail_tensors};
use serde::Serialize;

use super::{What, shape_config};
use crate::args::ThreadArgs;
use crate::print_as;
use experiment::{LearnConfig, LoraSettings, ObjectiveName};
use hub::local_folder;
use models::step::median;
use online::{Learner, LearntWeights};
use streams::StreamRng;

/// Period of n-grams: one of so many stretches of a synthetic response has `NGRAM` draft tokens.
const NGRAM_EVERY: usize = 10;
const NGRAM: usize = 3;

/// Arguments of `learn`.
#[derive(Debug, Args)]
pub struct LearnArgs {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    updates: Updates,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Settings of updates on random answers.
#[derive(Debug, Args)]
pub(crate) struct Updates {
    /// Responses per update.
    #[arg(long, default_value_t = 8)]
    pub(crate) responses: usize,
    /// Tokens of a response; all but the first are scored.
    #[arg(long, default_value_t = 128)]
    pub(crate) tokens: usize,
    /// Tokens of the prompt in front of it, which are read and not scored.
    #[arg(long, default_value_t = 0)]
    pub(crate) prompt: usize,
    /// Draft tokens shared with the target; the default is that of Llama-68M and Llama-3.
    #[arg(long, default_value_t = 22_416)]
    pub(crate) shared: usize,
    /// Rank of adapters on every projection; 0 trains weights.
    #[arg(long, default_value_t = 0)]
    pub(crate) rank: usize,
    /// Last blocks that learn or have adapters, on states that decoding has computed; 0 for all of them.
    #[arg(long, default_value_t = 0)]
    pub(crate) blocks: usize,
    /// Round the factors of matrix products to bf16.
    #[arg(long)]
    pub(crate) bf16: bool,
    /// Weight format of the engine that the new weights are packed for.
    #[arg(long, default_value_t = WeightType::Int8)]
    pub(crate) weights: WeightType,
    /// Updates that are timed, after one that is not.
    #[arg(long, default_value_t = 5)]
    pub(crate) updates: usize,
}

/// Medians over the updates, in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct LearnReport {
    parameters: usize,
    trained: usize,
    responses: usize,
    prompt: usize,
    tokens: usize,
    shared: usize,
    threads: usize,
    /// Seconds of a whole update, from the examples to new weights.
    pub(crate) update_s: f64,
    /// Forward and backward.
    pass_s: f64,
    /// Seconds of AdamW and, for adapters, of merging.
    step_s: f64,
    /// Seconds of packing the changed weights for the decode engine, after the update.
    pub(crate) pack_s: f64,
}

impl What {
    fn checkpoint(&self) -> Result<Checkpoint> {
        Ok(match (&self.model, &self.shape) {
            (Some(folder), _) => Checkpoint::load(&local_folder(folder)?)?,
            (None, Some(name)) => random_checkpoint(&shape_config(name)?, 1),
            (None, None) => bail!("give --model or --shape"),
        })
    }
}

fn adapters(rank: usize, blocks: usize) -> LoraConfig {
    LoraConfig {
        rank,
        alpha: 32.0,
        projections: Projections::ALL,
        blocks,
    }
}

impl LearnArgs {
    pub(super) fn execute(self) -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads.count());
        let pool = pool.build().context("threads")?;
        if self.updates.responses == 0 || self.updates.updates == 0 {
            bail!("--responses and --updates must be at least 1");
        }
        let report = pool.install(|| self.updates.measure(&self.what.checkpoint()?))?;
        print_as(self.json, &report, |report| {
            format!(
                "{:.1}M parameters, {:.2}M trained; {} responses of {} + {} tokens, {} shared tokens, {} threads\n\
                 update {:.4} s: forward and backward {:.4}, optimiser {:.4}, the rest {:.4}; packing {:.4} s\n",
                report.parameters as f64 / 1e6,
                report.trained as f64 / 1e6,
                report.responses,
                report.prompt,
                report.tokens,
                report.shared,
                report.threads,
                report.update_s,
                report.pass_s,
                report.step_s,
                report.update_s - report.pass_s - report.step_s,
                report.pack_s,
            )
        })
    }
}

impl Updates {
    /// Times the updates on the current thread pool.
    pub(crate) fn measure(&self, checkpoint: &Checkpoint) -> Result<LearnReport> {
        let config = &checkpoint.config;
        let longest = config.max_position_embeddings.saturating_sub(self.prompt);
        if !(2..=longest).contains(&self.tokens) {
            bail!("--tokens {} is outside 2..={longest}", self.tokens);
        }
        if !(1..=config.vocab_size).contains(&self.shared) {
            bail!(
                "--shared {} is outside 1..={}",
                self.shared,
                config.vocab_size
            );
        }
        let learn = LearnConfig {
            objective: ObjectiveName::Hybrid,
            every: self.responses,
            lr: 1e-4,
            blocks: self.blocks,
            products: match self.bf16 {
                true => Products::Bf16,
                false => Products::F32,
            },
            lora: LoraSettings {
                rank: self.rank,
                ..LoraSettings::default()
            },
            ..LearnConfig::default()
        };
        let mut learner = Learner::new(checkpoint, learn, 1)?;
        let mut rng = StreamRng::new(1, "bench learn");
        let options = EngineOptions {
            weights: self.weights,
            threads: rayon::current_num_threads(),
            max_len: self.prompt + self.tokens,
            ..EngineOptions::default()
        };
        let mut engine = CpuEngine::new(checkpoint, options)?;
        if self.blocks > 0 {
            engine.keep_states(self.blocks).context("--blocks")?;
        }
        let (mut whole, mut pass, mut step) = (Vec::new(), Vec::new(), Vec::new());
        let mut pack = Vec::new();
        for round in 0..=self.updates {
            for _ in 0..self.responses {
                let mut example = self.example(config.vocab_size, &mut rng);
                example.states = engine.states_of(example.read())?.to_vec();
                let Some((update, weights)) = learner.push(example)? else {
                    continue;
                };
                let packing = Instant::now();
                match &weights {
                    LearntWeights::Whole(weights) => engine.load_weights(weights)?,
                    LearntWeights::Tail(tail) => engine.load_tail(tail)?,
                }
                let packed_s = packing.elapsed().as_secs_f64();
                learner.give_back(weights);
                if round > 0 {
                    pack.push(packed_s);
                    whole.push(update.seconds);
                    pass.push(update.pass_seconds);
                    step.push(update.step_seconds);
                }
            }
        }
        Ok(LearnReport {
            parameters: config.num_params(),
            trained: match (self.rank, self.blocks) {
                (0, 0) => config.num_params(),
                (0, blocks) => tail_tensors(config, config.num_layers - blocks)
                    .iter()
                    .map(|(_, shape)| shape.iter().product::<usize>())
                    .sum(),
                (rank, blocks) => adapters(rank, blocks).num_params(config),
            },
            responses: self.responses,
            prompt: self.prompt,
            tokens: self.tokens,
            shared: self.shared,
            threads: rayon::current_num_threads(),
            update_s: median(whole),
            pass_s: median(pass),
            step_s: median(step),
            pack_s: median(pack),
        })
    }

    /// Random text with a random distribution at every position.
    fn example(&self, vocab: usize, rng: &mut StreamRng) -> Example {
        let tokens = self.prompt + self.tokens;
        let ids = (0..tokens).map(|_| rng.below(vocab) as u32).collect();
        let shared: Arc<[u32]> = (0..self.shared as u32).collect();
        let mut chunks = Vec::new();
        let mut start = self.prompt + 1;
        while start < tokens {
            let ngram = chunks.len() % NGRAM_EVERY == NGRAM_EVERY - 1;
            let end = (start + if ngram { NGRAM } else { 1 }).min(tokens);
            let law = (0..self.shared).map(|_| -(rng.below(1 << 16) as f32) / 4096.0);
            chunks.push(Chunk {
                draft: start..end,
                targets: 1,
                log_prob: -0.5,
                law: (end - start == 1).then(|| TeacherRow::new(law)),
                own: None,
                special: false,
            });
            start = end;
        }
        Example {
            ids,
            shared,
            chunks,
            ..Example::default()
        }
    }
}
