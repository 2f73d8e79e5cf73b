//! A prompt in both vocabularies, and its position in the stream.

use models::{Exchange, ModelText};
use spec_decode::StreamName;
use streams::{Prompt, Split};
use vocab_align::{DraftId, TargetId};

use super::error::Result;

/// A prompt, tokenised for drafter and target.
pub struct EncodedPrompt {
    /// The record it comes from.
    pub record: Prompt,
    /// Draft tokens.
    pub draft: Vec<DraftId>,
    /// Target tokens.
    pub target: Vec<TargetId>,
}

impl EncodedPrompt {
    /// Shortens the prompt and the turns `before` it to the target's maximum prompt length, and
    /// tokenises them for both models, which read the same text.
    ///
    /// # Errors
    /// Text that a tokenizer refuses; a template that fails.
    pub fn new(
        prompt: Prompt,
        before: &[Exchange],
        drafter: &ModelText<DraftId>,
        target: &ModelText<TargetId>,
    ) -> Result<Self> {
        let fitted = target.fit_turn(before, &prompt.prompt)?;
        let kept = before.get(before.len() - fitted.kept..).unwrap_or(before);
        Ok(Self {
            record: prompt,
            draft: drafter.turn(kept, &fitted.said)?.1,
            target: fitted.ids,
        })
    }
}

/// Position of a prompt in its job.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// Seed of the job.
    pub seed: u64,
    /// Segment, from 0.
    pub segment: usize,
    /// Split: streamed or held out.
    pub split: Split,
    /// Index of the prompt within segment and split, from 0.
    pub index: usize,
}

impl Position {
    /// Name of the random streams of the prompt. It includes segment and split, so that it is
    /// unique within a job.
    pub fn stream_name(self) -> StreamName {
        let held_out = u64::from(self.split == Split::Test);
        let number = ((self.segment as u64) << 33) + (held_out << 32) + self.index as u64;
        StreamName::new(self.seed, number)
    }

    /// Index of the arm that answers in this `turn`; the first one changes from prompt to prompt.
    pub fn arm_of_turn(self, turn: usize, arms: usize) -> usize {
        (turn + self.index) % arms.max(1)
    }
}
