//! The drafter's updates (Algorithm 2): a buffer of lessons, one optimiser step when it is full,
//! taken on the spot or on a thread of its own.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Result, bail};
use lm::Checkpoint;

use super::lesson::Lesson;
use super::student::{Student, Update};
use crate::learn::{LearnConfig, Terms};

/// An update and the weights to decode with after it.
pub type Learnt = (Update, Checkpoint);

/// Where the student is.
enum Seat {
    Here(Box<Student>),
    /// On its own thread, at work on an update.
    Away(JoinHandle<(Box<Student>, Result<Option<Learnt>>)>),
    /// Lost with a thread that panicked.
    Lost,
}

/// A drafter that learns.
///
/// With `learn.asynchronous`, an update runs while the next prompts are answered; if it is not done
/// when the next one is due, that one waits for it. There is never more than one at a time.
pub struct Learner {
    seat: Seat,
    every: usize,
    asynchronous: bool,
    terms: Terms,
    buffer: Vec<Lesson>,
}

impl Learner {
    /// Starts from `checkpoint`; `seed` decides what is replayed and how adapters start.
    ///
    /// # Errors
    /// Settings without a loss, a checkpoint the trainer cannot take, a rank it has no room for.
    pub fn new(checkpoint: &Checkpoint, config: LearnConfig, seed: u64) -> Result<Self> {
        let student = Student::new(checkpoint, config, seed)?;
        Ok(Self {
            terms: student.terms(),
            seat: Seat::Here(Box::new(student)),
            every: config.every,
            asynchronous: config.asynchronous,
            buffer: Vec::new(),
        })
    }

    /// What it minimises, which is what lessons must hold.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Adds a lesson. Returns an update that was taken because it was the `every`-th one, or one
    /// that has come to an end meanwhile.
    ///
    /// # Errors
    /// Losses or gradients that are not finite, of this update or of the one before.
    pub fn push(&mut self, lesson: Lesson) -> Result<Option<Learnt>> {
        self.buffer.push(lesson);
        let due = self.buffer.len() >= self.every;
        if !self.asynchronous {
            return if due { self.learn() } else { Ok(None) };
        }
        let done = match &self.seat {
            Seat::Away(thread) if due || thread.is_finished() => self.come_back()?,
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
    /// Lessons that were not [flushed](Self::flush).
    pub fn turn_to(&mut self, name: &str) -> Result<bool> {
        if !self.buffer.is_empty() {
            bail!("lessons of one adapter are left while another one is turned to");
        }
        let student = self.student()?;
        let before = student.name().to_owned();
        student.turn_to(name)?;
        Ok(student.name() != before)
    }

    /// Name of the adapter in use.
    ///
    /// # Errors
    /// An update under way.
    pub fn adapter_name(&mut self) -> Result<String> {
        Ok(self.student()?.name().to_owned())
    }

    /// The weights to decode with.
    ///
    /// # Errors
    /// An update under way.
    pub fn weights(&mut self) -> Result<Checkpoint> {
        Ok(self.student()?.weights())
    }

    /// Writes what was learnt: an adapter for every name, or all weights, with the optimiser's
    /// history. `base` names the drafter in the files.
    ///
    /// # Errors
    /// A folder that cannot be written; an update under way.
    pub fn save(&mut self, folder: &Path, base: &str) -> Result<()> {
        self.student()?.save(folder, base)
    }

    /// Goes on with what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// Files that are missing, malformed or of another drafter.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        self.student()?.load(folder)
    }

    /// Takes back the weights of an update once they are packed: the next one is written over them.
    pub fn give_back(&mut self, weights: Checkpoint) {
        // A student at work has no use for them until it is back.
        if let Seat::Here(student) = &mut self.seat {
            student.give_back(weights);
        }
    }

    fn student(&mut self) -> Result<&mut Student> {
        match &mut self.seat {
            Seat::Here(student) => Ok(student),
            Seat::Away(_) => bail!("an update is under way"),
            Seat::Lost => bail!("an earlier update panicked"),
        }
    }

    /// Learns from the buffer on this thread.
    fn learn(&mut self) -> Result<Option<Learnt>> {
        let lessons = std::mem::take(&mut self.buffer);
        self.student()?.learn(lessons)
    }

    /// Learns from the buffer on another thread.
    fn send_away(&mut self) -> Result<()> {
        self.student()?;
        let Seat::Here(mut student) = std::mem::replace(&mut self.seat, Seat::Lost) else {
            return Ok(());
        };
        let lessons = std::mem::take(&mut self.buffer);
        let thread = std::thread::Builder::new().name("learner".into());
        self.seat = Seat::Away(thread.spawn(move || {
            let learnt = student.learn(lessons);
            (student, learnt)
        })?);
        Ok(())
    }

    /// Waits for an update under way, if there is one.
    fn come_back(&mut self) -> Result<Option<Learnt>> {
        match std::mem::replace(&mut self.seat, Seat::Lost) {
            Seat::Away(thread) => {
                let Ok((student, learnt)) = thread.join() else {
                    bail!("the update panicked");
                };
                self.seat = Seat::Here(student);
                learnt
            }
            other => {
                self.seat = other;
                Ok(None)
            }
        }
    }
}
