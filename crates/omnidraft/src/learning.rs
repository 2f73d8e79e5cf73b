//! Sessions whose drafter learns from what the target verified.

use std::path::Path;

use distill_loss::Recorder;
use models::Engine;
use online::{Learner, LearntWeights};
use spec_decode::LanguageModel;

use crate::learn::Learning;
use crate::session::Teacher;
use crate::{Builder, Drafter, Error, LearnOptions, Session, Source};

fn failed(source: impl Into<Source>) -> Error {
    Error::Learn {
        source: source.into(),
    }
}

impl<T: LanguageModel> Builder<Engine, T> {
    /// Lets the drafter learn from every answer. `drafter` is the model whose engine drafts.
    ///
    /// # Errors
    /// [`Error::Learn`]: a model that has no gradient here, weights that cannot be read, more blocks
    /// than there are.
    pub fn learning(mut self, drafter: &Drafter, options: LearnOptions) -> Result<Self, Error> {
        let folder = drafter.folder();
        let checkpoint = folder.checkpoint().map_err(failed)?;
        let learner = Learner::new(&checkpoint, options.config(), options.seed);
        if options.blocks > 0 {
            self.drafter.keep_states(options.blocks).map_err(failed)?;
        }
        self.learning = Some(Learning {
            learner: learner.map_err(failed)?,
            positions: folder.config().max_position_embeddings,
            load: |engine, weights| Ok(weights.load_into(engine)?),
            states: |engine, ids| Ok(engine.states_of(ids)?.to_vec()),
            updates: 0,
        });
        Ok(self)
    }
}

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// Number of updates of the drafter so far.
    pub fn updates(&self) -> usize {
        self.learning.as_ref().map_or(0, |own| own.updates)
    }

    /// Learns from the answers since the last update, also from fewer than `every`.
    ///
    /// # Errors
    /// [`Error::Learn`]: a loss that is not finite.
    pub fn finish_learning(&mut self) -> Result<(), Error> {
        let Some(own) = &mut self.learning else {
            return Ok(());
        };
        for (_, weights) in own.learner.flush().map_err(failed)? {
            self.take_up(weights)?;
        }
        Ok(())
    }

    /// Writes the learnt weights into a folder, with the optimiser's history. `base` names the
    /// drafter in it. Nothing is written if the session does not learn.
    ///
    /// # Errors
    /// [`Error::Learn`]: a folder that cannot be written.
    pub fn save_learnt(&mut self, folder: &Path, base: &str) -> Result<(), Error> {
        match &mut self.learning {
            Some(own) => own.learner.save(folder, base).map_err(failed),
            None => Ok(()),
        }
    }

    /// Continues with the weights that [`save_learnt`](Self::save_learnt) wrote, if the session
    /// learns.
    ///
    /// # Errors
    /// [`Error::Learn`]: files that are missing, damaged or of another drafter.
    pub fn load_learnt(&mut self, folder: &Path) -> Result<(), Error> {
        let Some(own) = &mut self.learning else {
            return Ok(());
        };
        own.learner.load(folder).map_err(failed)?;
        let weights = own.learner.weights().map_err(failed)?;
        let load = own.load;
        let loaded = self.rounds.change_drafter(|engine| load(engine, weights));
        loaded.map_err(failed)
    }

    /// A recorder for the next answer; `None` if nothing is learnt.
    pub(crate) fn teacher(&self) -> Option<Teacher> {
        let own = self.learning.as_ref()?;
        let losses = own.learner.needs().losses;
        Some(Recorder::new(&self.pair.alignment, losses))
    }

    /// Adds an answer to the learner; after an update the drafter gets its weights.
    pub(crate) fn learn_from(
        &mut self,
        prompt: usize,
        teacher: Option<Teacher>,
    ) -> Result<(), Error> {
        let Some((own, recorder)) = self.learning.as_mut().zip(teacher) else {
            return Ok(());
        };
        let (needs, read) = (own.learner.needs(), (&self.pair, own.positions));
        let example = needs.example(&mut self.rounds, prompt, recorder, read, own.states);
        let example = example.map_err(failed)?;
        match own.learner.push(example).map_err(failed)? {
            Some((_, weights)) => self.take_up(weights),
            None => Ok(()),
        }
    }

    /// Replaces the drafter's weights.
    fn take_up(&mut self, weights: LearntWeights) -> Result<(), Error> {
        let Some(own) = &mut self.learning else {
            return Ok(());
        };
        own.updates += 1;
        let load = own.load;
        let loaded = self.rounds.change_drafter(|engine| load(engine, weights));
        loaded.map_err(failed)
    }
}
