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
    /// [`Error::Learn`]: an option outside its range, a model that has no gradient here, weights
    /// that cannot be read, more blocks than there are.
    pub fn learning(mut self, drafter: &Drafter, options: LearnOptions) -> Result<Self, Error> {
        let config = options.config().map_err(failed)?;
        let folder = drafter.folder();
        let checkpoint = folder.checkpoint().map_err(failed)?;
        let learner = Learner::new(&checkpoint, config, options.seed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    #[test]
    fn options_outside_their_ranges_are_refused() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
        let drafter = Drafter::open(models.join("D")).unwrap();
        let target = Target::open(models.join("L")).unwrap();
        let refused = |options: LearnOptions| {
            let builder = Session::of_models(&drafter, &target).unwrap();
            builder.learning(&drafter, options).err()
        };
        assert!(refused(LearnOptions::default()).is_none());
        for (every, learning_rate, lambda, fault) in [
            (0, 1e-3, 0.2, "every: must be at least 1"),
            (4, f64::NAN, 0.2, "learning_rate: NaN must be 0 or more"),
            (4, -0.5, 0.2, "learning_rate: -0.5 must be 0 or more"),
            (4, 1e-3, f64::INFINITY, "lambda: inf must be 0 or more"),
            (4, 1e-3, -0.5, "lambda: -0.5 must be 0 or more"),
        ] {
            let options = LearnOptions {
                every,
                learning_rate,
                lambda,
                ..LearnOptions::default()
            };
            let Some(Error::Learn { source }) = refused(options) else {
                panic!("{options:?}");
            };
            assert_eq!(source.to_string(), fault);
        }
    }
}
