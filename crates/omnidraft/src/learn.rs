//! Options of learning, and the learner that a session holds.

use distill_loss::{DirectLoss, NgramLoss};
use experiment::{LearnConfig, ObjectiveName};
use online::{Learner, LearntWeights};

use crate::Source;

/// Settings of learning: hybrid distillation (the paper's Eq. 3-4) with the forward divergence at
/// tokens that both vocabularies have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnOptions {
    /// Number of answers per update, at least 1 (the paper's I).
    pub every: usize,
    /// Learning rate of AdamW, constant; at least 0.
    pub learning_rate: f64,
    /// Weight of the n-gram term (the paper's lambda), at least 0.
    pub lambda: f64,
    /// Number of last blocks that learn, in a fraction of the time of all; 0 for all.
    pub blocks: usize,
    /// Number of earlier answers in every update.
    pub replay: usize,
    /// Seed of the draws from earlier answers.
    pub seed: u64,
}

impl Default for LearnOptions {
    fn default() -> Self {
        Self {
            every: 4,
            learning_rate: 2e-3,
            lambda: distill_loss::PAPER_LAMBDA,
            blocks: 0,
            replay: 16,
            seed: 0,
        }
    }
}

impl LearnOptions {
    /// Settings of the learner.
    ///
    /// # Errors
    /// The options that are outside their ranges.
    pub(crate) fn config(self) -> Result<LearnConfig, String> {
        let defaults = LearnConfig::default();
        let config = LearnConfig {
            objective: ObjectiveName::Hybrid,
            direct: Some(DirectLoss::ForwardKl),
            ngram: Some(NgramLoss::Nll),
            lambda: self.lambda,
            every: self.every,
            lr: self.learning_rate,
            blocks: self.blocks,
            replay: self.replay,
            replay_window: self.replay.max(defaults.replay_window),
            ..defaults
        };
        let wrongs = config.wrongs().into_iter().map(|(key, fault)| {
            let option = match key.as_str() {
                "learn.lr" => "learning_rate",
                other => other.trim_start_matches("learn."),
            };
            format!("{option}: {fault}")
        });
        let wrongs: Vec<String> = wrongs.collect();
        match wrongs.is_empty() {
            true => Ok(config),
            false => Err(wrongs.join("; ")),
        }
    }
}

/// The learner of a session.
pub(crate) struct Learning<D> {
    pub(crate) learner: Learner,
    /// Largest number of tokens in an example.
    pub(crate) positions: usize,
    /// Decodes with new weights from now on.
    pub(crate) load: fn(&mut D, LearntWeights) -> Result<(), Source>,
    /// Reads a text and returns the inputs of the first block that learns.
    pub(crate) states: fn(&mut D, &[u32]) -> Result<Vec<f32>, Source>,
    pub(crate) updates: usize,
}
