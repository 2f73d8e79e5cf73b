//! Examples of answers, with the data that a learner needs.

use distill_loss::{Example, Record, Recorder, Response, Terms};
use spec_decode::{LanguageModel, Pair, Session};
use vocab_align::DraftId;

/// The data that a learner needs of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Terms of the loss, which are [recorded](Recorder) for.
    pub losses: Terms,
    /// True if special tokens are learnt.
    pub ends: bool,
    /// Number of the drafter's last blocks that learn, from the [states](Example::states) that
    /// entered them; 0 if all blocks learn.
    pub blocks: usize,
}

impl Needs {
    /// The example that the response of a session gives so far, after a prompt of so many draft
    /// tokens. States are not read.
    pub(super) fn part<D: LanguageModel, T: LanguageModel>(
        self,
        session: &Session<D, T>,
        prompt: usize,
        record: impl Into<Record>,
        pair: &Pair,
    ) -> Example {
        let response = Response::of(session, prompt);
        Example {
            sampled: !session.config().sampling.is_greedy(),
            ..Example::new(response, record, pair, self.losses, self.ends)
        }
    }

    /// The example that a finished response gives, after a prompt of so many draft tokens and as
    /// far as a drafter of `room` positions reads it. `states` has the drafter read a text and
    /// returns the inputs of the first block that learns.
    ///
    /// # Errors
    /// Errors of `states`.
    pub fn example<D: LanguageModel, T: LanguageModel, E>(
        self,
        session: &mut Session<D, T>,
        prompt: usize,
        recorder: Recorder,
        (pair, room): (&Pair, usize),
        states: impl FnOnce(&mut D, &[u32]) -> Result<Vec<f32>, E>,
    ) -> Result<Example, E> {
        let example = self.part(session, prompt, recorder, pair);
        let mut example = example.within(room, &pair.draft);
        if self.blocks > 0 {
            let read: Vec<DraftId> = example.read().iter().copied().map(DraftId).collect();
            let states = session.let_drafter_read(&read, |own| states(own, example.read()));
            example.states = states?;
        }
        Ok(example)
    }
}
