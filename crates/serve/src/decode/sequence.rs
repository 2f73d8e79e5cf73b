//! One running answer, and the slot that it is decoded on.

use std::time::Instant;

use adaptive_draft::Controlled;
use distill_loss::{Example, Recorder};
use models::Engine;
use ngram_cache::NgramCache;
use online::Needs;
use spec_decode::{
    DraftedRound, DraftingRound, Finish, JudgedRound, RoundOutcome, Session, SpecError,
    TeacherSink, Totals,
};
use vocab_align::{DraftId, TargetId};

use super::lengths::Policy;
use super::log_probs::log_probs;
use super::target_model::TargetModel;
use super::text::AnswerText;
use crate::learn::states_of;
use crate::models::Target;
use crate::random::random_number;
use crate::request::{Done, Event, Job, LogProbs, Piece, Token, TokenOrigin};

/// A pair of KV caches, used by one sequence at a time.
pub(crate) struct Slot {
    pub(crate) target: usize,
    /// The user whose prompt and answer the caches hold.
    pub(crate) user: String,
    pub(crate) session: Session<Engine, TargetModel>,
    /// Weights of the drafter.
    pub(crate) weights: WeightsVersion,
    pub(crate) last_used: Instant,
}

/// Identity of drafter weights; the default is the untrained weights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WeightsVersion {
    pub(crate) adapter: String,
    pub(crate) version: u64,
}

/// A request whose prompt is being read.
pub(crate) struct Prefilling {
    pub(crate) job: Job,
    pub(crate) slot: Slot,
    /// Number of prompt tokens that the KV cache holds already.
    pub(crate) cached: usize,
}

/// Stage of a sequence within its round.
pub(crate) enum Stage {
    /// Between rounds.
    Ready,
    /// Waits for forwards of the drafter.
    Drafting(DraftingRound),
    /// Waits for the forward of a local target, or for the reply of a remote one.
    Drafted(DraftedRound),
    /// Waits to be committed.
    Verified(JudgedRound),
}

/// A running answer.
pub(crate) struct Sequence {
    pub(crate) job: Job,
    pub(crate) slot: Slot,
    pub(crate) stage: Stage,
    /// Session of the round that is on its way to a remote target.
    pub(super) awaited: Option<u64>,
    pub(super) policy: Controlled<Policy>,
    /// True if the answer was decoded beside others at some time.
    pub(super) shared: bool,
    /// N-grams of this answer alone, if nothing is learnt.
    pub(crate) own_cache: Option<Box<NgramCache>>,
    pub(crate) totals: Totals,
    pub(crate) adapter: String,
    pub(super) recorder: Option<Recorder>,
    pub(super) text: AnswerText,
    /// Counts of the answer so far, to be sent at its end. Tokens after a stop string are not
    /// counted.
    pub(super) done: Done,
    pub(super) began: Instant,
}

/// Receives every emitted token with the target's logits: for the learner, and for requests that
/// want log-probabilities.
struct Sink<'a> {
    recorder: Option<&'a mut Recorder>,
    /// Seconds spent on recording.
    seconds: f64,
    logprobs: Option<usize>,
    rows: Vec<LogProbs>,
}

impl TeacherSink for Sink<'_> {
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        if let Some(recorder) = &mut self.recorder {
            let began = Instant::now();
            recorder.record(index, token, logits);
            self.seconds += began.elapsed().as_secs_f64();
        }
        if let Some(top) = self.logprobs {
            self.rows.push(log_probs(token, logits, top));
        }
    }
}

impl Sequence {
    /// Begins a draft if the sequence is between rounds. `shared` holds the n-grams of all
    /// sequences of this pair. The target may score so many tokens of alternatives beside the draft.
    pub(crate) fn draft(
        &mut self,
        shared: Option<&NgramCache>,
        alternatives: usize,
    ) -> Result<(), SpecError> {
        if !matches!(self.stage, Stage::Ready) {
            return Ok(());
        }
        self.slot.session.set_alternatives(alternatives);
        let cache = self.own_cache.as_deref().or(shared);
        let drafting = self.slot.session.begin_round(cache, &mut self.policy)?;
        self.stage = Stage::Drafting(drafting);
        Ok(())
    }

    /// The tokens that the drafter reads next, with its engine.
    pub(crate) fn draft_input(&mut self) -> Option<(&mut Engine, &[DraftId])> {
        match &self.stage {
            Stage::Drafting(round) if !round.input().is_empty() => {
                Some((self.slot.session.drafting_model(), round.input()))
            }
            _ => None,
        }
    }

    /// Draws the next token of the draft from the drafter's logits.
    pub(crate) fn draft_token(
        &mut self,
        shared: Option<&NgramCache>,
        logits: &[f32],
    ) -> Result<(), SpecError> {
        let Stage::Drafting(round) = &mut self.stage else {
            return Ok(());
        };
        let cache = self.own_cache.as_deref().or(shared);
        let session = &mut self.slot.session;
        session.draft_token(round, cache, logits, &mut self.policy)
    }

    /// Ends the draft.
    pub(crate) fn end_draft(&mut self, shared: Option<&NgramCache>) -> Result<(), SpecError> {
        let round = match std::mem::replace(&mut self.stage, Stage::Ready) {
            Stage::Drafting(round) => round,
            other => {
                self.stage = other;
                return Ok(());
            }
        };
        let cache = self.own_cache.as_deref().or(shared);
        let drafted = self.slot.session.end_draft(round, cache)?;
        self.stage = Stage::Drafted(drafted);
        Ok(())
    }

    /// The tokens that the target scores in this round, with its engine.
    pub(crate) fn input(&mut self) -> Option<(&mut Engine, &[TargetId])> {
        match (&self.stage, self.slot.session.target_mut()) {
            (Stage::Drafted(round), TargetModel::Local(engine)) => Some((engine, round.input())),
            _ => None,
        }
    }

    /// Scores the draft, and alternatives to it, in a forward of this sequence alone.
    pub(crate) fn score_alone(&mut self, logits: &mut Vec<f32>) -> Result<(), SpecError> {
        let Stage::Drafted(round) = &mut self.stage else {
            return Err(SpecError::NotRunning);
        };
        let session = &mut self.slot.session;
        session.choose_alternatives(round, &self.policy);
        session.score_round(round, logits)
    }

    /// Number of rows of logits of the draft and its alternatives; 0 if none is scored here.
    pub(crate) fn rows(&self) -> usize {
        match (&self.stage, self.slot.session.target()) {
            (Stage::Drafted(round), TargetModel::Local(_)) => round.rows(),
            _ => 0,
        }
    }

    /// Verifies the draft with the target's logits.
    pub(crate) fn verify(
        &mut self,
        shared: Option<&NgramCache>,
        logits: &[f32],
    ) -> Result<(), SpecError> {
        let Stage::Drafted(round) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(());
        };
        let cache = self.own_cache.as_deref().or(shared);
        let verified = self.slot.session.judge_round(round, cache, logits)?;
        self.stage = Stage::Verified(verified);
        Ok(())
    }

    /// Commits the round and sends its tokens to the client. `alone` is true if no other sequence
    /// was decoded beside it. Returns `None` if the client has hung up.
    pub(crate) fn commit(
        &mut self,
        shared: Option<&mut NgramCache>,
        logits: &[f32],
        target: &Target,
        alone: bool,
    ) -> Result<Option<Progress>, SpecError> {
        let Stage::Verified(round) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Err(SpecError::NotRunning);
        };
        let cache = self.own_cache.as_deref_mut().or(shared);
        let mut sink = Sink {
            recorder: self.recorder.as_mut(),
            seconds: 0.0,
            logprobs: self.job.request.logprobs,
            rows: Vec::new(),
        };
        let session = &mut self.slot.session;
        let outcome = session.commit_round(round, logits, cache, &mut self.policy, &mut sink)?;
        let (rows, recording) = (sink.rows, sink.seconds);
        self.policy.take_in(&outcome, recording);
        self.shared |= !alone;
        self.totals.add(&outcome);
        let piece = self.piece(&outcome, rows, target);
        let reason = match (self.text.ended(), self.slot.session.finished()) {
            (true, _) | (false, Some(Finish::Stop(_))) => Some("stop"),
            (false, Some(_)) => Some("length"),
            (false, None) => None,
        };
        if !self.job.send(Event::Piece(piece)) {
            return Ok(None);
        }
        Ok(Some(Progress { outcome, reason }))
    }

    fn piece(&mut self, outcome: &RoundOutcome, rows: Vec<LogProbs>, target: &Target) -> Piece {
        let mut piece = Piece::default();
        let mut rows = rows.into_iter();
        for (i, &id) in outcome.emitted.iter().enumerate() {
            let logprobs = rows.next();
            if self.text.ended() {
                break;
            }
            let bytes = target.pair.target.bytes(id).unwrap_or_default();
            let text = self.text.push(bytes);
            piece.text.push_str(&text);
            let origin = origin_of(outcome, i);
            let ngram = origin == TokenOrigin::Ngram;
            self.done.tokens += 1;
            self.done.accepted += usize::from(ngram || origin == TokenOrigin::Drafted);
            self.done.ngrams += usize::from(ngram);
            piece.tokens.push(Token {
                id,
                origin,
                text,
                logprobs,
            });
        }
        piece
    }

    /// Sends the end of the answer to the client.
    pub(crate) fn send_end(&mut self, reason: &'static str) {
        let rest = self.text.finish();
        if !rest.is_empty() {
            let tokens = Vec::new();
            self.job.send(Event::Piece(Piece { text: rest, tokens }));
        }
        self.job.end(Event::Done(Done {
            reason,
            rounds: self.totals.rounds,
            proposed: self.totals.proposed,
            seconds: self.began.elapsed().as_secs_f64(),
            ..self.done
        }));
    }

    /// The example that the answer gives the drafter, if any.
    pub(crate) fn example(
        &mut self,
        target: &Target,
        needs: Option<Needs>,
        positions: usize,
    ) -> Option<Example> {
        let (recorder, needs) = (self.recorder.take()?, needs?);
        let session = &mut self.slot.session;
        // A stop string ends the answer for the client only: the session still expects rounds.
        if let Err(error) = session.end_response() {
            tracing::warn!("an answer teaches nothing: {error}");
            return None;
        }
        if session.response().is_empty() {
            return None;
        }
        let prompt = self.job.request.prompt.draft.len();
        let reads = (&target.pair, positions);
        let example = needs.example(session, prompt, recorder, reads, states_of);
        if let Err(error) = &example {
            tracing::warn!("an answer teaches nothing: {}", error.in_full());
        }
        example.ok()
    }

    /// Releases the slot, with its caches as they are.
    pub(crate) fn release(self) -> Slot {
        let mut slot = self.slot;
        if self.awaited.is_some()
            && let TargetModel::Remote(target) = slot.session.target_mut()
        {
            // A reply that is still on its way must not meet the rounds of the next answer.
            target.renew(random_number());
        }
        slot.last_used = Instant::now();
        slot
    }
}

/// Result of a committed round.
pub(crate) struct Progress {
    pub(crate) outcome: RoundOutcome,
    /// Reason for which the answer has ended, if it has.
    pub(crate) reason: Option<&'static str>,
}

/// Origin of the `i`-th emitted token of a round.
fn origin_of(outcome: &RoundOutcome, i: usize) -> TokenOrigin {
    match outcome.proposals.get(i) {
        Some(proposal) if i < outcome.accepted => match proposal.kind {
            ngram_cache::Kind::Ngram => TokenOrigin::Ngram,
            ngram_cache::Kind::Direct => TokenOrigin::Drafted,
        },
        Some(_) if i == outcome.accepted => TokenOrigin::Corrected,
        _ => TokenOrigin::Target,
    }
}

impl Slot {
    /// A slot with empty caches and the drafter's untrained weights.
    pub(crate) fn new(target: usize, session: Session<Engine, TargetModel>) -> Self {
        Self {
            target,
            user: String::new(),
            session,
            weights: WeightsVersion::default(),
            last_used: Instant::now(),
        }
    }
}
