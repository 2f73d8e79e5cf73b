//! Learning from a part of an answer before the rest is decoded.

use std::time::Instant;

use distill_loss::{Example, Recorder};
use models::Engine;
use spec_decode::Session;
use vocab_align::{DraftId, TokenId};

use super::drafter_training::Update;
use super::error::{OnlineError, Result};
use super::learner::Learner;
use super::question::Question;

/// The parts of an answer that were learnt from.
#[derive(Default)]
pub(super) struct Parts {
    /// Number of tokens of a part; 0 for no parts.
    pub(super) size: usize,
    /// Maximum number of tokens that the drafter reads: a longer text has no more parts.
    pub(super) positions: usize,
    /// Number of target tokens in the parts so far.
    pub(super) tokens: usize,
    /// End of the learnt part, in draft tokens of the context.
    pub(super) taught: usize,
    pub(super) updates: Vec<Update>,
    /// Seconds spent on parts.
    pub(super) seconds: f64,
}

impl Parts {
    /// True once the response has grown by a part.
    pub(super) fn due(&self, session: &Session<&mut Engine, &mut Engine>) -> bool {
        self.size > 0
            && session.response().len() >= self.tokens + self.size
            && session.draft_context().len() <= self.positions
    }

    /// Learns from the new part of the response. After an update the drafter continues with the new
    /// weights, and reads its context again.
    pub(super) fn learn(
        &mut self,
        session: &mut Session<&mut Engine, &mut Engine>,
        recorder: &Recorder,
        learner: &mut Learner,
        question: &Question<'_>,
    ) -> Result<()> {
        let (began, needs) = (Instant::now(), learner.needs());
        let (prompt, record) = (question.prompt.draft.len(), recorder.since(self.tokens));
        let example = needs.part(session, prompt, record, question.pair);
        let mut example = Example {
            goes_on: true,
            ..example.after(self.taught)
        };
        self.tokens = session.response().len();
        if let Some(last) = example.chunks.last() {
            self.taught = last.draft.end;
            let read: Vec<DraftId> = example.read().iter().map(|id| DraftId::new(*id)).collect();
            let update = session.let_drafter_read(&read, |drafter| {
                if needs.blocks > 0 {
                    example.states = drafter.states_of(example.read())?.to_vec();
                }
                let Some((update, weights)) = learner.push(example)? else {
                    return Ok::<_, OnlineError>(None);
                };
                weights.load_into(drafter)?;
                learner.give_back(weights);
                Ok(Some(update))
            })?;
            self.updates.extend(update);
        }
        self.seconds += began.elapsed().as_secs_f64();
        Ok(())
    }
}
