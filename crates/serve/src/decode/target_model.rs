//! The target model of a slot: local or remote.

use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{LanguageModel, ModelError, SpecError, StreamName};

use super::sequence::{Sequence, Stage};
use crate::remote::RemoteTarget;
use crate::remote::wire::{Round, RoundVerdict};

/// The target model of a slot: local or remote.
pub(crate) enum TargetModel {
    Local(Engine),
    Remote(RemoteTarget),
}

impl LanguageModel for TargetModel {
    fn vocab_size(&self) -> usize {
        match self {
            Self::Local(engine) => engine.vocab_size(),
            Self::Remote(target) => target.vocab_size(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Local(engine) => engine.len(),
            Self::Remote(target) => target.len(),
        }
    }

    fn max_len(&self) -> usize {
        match self {
            Self::Local(engine) => engine.max_len(),
            Self::Remote(target) => target.max_len(),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Local(engine) => engine.truncate(len),
            Self::Remote(target) => target.truncate(len),
        }
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        match self {
            Self::Local(engine) => engine.forward(ids, logits),
            Self::Remote(target) => target.forward(ids, logits),
        }
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        match self {
            Self::Local(engine) => engine.prefill(ids),
            Self::Remote(target) => target.prefill(ids),
        }
    }
}

impl Sequence {
    /// The message for a remote target in this round; `None` if there is nothing to verify. At most
    /// `top` tokens of its distribution come back for each token.
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
