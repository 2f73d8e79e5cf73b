//! The drafter's updates (Algorithm 2): a buffer of examples, one optimiser step when it is full,
//! taken on the spot or on a thread of its own.

use std::path::Path;
use std::thread::JoinHandle;

use distill_loss::{Example, Terms};
use lm::Checkpoint;

use super::drafter_training::{DrafterTraining, Update};
use super::error::{OnlineError, Result};
use super::needs::Needs;
use super::weights::LearntWeights;
use experiment::{LearnConfig, ObjectiveName};

/// An update with the weights to decode with after it.
pub type Learnt = (Update, LearntWeights);

/// State of the training: here, or on a thread.
enum TrainingPlace {
    Here(Box<DrafterTraining>),
    /// On its own thread, during an update.
    Away(JoinHandle<(Box<DrafterTraining>, Result<Option<Learnt>>)>),
    /// Lost in a panic of its thread.
    Lost,
}

/// A drafter that learns.
///
/// With `learn.asynchronous`, an update runs while the next prompts are answered. If it is not done
/// when the next update is due, the next one waits for it. At most one runs at a time.
pub struct Learner {
    place: TrainingPlace,
    config: LearnConfig,
    needs: Needs,
    buffer: Vec<Example>,
}

impl Learner {
    /// Starts from `checkpoint`. `seed` determines the initial adapters and replay.
    ///
    /// # Errors
    /// Settings without a loss; a checkpoint that the trainer does not support; a rank that is too
    /// large.
    pub fn new(checkpoint: &Checkpoint, config: LearnConfig, seed: u64) -> Result<Self> {
        let terms = match (config.objective, config.direct, config.ngram) {
            (ObjectiveName::None, ..) | (ObjectiveName::Hybrid, None, None) => {
                return Err(OnlineError::Lacking(
                    "the objective of learning is \"none\", or both of its losses are",
                ));
            }
            (ObjectiveName::Hybrid, direct, ngram) => Terms::Hybrid {
                direct,
                ngram,
                lambda: config.lambda,
            },
            (ObjectiveName::Alm, ..) => Terms::Alm { tau: config.tau },
        };
        let training = DrafterTraining::new(checkpoint, terms, config, seed)?;
        Ok(Self {
            needs: Needs {
                losses: terms,
                ends: config.ends,
                blocks: config.blocks,
            },
            place: TrainingPlace::Here(Box::new(training)),
            config,
            buffer: Vec::new(),
        })
    }

    /// Limits the bytes of the examples to replay, of all adapters together. The oldest ones are
    /// dropped.
    ///
    /// # Errors
    /// An update is under way.
    pub fn limit_replay(&mut self, bytes: usize) -> Result<()> {
        self.training()?.limit_replay(bytes);
        Ok(())
    }

    /// Bytes of the examples to replay.
    ///
    /// # Errors
    /// An update is under way.
    pub fn replay_bytes(&mut self) -> Result<usize> {
        Ok(self.training()?.replay_bytes())
    }

    /// The data that examples must hold.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// True if an update is under way.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.place, TrainingPlace::Away(_))
    }

    /// Adds an example. The `every`-th one causes an update, which is returned; an asynchronous one
    /// is returned by the first later call that finds it done.
    ///
    /// # Errors
    /// Losses or gradients that are not finite, of this update or of the one before.
    pub fn push(&mut self, example: Example) -> Result<Option<Learnt>> {
        self.buffer.push(example);
        let due = self.buffer.len() >= self.config.every;
        if !self.config.asynchronous {
            return if due { self.learn() } else { Ok(None) };
        }
        let done = match &self.place {
            TrainingPlace::Away(thread) if due || thread.is_finished() => self.come_back()?,
            _ => None,
        };
        if due {
            self.send_away()?;
        }
        Ok(done)
    }

    /// Waits for an update under way, then makes one from the buffered examples: at most two
    /// updates.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn flush(&mut self) -> Result<Vec<Learnt>> {
        let mut done: Vec<Learnt> = self.come_back()?.into_iter().collect();
        if !self.buffer.is_empty() {
            done.extend(self.learn()?);
        }
        Ok(done)
    }

    /// Switches to the adapter called `name`; the previous one is kept under its own name. Returns
    /// true if the adapter has changed. No update may be under way and, if the name is another one,
    /// the buffer must be empty.
    ///
    /// # Errors
    /// Examples that were not [flushed](Self::flush); an update is under way.
    pub fn turn_to(&mut self, name: &str) -> Result<bool> {
        if !self.buffer.is_empty() && self.training()?.name() != name {
            return Err(OnlineError::Learner(
                "examples of one adapter are left while another one is turned to",
            ));
        }
        self.training()?.turn_to(name)
    }

    /// The weights to decode with.
    ///
    /// # Errors
    /// An update is under way.
    pub fn weights(&mut self) -> Result<LearntWeights> {
        Ok(self.training()?.weights())
    }

    /// Writes what was learnt: an adapter for every name, or the weights, each into a folder of its
    /// name, with the optimiser's state. `base` names the drafter in the files.
    ///
    /// # Errors
    /// A folder that cannot be written; an update is under way.
    pub fn save(&mut self, folder: &Path, base: &str) -> Result<()> {
        self.training()?.save(folder, base)
    }

    /// Loads the files that [`save`](Self::save) wrote. Of several weights those of the name that
    /// was [turned to](Self::turn_to) are loaded.
    ///
    /// # Errors
    /// Files that are missing, malformed or of another drafter; an update is under way.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        self.training()?.load(folder)
    }

    /// Takes back the weights of an update once they are packed, to reuse their memory for the next
    /// one.
    pub fn give_back(&mut self, weights: LearntWeights) {
        // A training that is under way cannot take them.
        if let TrainingPlace::Here(training) = &mut self.place {
            training.give_back(weights);
        }
    }

    /// The training, unless an update is under way.
    pub(super) fn training(&mut self) -> Result<&mut DrafterTraining> {
        match &mut self.place {
            TrainingPlace::Here(training) => Ok(training),
            TrainingPlace::Away(_) => Err(OnlineError::Learner("an update is under way")),
            TrainingPlace::Lost => Err(OnlineError::Learner("an earlier update panicked")),
        }
    }

    /// Learns from the buffer on this thread.
    fn learn(&mut self) -> Result<Option<Learnt>> {
        let examples = std::mem::take(&mut self.buffer);
        self.training()?.learn(examples)
    }

    /// Learns from the buffer on another thread.
    fn send_away(&mut self) -> Result<()> {
        self.training()?;
        let TrainingPlace::Here(mut training) =
            std::mem::replace(&mut self.place, TrainingPlace::Lost)
        else {
            return Ok(());
        };
        let examples = std::mem::take(&mut self.buffer);
        let thread = std::thread::Builder::new().name("learner".into());
        self.place = TrainingPlace::Away(thread.spawn(move || {
            let learnt = training.learn(examples);
            (training, learnt)
        })?);
        Ok(())
    }

    /// Waits for an update under way, if there is one.
    fn come_back(&mut self) -> Result<Option<Learnt>> {
        match std::mem::replace(&mut self.place, TrainingPlace::Lost) {
            TrainingPlace::Away(thread) => {
                let Ok((training, learnt)) = thread.join() else {
                    return Err(OnlineError::Learner("the update panicked"));
                };
                self.place = TrainingPlace::Here(training);
                learnt
            }
            other => {
                self.place = other;
                Ok(None)
            }
        }
    }
}
