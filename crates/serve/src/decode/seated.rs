//! The target model of a slot: local or remote.

use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{LanguageModel, ModelError, SpecError, StreamName};

use super::sequence::{Sequence, Stage};
use crate::remote::RemoteTarget;
use crate::remote::wire::{Judgement, Round};

/// The target model of a slot: local or remote.
pub(crate) enum Seated {
    Here(Engine),
    Elsewhere(RemoteTarget),
}

impl LanguageModel for Seated {
    fn vocab_size(&self) -> usize {
        match self {
            Self::Here(engine) => engine.vocab_size(),
            Self::Elsewhere(target) => target.vocab_size(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Here(engine) => engine.len(),
            Self::Elsewhere(target) => target.len(),
        }
    }

    fn max_len(&self) -> usize {
        match self {
            Self::Here(engine) => engine.max_len(),
            Self::Elsewhere(target) => target.max_len(),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Here(engine) => engine.truncate(len),
            Self::Elsewhere(target) => target.truncate(len),
        }
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        match self {
            Self::Here(engine) => engine.forward(ids, logits),
            Self::Elsewhere(target) => target.forward(ids, logits),
        }
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        match self {
            Self::Here(engine) => engine.prefill(ids),
            Self::Elsewhere(target) => target.prefill(ids),
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
        let session = &mut self.seat.session;
        let draft = match session.sparse_draft(round, cache) {
            Ok(draft) => draft,
            Err(error) => return Some(Err(error)),
        };
        // The random numbers of verification are named by the request and the round.
        let coins = StreamName {
            sample: self.job.ask.sample,
            ..StreamName::new(self.job.ask.seed, self.totals.rounds as u64)
        };
        let top = if self.recorder.is_some() { top } else { 0 };
        let (last, config) = (*round.input().first()?, session.config());
        match session.target() {
            Seated::Here(_) => None,
            Seated::Elsewhere(target) => Some(Ok(target.round(last, draft, config, coins, top))),
        }
    }

    /// The same round with the whole text, for a server that does not hold it any more.
    pub(crate) fn whole(&mut self, round: Round) -> Round {
        match self.seat.session.target_mut() {
            Seated::Here(_) => round,
            Seated::Elsewhere(target) => target.whole(round),
        }
    }

    /// Applies the verdict of a remote target. Returns the logits that came with it.
    pub(crate) fn settle(&mut self, judgement: &Judgement) -> Result<Vec<f32>, SpecError> {
        let Stage::Drafted(round) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(Vec::new());
        };
        let session = &mut self.seat.session;
        let vocab = session.target().vocab_size();
        let emitted = judgement.accepted as usize + 1;
        let logits = judgement.rows.logits(vocab, emitted).unwrap_or_default();
        if logits.is_empty() {
            // Without the target's distributions nothing can be learnt from an answer.
            self.recorder = None;
        }
        if let Seated::Elsewhere(target) = session.target_mut() {
            target.read(round.input());
        }
        let verdict = judgement.verdict(round.proposed());
        self.stage = Stage::Judged(session.settle_round(round, verdict)?);
        Ok(logits)
    }
}
