//! The drafter's updates (Algorithm 2): a buffer of lessons, one optimiser step when it is full.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::Result;
use lm::{AdamWConfig, Checkpoint, Trainer};

use super::batch::Batch;
use super::lesson::Lesson;
use crate::learn::{LearnConfig, Terms};
use crate::streams::StreamRng;

/// Numbers of one update.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Updates of this drafter before this one.
    pub number: u32,
    /// Prompts it has learned from, this update's included.
    pub prompts_seen: u32,
    /// What was minimised.
    pub loss: f64,
    /// Mean direct term or, for ALM, mean divergence of a chunk, nats; NaN without positions.
    pub direct: f64,
    /// Mean n-gram term, nats; NaN without tokens.
    pub ngram: f64,
    /// Positions of the direct term, or chunks of ALM.
    pub direct_positions: usize,
    /// Tokens of the n-gram term.
    pub ngram_tokens: usize,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Wall time.
    pub seconds: f64,
}

/// A drafter that learns.
pub struct Learner {
    trainer: Trainer,
    config: LearnConfig,
    terms: Terms,
    buffer: Vec<Lesson>,
    replay: Replay,
    /// Running mean of the weights, if it is what decodes.
    average: Option<Checkpoint>,
    updates: u32,
    prompts: u32,
}

impl Learner {
    /// Starts from `checkpoint`; `seed` decides what is replayed.
    ///
    /// # Errors
    /// Settings without a loss, a checkpoint the trainer cannot take.
    pub fn new(checkpoint: &Checkpoint, config: LearnConfig, seed: u64) -> Result<Self> {
        let optimizer = AdamWConfig {
            weight_decay: config.weight_decay,
            max_grad_norm: Some(config.max_grad_norm),
            ..AdamWConfig::default()
        };
        Ok(Self {
            trainer: Trainer::new(checkpoint, optimizer)?,
            terms: config.terms()?,
            buffer: Vec::new(),
            replay: Replay::new(&config, seed),
            average: (config.ema > 0.0).then(|| checkpoint.clone()),
            updates: 0,
            prompts: 0,
            config,
        })
    }

    /// What it minimises, which is what lessons must hold.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Adds a lesson; with the `every`-th one, takes a step and returns the weights to decode with.
    ///
    /// # Errors
    /// Losses or gradients that are not finite.
    pub fn push(&mut self, lesson: Lesson) -> Result<Option<(Update, Checkpoint)>> {
        self.buffer.push(lesson);
        if self.buffer.len() < self.config.every {
            Ok(None)
        } else {
            self.flush()
        }
    }

    /// Takes a step on whatever is buffered, if anything.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn flush(&mut self) -> Result<Option<(Update, Checkpoint)>> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let fresh = std::mem::take(&mut self.buffer);
        self.prompts += fresh.len() as u32;
        let began = Instant::now();
        let again = self.replay.draw();
        let lessons = fresh
            .iter()
            .chain(again.iter().map(|i| &self.replay.kept[*i]));
        let batch = Batch::new(lessons.collect(), self.terms);
        let step = if batch.is_empty() {
            None
        } else {
            let graded = self.trainer.accumulate(&batch.sequences(), &batch)?;
            let (direct, ngram, loss) = batch.losses(graded);
            anyhow::ensure!(
                loss.is_finite(),
                "the distillation loss is {loss}; lower learn.lr"
            );
            let counts = (batch.positions, batch.ngram_tokens);
            Some((direct, ngram, loss, counts))
        };
        self.replay.keep(fresh);
        let Some((direct, ngram, loss, (direct_positions, ngram_tokens))) = step else {
            return Ok(None);
        };
        let grad_norm = self.trainer.step(self.config.lr)?;
        let weights = self.decoding_weights();
        let update = Update {
            number: self.updates,
            prompts_seen: self.prompts,
            loss,
            direct,
            ngram,
            direct_positions,
            ngram_tokens,
            grad_norm,
            seconds: began.elapsed().as_secs_f64(),
        };
        self.updates += 1;
        Ok(Some((update, weights)))
    }

    /// The last weights or, with `ema`, their running mean moved towards them.
    fn decoding_weights(&mut self) -> Checkpoint {
        let last = self.trainer.checkpoint();
        let Some(average) = &mut self.average else {
            return last;
        };
        let share = (1.0 - self.config.ema) as f32;
        for (name, mean) in &mut average.tensors {
            let Some(tensor) = last.tensors.get(name) else {
                continue;
            };
            for (mean, weight) in mean.data.iter_mut().zip(&tensor.data) {
                *mean += share * (weight - *mean);
            }
        }
        average.clone()
    }
}

/// The latest lessons, some of which an update sees once more.
struct Replay {
    count: usize,
    window: usize,
    kept: VecDeque<Lesson>,
    rng: StreamRng,
}

impl Replay {
    fn new(config: &LearnConfig, seed: u64) -> Self {
        Self {
            count: config.replay,
            window: config.replay_window,
            kept: VecDeque::new(),
            rng: StreamRng::new(seed, "replay"),
        }
    }

    /// Indices of distinct lessons, all alike likely.
    fn draw(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.kept.len()).collect();
        if self.count > 0 {
            self.rng.shuffle(&mut order);
        }
        order.truncate(self.count);
        order
    }

    fn keep(&mut self, lessons: Vec<Lesson>) {
        if self.count == 0 {
            return;
        }
        self.kept.extend(lessons);
        let excess = self.kept.len().saturating_sub(self.window);
        self.kept.drain(..excess);
    }
}
