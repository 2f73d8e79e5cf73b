//! Rounds whose target is on another server.

use ngram_cache::NgramCache;
use spec_decode::{LanguageModel, SpecError, StreamName};

use super::remote_queue::{RemoteBatch, Reply};
use super::sequence::{Sequence, Stage};
use super::target_model::TargetModel;
use super::{Decoder, Ended, shared};
use crate::error::ApiError;
use crate::remote::wire::{Refusal, Round, RoundVerdict};
use crate::stats::Step;

impl Sequence {
    /// The message for a remote target in this round; `None` if there is nothing to verify. If the
    /// answer is learnt from, at most `top` tokens of the target's distribution come back for each
    /// emitted token.
    pub(crate) fn remote_round(
        &mut self,
        shared: Option<&NgramCache>,
        top: usize,
    ) -> Option<Result<Round, SpecError>> {
        let Stage::Drafted(round) = &self.stage else {
            return None;
        };
        let cache = self.own_cache.as_deref().or(shared);
        let session = &mut self.slot.session;
        let draft = match session.sparse_draft(round, cache) {
            Ok(draft) => draft,
            Err(error) => return Some(Err(error)),
        };
        // The random numbers of verification are named by the request and the round.
        let coins = StreamName {
            sample: self.job.request.sample,
            ..StreamName::new(self.job.request.seed, self.totals.rounds as u64)
        };
        let top = if self.recorder.is_some() { top } else { 0 };
        let (last, config) = (*round.input().first()?, session.config());
        match session.target() {
            TargetModel::Local(_) => None,
            TargetModel::Remote(target) => Some(Ok(target.round(last, draft, config, coins, top))),
        }
    }

    /// The same round with the whole text, for a server that does not hold it any more.
    pub(crate) fn with_whole_text(&mut self, round: Round) -> Round {
        match self.slot.session.target_mut() {
            TargetModel::Local(_) => round,
            TargetModel::Remote(target) => target.with_whole_text(round),
        }
    }

    /// Applies the verdict of a remote target. Returns the logits that came with it.
    pub(crate) fn apply_verdict(&mut self, reply: &RoundVerdict) -> Result<Vec<f32>, SpecError> {
        let Stage::Drafted(round) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(Vec::new());
        };
        let session = &mut self.slot.session;
        let vocab = session.target().vocab_size();
        let emitted = reply.accepted as usize + 1;
        let logits = reply.rows.logits(vocab, emitted).unwrap_or_default();
        if logits.is_empty() {
            // Without the target's distributions nothing can be learnt from an answer.
            self.recorder = None;
        }
        if let TargetModel::Remote(target) = session.target_mut() {
            target.read(round.input());
        }
        let verdict = reply.verdict(round.proposed());
        self.stage = Stage::Verified(session.settle_round(round, verdict)?);
        Ok(logits)
    }
}

impl Decoder {
    /// True if there is something to do beside waiting for replies.
    pub(super) fn is_busy(&self) -> bool {
        let room = self.running.len() + self.prefilling.len() < self.options.parallel;
        !self.prefilling.is_empty()
            || !self.replies.is_empty()
            || !self.verifiers.waiting.is_empty()
            || (room && !self.waiting.is_empty())
            || self.running.iter().any(|s| s.awaited.is_none())
    }

    /// Sends the drafts for remote targets, one request per target. This comes before any draft of
    /// the step is committed: the message depends on the n-grams that were drafted with.
    pub(super) fn send_rounds(&mut self, step: &mut Step, ended: &mut Ended) {
        for target in 0..self.models.targets.len() {
            if self.models.targets[target].remote().is_none() {
                continue;
            }
            let mut batch = RemoteBatch {
                target,
                ..RemoteBatch::default()
            };
            for (i, sequence) in self.running.iter_mut().enumerate() {
                if sequence.slot.target != target || sequence.awaited.is_some() {
                    continue;
                }
                let shared = shared(&self.known, &self.models, sequence);
                match sequence.remote_round(shared, self.options.remote.law_top) {
                    None => {}
                    Some(Ok(round)) => {
                        sequence.awaited = Some(round.session);
                        batch.rounds.push(round);
                    }
                    Some(Err(e)) => ended.push((i, Err(ApiError::Internal(e.to_string())))),
                }
            }
            self.send(batch, step);
        }
    }

    fn send(&self, batch: RemoteBatch, step: &mut Step) {
        if !batch.rounds.is_empty() {
            step.forwards += 1;
            // The threads live as long as the decode thread, so the send does not fail.
            let _ = self.remote_queue.send(batch);
        }
    }

    /// Commits the rounds whose replies have come.
    pub(super) fn commit_replies(&mut self, step: &mut Step, ended: &mut Ended) {
        for reply in std::mem::take(&mut self.replies) {
            let Reply {
                batch,
                traffic,
                answers,
            } = reply;
            self.stats.traffic(traffic);
            let answers = answers.map_err(|error| ApiError::Target(error.in_full()));
            let mut again = RemoteBatch {
                target: batch.target,
                again: true,
                ..RemoteBatch::default()
            };
            for (n, round) in batch.rounds.into_iter().enumerate() {
                // The sequence may have ended meanwhile.
                let of = |sequence: &Sequence| sequence.awaited == Some(round.session);
                let Some(i) = self.running.iter().position(of) else {
                    continue;
                };
                let sequence = &mut self.running[i];
                match answers.as_ref().map(|answers| answers.get(n)) {
                    Ok(Some(Ok(verdict))) => {
                        sequence.awaited = None;
                        match sequence.apply_verdict(verdict) {
                            Ok(logits) => self.commit(i, &logits, step, ended),
                            Err(e) => ended.push((i, Err(ApiError::Internal(e.to_string())))),
                        }
                    }
                    Ok(Some(Err(Refusal::Unknown))) if !batch.again => {
                        again.rounds.push(sequence.with_whole_text(round));
                    }
                    // It has the whole text, as the other side holds nothing of it. Others had all
                    // sessions in that step; the time limit of the answer ends the attempts.
                    Ok(Some(Err(Refusal::Busy))) => again.rounds.push(round),
                    Ok(Some(Err(refusal))) => {
                        ended.push((i, Err(ApiError::Target(refusal.to_string()))));
                    }
                    Ok(None) => ended.push((i, Err(ApiError::Internal("no answer".to_owned())))),
                    Err(error) => ended.push((i, Err(error.clone()))),
                }
            }
            self.send(again, step);
        }
    }
}
