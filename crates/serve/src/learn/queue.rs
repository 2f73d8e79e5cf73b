//! The way of examples from the decode thread to the learner's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use distill_loss::Example;
use online::{ArmState, Needs};

use crate::models::target_of;
use crate::stats::Stats;

/// The examples of a finished answer.
pub(super) struct AnswerExamples {
    pub(super) adapter: String,
    /// For the drafter.
    pub(super) example: Example,
    /// For the acceptance head, if there is one.
    pub(super) head_examples: Vec<adaptive_draft::Example>,
}

/// A message to the learner's thread.
pub(super) enum LearnerMessage {
    Answer(Box<AnswerExamples>),
    Save,
    Stop(Box<ArmState>),
}

/// The other end of a [`LearnerThread`](super::LearnerThread).
#[derive(Clone)]
pub(crate) struct LearnerQueue {
    pub(super) messages: SyncSender<LearnerMessage>,
    pub(crate) needs: Needs,
    /// Bytes of the examples that wait. `limit`: their maximum.
    pub(super) held: Arc<AtomicUsize>,
    pub(super) limit: usize,
}

impl LearnerQueue {
    /// Asks for a saving soon.
    pub(crate) fn save(&self) {
        // A full queue means that the learner is at work; it saves by itself in time.
        let _ = self.messages.try_send(LearnerMessage::Save);
    }

    /// Ends the learner's thread, which saves what the decode thread knew.
    pub(crate) fn stop(&self, known: ArmState) {
        let _ = self.messages.send(LearnerMessage::Stop(Box::new(known)));
    }

    /// Queues the examples of an answer, unless too many wait: decoding never waits for learning.
    pub(crate) fn offer(
        &self,
        adapter: &str,
        example: Example,
        head_examples: Vec<adaptive_draft::Example>,
        stats: &Stats,
    ) {
        let bytes = example.bytes();
        let fits = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.limit;
        let answer = AnswerExamples {
            adapter: adapter.to_owned(),
            example,
            head_examples,
        };
        let taken = fits
            && self
                .messages
                .try_send(LearnerMessage::Answer(Box::new(answer)))
                .is_ok();
        if !taken {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            stats.tell(|own| own.drop_recording(target_of(adapter)));
        }
        stats.example(taken);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use adaptive_draft::{Controller, ControllerConfig};
    use distill_loss::{DirectLoss, NgramLoss, PAPER_LAMBDA, Terms};

    use super::*;

    /// The controller does not count an answer as recorded that waits for no update.
    #[test]
    fn a_dropped_example_is_no_recording() {
        let (messages, _receiver) = sync_channel(1);
        let queue = LearnerQueue {
            messages,
            needs: Needs {
                losses: Terms::hybrid(DirectLoss::ReverseKl, NgramLoss::Nll, PAPER_LAMBDA),
                ends: false,
                blocks: 0,
            },
            held: Arc::default(),
            limit: usize::MAX,
        };
        let stats = Stats::new(&ArmState::default());
        stats.control(ControllerConfig::default());
        let known = || {
            let mut known = ArmState::default();
            stats.write_into(&mut known);
            known.controller.unwrap()
        };
        let offer = || queue.offer("L/ann", Example::default(), Vec::new(), &stats);
        let mut expected = Controller::new(ControllerConfig::default());
        offer();
        assert_eq!(known(), expected);
        // The channel is full.
        offer();
        expected.drop_recording("L");
        assert_eq!(known(), expected);
        assert_eq!(stats.to_json()["examples"], 1);
    }
}
