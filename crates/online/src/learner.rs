//! The drafter's updates (Algorithm 2): a buffer of examples, one optimiser step when it is full,
//! taken on the spot or on a thread of its own.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Result, bail};
use distill_loss::{Example, Terms};
use lm::Checkpoint;

use super::drafter_training::{DrafterTraining, Update};
use super::weights::LearntWeights;
use experiment::LearnConfig;

/// An update and the weights to decode with after it.
pub type Learnt = (Update, LearntWeights);

/// Where the training is.
enum TrainingPlace {
    Here(Box<DrafterTraining>),
    /// On its own thread, at work on an update.
    Away(JoinHandle<(Box<DrafterTraining>, Result<Option<Learnt>>)>),
    /// Lost with a thread that panicked.
    Lost,
}

/// A drafter that learns.
///
/// With `learn.asynchronous`, an update runs while the next prompts are answered; if it is not done
/// when the next one is due, that one waits for it. There is never more than one at a time.
pub struct Learner {
    place: TrainingPlace,
    every: usize,
    asynchronous: bool,
    terms: Terms,
    ends: bool,
    blocks: usize,
    buffer: Vec<Example>,
}

impl Learner {
    /// Starts from `checkpoint`; `seed` decides what is replayed and how adapters start.
    ///
    /// # Errors
    /// Settings without a loss, a checkpoint the trainer cannot take, a rank it has no room for.
    pub fn new(checkpoint: &Checkpoint, config: LearnConfig, seed: u64) -> Result<Self> {
        let training = DrafterTraining::new(checkpoint, config, seed)?;
        Ok(Self {
            terms: training.terms(),
            place: TrainingPlace::Here(Box::new(training)),
            every: config.every,
            asynchronous: config.asynchronous,
            ends: config.ends,
            blocks: config.blocks,
            buffer: Vec::new(),
        })
    }

    /// Bounds what the examples to replay take, those of all adapters together. The oldest leave.
    ///
    /// # Errors
    /// An update under way.
    pub fn limit_replay(&mut self, bytes: usize) -> Result<()> {
        self.training()?.limit_replay(bytes);
        Ok(())
    }

    /// Bytes of the examples to replay.
    ///
    /// # Errors
    /// An update under way.
    pub fn replay_bytes(&mut self) -> Result<usize> {
        Ok(self.training()?.replay_bytes())
    }

    /// What it minimises, which is what examples must hold.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Whether special tokens are learnt.
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// The last blocks of the drafter that learn alone, from [states](Example::states) that examples
    /// must hold; 0 where all weights do.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether an update is under way.
    pub fn is_away(&self) -> bool {
        matches!(self.place, TrainingPlace::Away(_))
    }

    /// Adds an example. Returns an update that was taken because it was the `every`-th one, or one
    /// that has come to an end meanwhile.
    ///
    /// # Errors
    /// Losses or gradients that are not finite, of this update or of the one before.
    pub fn push(&mut self, example: Example) -> Result<Option<Learnt>> {
        self.buffer.push(example);
        let due = self.buffer.len() >= self.every;
        if !self.asynchronous {
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

    /// Waits for an update under way, then takes a step on whatever is buffered: at most two
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

    /// Goes on with the adapter called `name`; what was learnt before is kept under its own name.
    /// Returns whether that is another one than before. Nothing may be buffered or under way.
    ///
    /// # Errors
    /// Examples that were not [flushed](Self::flush).
    pub fn turn_to(&mut self, name: &str) -> Result<bool> {
        if !self.buffer.is_empty() {
            bail!("examples of one adapter are left while another one is turned to");
        }
        let training = self.training()?;
        let before = training.name().to_owned();
        training.turn_to(name)?;
        Ok(training.name() != before)
    }

    /// Name of the adapter in use.
    ///
    /// # Errors
    /// An update under way.
    pub fn adapter_name(&mut self) -> Result<String> {
        Ok(self.training()?.name().to_owned())
    }

    /// The weights to decode with.
    ///
    /// # Errors
    /// An update under way.
    pub fn weights(&mut self) -> Result<LearntWeights> {
        Ok(self.training()?.weights())
    }

    /// Writes what was learnt: an adapter for every name, or all weights, with the optimiser's
    /// history. `base` names the drafter in the files.
    ///
    /// # Errors
    /// A folder that cannot be written; an update under way.
    pub fn save(&mut self, folder: &Path, base: &str) -> Result<()> {
        self.training()?.save(folder, base)
    }

    /// Goes on with what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// Files that are missing, malformed or of another drafter.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        self.training()?.load(folder)
    }

    /// Updates so far, and the prompts they learnt from.
    ///
    /// # Errors
    /// An update under way.
    pub fn counts(&mut self) -> Result<(u32, u32)> {
        Ok(self.training()?.counts())
    }

    /// Counts on from [`counts`](Self::counts) of an earlier process.
    ///
    /// # Errors
    /// An update under way.
    pub fn count_from(&mut self, counts: (u32, u32)) -> Result<()> {
        self.training()?.count_from(counts);
        Ok(())
    }

    /// Takes back the weights of an update once they are packed: the next one is written over them.
    pub fn give_back(&mut self, weights: LearntWeights) {
        // A training at work has no use for them until it is back.
        if let TrainingPlace::Here(training) = &mut self.place {
            training.give_back(weights);
        }
    }

    fn training(&mut self) -> Result<&mut DrafterTraining> {
        match &mut self.place {
            TrainingPlace::Here(training) => Ok(training),
            TrainingPlace::Away(_) => bail!("an update is under way"),
            TrainingPlace::Lost => bail!("an earlier update panicked"),
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
                    bail!("the update panicked");
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
