//! Conversion of answers, rounds and updates to rows of the results folder.

use std::collections::BTreeSet;

use adaptive_draft::{Costs, Way};
use experiment::{DraftSource, JobConfig};
use ngram_cache::NgramCache;
use results::{CellWriter, Finish, HeadRow, PromptRow, RoundRow, UpdateRow, answer_text};
use sha2::{Digest, Sha256};
use spec_decode::{Finish as Ended, Generation, PlainGeneration, RoundOutcome};
use streams::Split;
use vocab_align::{TargetId, TokenId, Vocabulary};

use super::adaptive::HeadUpdate;
use super::drafter_training::Update;
use super::error::Result;
use super::prompt::EncodedPrompt;

/// An arm's answer to a prompt.
pub(super) struct Answer {
    /// Index of the arm.
    pub(super) arm: usize,
    pub(super) made: Made,
}

pub(super) enum Made {
    Plain(PlainGeneration),
    Drafted {
        generation: Box<Generation>,
        /// Numbers of proposed and of accepted stop tokens.
        ends: (u32, u32),
        lessons: Lessons,
        learn_seconds: f64,
        account: Option<Account>,
    },
}

/// The way of an answer, and the seconds saved by all answers up to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Account {
    pub(super) way: Way,
    /// Seconds saved compared with plain decoding, after the costs of learning.
    pub(super) saved: f64,
}

/// Updates of an arm's drafter, and the training step of its head after them.
pub(super) struct Lessons {
    pub(super) updates: Vec<Update>,
    pub(super) head: Option<HeadUpdate>,
}

impl Answer {
    /// Adds `seconds` of learning after the answer, and the controller's account after them.
    pub(super) fn charge(&mut self, seconds: f64, after: Option<Account>) {
        if let Made::Drafted {
            learn_seconds,
            account,
            ..
        } = &mut self.made
        {
            *learn_seconds += seconds;
            if let (Some(account), Some(after)) = (account, after) {
                account.saved = after.saved;
            }
        }
    }

    /// Mean acceptance rate over its rounds, if a round had proposals.
    pub(super) fn acceptance(&self) -> Option<f64> {
        match &self.made {
            Made::Drafted { generation, .. } if judged(generation) > 0 => {
                Some(generation.totals.acceptance_rate())
            }
            _ => None,
        }
    }

    pub(super) fn tokens_per_s(&self) -> f64 {
        let (tokens, seconds) = match &self.made {
            Made::Plain(done) => (done.tokens.len(), done.decode_seconds),
            Made::Drafted { generation, .. } => {
                (generation.tokens.len(), generation.totals.timings.total())
            }
        };
        tokens as f64 / seconds.max(1e-9)
    }
}

/// Number of rounds with proposals, over which the acceptance rate is averaged.
fn judged(done: &Generation) -> usize {
    done.rounds
        .iter()
        .filter(|round| round.proposed() > 0)
        .count()
}

/// Numbers of stop tokens among the proposals, and among the accepted ones.
pub(super) fn ends(done: &Generation, stop: &BTreeSet<TargetId>) -> (u32, u32) {
    let (mut proposed, mut accepted) = (0, 0);
    for round in &done.rounds {
        for (index, proposal) in round.proposals.iter().enumerate() {
            if stop.contains(&proposal.target) {
                proposed += 1;
                accepted += u32::from(index < round.accepted);
            }
        }
    }
    (proposed, accepted)
}

/// The writer of rows for one split of a segment.
pub(super) struct Recording<'a> {
    pub(super) writer: &'a mut CellWriter,
    pub(super) config: &'a JobConfig,
    pub(super) segment: usize,
    pub(super) split: Split,
    pub(super) vocabulary: &'a Vocabulary<TargetId>,
}

impl Recording<'_> {
    /// Writes one arm's answer: its rounds, the prompt, and the updates and head step after it.
    pub(super) fn answer(
        &mut self,
        prompt: &EncodedPrompt,
        position: usize,
        answer: &Answer,
        cache: Option<&NgramCache>,
    ) -> Result<()> {
        let Some(arm) = self.config.arms.get(answer.arm) else {
            return Ok(());
        };
        let row = |tokens: &[TargetId], finish| {
            self.prompt_row(&arm.name, prompt, position, tokens, finish)
        };
        let costs = Costs::from(&arm.decode.costs);
        // Looked-up tokens cost no drafting.
        let drafts = arm.decode.draft == DraftSource::Model;
        let cost = |round: &RoundOutcome, drafts: bool| {
            let drafted = if drafts { round.draft.len() } else { 0 };
            costs.draft(drafted)
                + costs.verify(1 + round.proposed() + round.alternatives)
                + costs.round
        };
        match &answer.made {
            Made::Plain(done) => {
                let row = PromptRow {
                    rounds: done.tokens.len() as u32,
                    cost: Some(done.tokens.len() as f64 * costs.verify(1)),
                    seconds: done.decode_seconds,
                    prefill_s: done.prefill_seconds,
                    ..row(&done.tokens, done.finish)
                };
                self.writer.push_prompt(&row)?;
            }
            Made::Drafted {
                generation: done,
                ends,
                lessons,
                learn_seconds,
                account,
            } => {
                let totals = &done.totals;
                let row = PromptRow {
                    rounds: totals.rounds as u32,
                    cost: Some(done.rounds.iter().map(|r| cost(r, drafts)).sum()),
                    draft_tokens: totals.drafted as u32,
                    proposed: totals.proposed as u32,
                    accepted: totals.accepted as u32,
                    ngrams_proposed: done.rounds.iter().map(|r| r.ngrams_proposed() as u32).sum(),
                    ngram_hits: totals.ngrams_accepted as u32,
                    ends_proposed: Some(ends.0),
                    ends_accepted: Some(ends.1),
                    acceptance_rate: match judged(done) {
                        0 => f64::NAN,
                        _ => totals.acceptance_rate(),
                    },
                    judged_rounds: judged(done) as u32,
                    seconds: totals.timings.total(),
                    prefill_s: done.prefill.draft + done.prefill.target,
                    learn_s: *learn_seconds,
                    way: account.map(|account| name_of(account.way).to_owned()),
                    saved_s: account.map(|account| account.saved),
                    cache_ngrams: cache.map_or(0, |c| c.len() as u32),
                    cache_bytes: cache.map_or(0, |c| c.memory_bytes() as u64),
                    ..row(&done.tokens, done.finish)
                };
                self.rounds(&arm.name, position, done)?;
                self.writer.push_prompt(&row)?;
                self.lessons(answer.arm, lessons)?;
            }
        }
        Ok(())
    }

    fn rounds(&mut self, arm: &str, position: usize, done: &Generation) -> Result<()> {
        // Times of a stage that shares its machine are not valid, so they are not kept.
        let timed = self.config.exclusive;
        let microseconds = |seconds: f64| {
            if timed {
                (seconds * 1e6).round() as u32
            } else {
                0
            }
        };
        for outcome in &done.rounds {
            let timings = &outcome.timings;
            let expected = outcome.expected_acceptance().unwrap_or(f64::NAN);
            self.writer.push_round(&RoundRow {
                arm: arm.to_owned(),
                segment: self.segment as u32,
                split: row_split(self.split),
                prompt_index: position as u32,
                round: outcome.round as u32,
                draft_tokens: outcome.draft.len() as u32,
                proposed: outcome.proposed() as u32,
                accepted: outcome.accepted as u32,
                emitted: outcome.emitted.len() as u32,
                emitted_bytes: outcome.emitted_bytes as u32,
                ngrams_proposed: outcome.ngrams_proposed() as u32,
                ngrams_accepted: outcome.ngrams_accepted() as u32,
                looked_up: Some(outcome.looked_up() as u32),
                alternatives: Some(outcome.alternatives as u32),
                expected_acceptance: (expected * 1e4).round() / 1e4,
                draft_us: microseconds(timings.draft),
                translate_us: microseconds(timings.translate),
                verify_us: microseconds(timings.target + timings.verify),
                commit_us: microseconds(timings.commit),
            })?;
        }
        Ok(())
    }

    /// Writes what the arm at this index has learnt.
    pub(super) fn lessons(&mut self, arm: usize, lessons: &Lessons) -> Result<()> {
        let Some(arm) = self.config.arms.get(arm) else {
            return Ok(());
        };
        for update in &lessons.updates {
            self.update(&arm.name, update)?;
        }
        let mut steps = lessons.head.iter();
        steps.try_for_each(|step| self.head(&arm.name, step))
    }

    fn update(&mut self, arm: &str, update: &Update) -> Result<()> {
        Ok(self.writer.push_update(&UpdateRow {
            arm: arm.to_owned(),
            seed: self.config.seed,
            segment: self.segment as u32,
            update: update.number,
            prompts_seen: update.prompts_seen,
            loss: update.loss,
            loss_dm: update.direct,
            loss_ngram: update.ngram,
            dm_positions: update.direct_positions as u32,
            ngram_tokens: update.ngram_tokens as u32,
            grad_norm: update.grad_norm,
            seconds: update.seconds,
            agreed: update.agreed.map(|agreed| agreed.learner),
            agreed_first: update.agreed.map(|agreed| agreed.frozen),
        })?)
    }

    /// Writes one training step of an arm's acceptance head.
    fn head(&mut self, arm: &str, step: &HeadUpdate) -> Result<()> {
        let report = &step.report;
        Ok(self.writer.push_head(&HeadRow {
            arm: arm.to_owned(),
            seed: self.config.seed,
            segment: self.segment as u32,
            step: report.number as u32,
            prompts_seen: step.prompts_seen,
            examples: report.examples as u32,
            loss: report.loss,
            fresh: report.fresh as u32,
            fresh_loss: report.fresh_loss,
            predicted: report.predicted,
            accepted: report.accepted,
            calibration_error: report.calibration_error,
            seconds: step.seconds,
        })?)
    }

    fn prompt_row(
        &self,
        arm: &str,
        prompt: &EncodedPrompt,
        position: usize,
        tokens: &[TargetId],
        finish: Ended,
    ) -> PromptRow {
        let segment = &self.config.segments[self.segment];
        PromptRow {
            arm: arm.to_owned(),
            seed: self.config.seed,
            segment: self.segment as u32,
            split: row_split(self.split),
            task: segment.task.clone(),
            target: segment.target.clone(),
            prompt_index: position as u32,
            prompt_id: prompt.record.id.clone(),
            prompt_tokens: prompt.target.len() as u32,
            new_tokens: tokens.len() as u32,
            new_bytes: self.vocabulary.decode_bytes(tokens).len() as u32,
            ends_proposed: Some(0),
            ends_accepted: Some(0),
            acceptance_rate: f64::NAN,
            finish: match finish {
                Ended::Stop(_) => Finish::End,
                _ => Finish::Length,
            },
            answer: answer_text(tokens.iter().map(|id| id.get())),
            tokens_hash: hash(tokens),
            ..PromptRow::default()
        }
    }
}

/// Name of a way in the rows.
fn name_of(way: Way) -> &'static str {
    match way {
        Way::Plain => "plain",
        Way::Copies => "copies",
        Way::Frozen => "frozen",
        Way::Learner => "learner",
    }
}

fn row_split(split: Split) -> results::Split {
    match split {
        Split::Train => results::Split::Train,
        Split::Test => results::Split::Test,
    }
}

fn hash(tokens: &[TargetId]) -> String {
    let mut hasher = Sha256::new();
    for token in tokens {
        hasher.update(token.get().to_le_bytes());
    }
    hex::encode(hasher.finalize())
}
