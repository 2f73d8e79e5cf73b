//! One running answer, and the slot that it is decoded on.

use std::time::Instant;

use adaptive_draft::{Answer, Costs, Way};
use models::Engine;
use ngram_cache::NgramCache;
use online::{Example, Learner, Recorder};
use spec_decode::{
    Acceptance, ConstantLength, CopySource, DraftedRound, DraftingRound, Finish, JudgedRound,
    Prompt, Purpose, RoundOutcome, Session, SessionConfig, SpecError, StreamName, TeacherSink,
    Totals, VerifyMode,
};
use vocab_align::{DraftId, TargetId};

use super::Reading;
use super::controlled::{Controlled, timed};
use super::lengths::{Lengthy, Policy};
use super::log_probs::log_probs;
use super::seated::Seated;
use super::text::AnswerText;
use crate::ask::{Ask, Done, Event, From, Job, LogProbs, Piece, Token};
use crate::learn::Terms;
use crate::models::Target;

/// A pair of KV caches, used by one sequence at a time.
pub(crate) struct Seat {
    pub(crate) target: usize,
    pub(crate) session: Session<Engine, Seated>,
    /// Name and version of the drafter's weights.
    pub(crate) weights: (String, u64),
    pub(crate) last_used: Instant,
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
    Judged(JudgedRound),
}

/// A running answer.
pub(crate) struct Sequence {
    pub(crate) job: Job,
    pub(crate) seat: Seat,
    pub(crate) stage: Stage,
    /// Ticket of the round that is on its way to a remote target.
    pub(super) awaited: Option<u64>,
    pub(super) policy: Controlled,
    /// N-grams of this answer alone, if nothing is learnt.
    pub(crate) own_cache: Option<Box<NgramCache>>,
    pub(crate) totals: Totals,
    pub(crate) adapter: String,
    pub(super) recorder: Option<Recorder>,
    text: AnswerText,
    /// Numbers of tokens that were sent to the client, by origin.
    given: Given,
    cached: usize,
    began: Instant,
}

/// The text that an answer may copy from.
pub(super) struct Lookup {
    pub(super) source: CopySource,
    /// Costs of rounds, by which copies are weighed.
    pub(super) costs: Costs,
    /// Maximum draft length.
    pub(super) longest: usize,
}

/// Numbers of tokens of an answer. Tokens after a stop string are not counted.
#[derive(Default)]
struct Given {
    all: usize,
    drafted: usize,
    ngrams: usize,
}

impl Given {
    fn add(&mut self, from: From) {
        self.all += 1;
        self.drafted += usize::from(matches!(from, From::Drafted | From::Ngram));
        self.ngrams += usize::from(from == From::Ngram);
    }
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
            timed(&mut self.seconds, || recorder.record(index, token, logits));
        }
        if let Some(top) = self.logprobs {
            self.rows.push(log_probs(token, logits, top));
        }
    }
}

/// Session settings of a request. Block verification never accepts fewer tokens than tokenwise
/// verification, from the same distribution; without drafts every token is drawn as in plain
/// decoding.
fn settings(ask: &Ask, target: &Target, draft_top: usize, way: Option<Way>) -> SessionConfig {
    let rests = way == Some(Way::Plain);
    let (mode, acceptance) = match ask.drafting && !rests {
        true => (VerifyMode::Exact, Acceptance::Block),
        false => (VerifyMode::Tli, Acceptance::Token),
    };
    SessionConfig {
        sampling: ask.sampling,
        acceptance,
        stop: target.text.stop_tokens_unless(ask.ignore_eos),
        learn_ngrams: ask.drafting,
        drafter_reads: way.is_none_or(|way| matches!(way, Way::Learner | Way::Frozen)),
        // A remote target can only verify a draft whose probabilities are sent along.
        draft_top: target.elsewhere().map_or(0, |_| draft_top),
        ..SessionConfig::new(mode, ask.max_tokens)
    }
}

impl Sequence {
    /// Starts an answer on a slot that holds its prompt. `terms` say what the learner needs, if it
    /// learns from this answer; `own_cache` holds n-grams that this answer alone may add to.
    pub(crate) fn start(
        reading: Reading,
        target: &Target,
        (lengthy, lookup, draft_top): (Lengthy, Option<Lookup>, usize),
        controlled: Option<Answer>,
        adapter: String,
        terms: Option<Terms>,
        own_cache: Option<Box<NgramCache>>,
    ) -> Result<Self, Box<(Job, SpecError)>> {
        let Reading {
            job,
            mut seat,
            cached,
        } = reading;
        let ask = &job.ask;
        let way = controlled.as_ref().map(Answer::way);
        seat.session
            .configure(settings(ask, target, draft_top, way));
        let name = StreamName {
            sample: ask.sample,
            ..StreamName::new(ask.seed, 0)
        };
        // Without drafts the drafter need not read the prompt.
        let (verify, draft) = match ask.drafting {
            true => (Purpose::Verify, ask.prompt.draft.as_slice()),
            false => (Purpose::Plain, &ask.prompt.draft[..1]),
        };
        let prompt = Prompt {
            draft,
            target: &ask.prompt.target,
        };
        drop(seat.session.take_history());
        let lookup = lookup.map(|lookup| {
            seat.session.look_up_in(lookup.source);
            (lookup.costs, lookup.longest)
        });
        let dice = (name.dice(Purpose::Draft), name.dice(verify));
        let started = seat
            .session
            .start_with(prompt, Box::new(dice.0), Box::new(dice.1));
        let prefill = match started {
            Ok(prefill) => prefill,
            Err(error) => return Err(Box::new((job, error))),
        };
        let records = controlled.as_ref().is_none_or(Answer::records);
        let recorder = terms
            .filter(|_| ask.drafting && records)
            .map(|terms| Recorder::new(&target.pair.alignment, terms.losses));
        let policy = match ask.drafting {
            true => Policy::new(lengthy, lookup),
            false => Policy::Draft(Lengthy::Constant(ConstantLength(0))),
        };
        let mut policy = Controlled::new(policy, controlled);
        policy.read(prefill.draft);
        Ok(Self {
            policy,
            text: AnswerText::new(ask.stop.clone()),
            stage: Stage::Ready,
            awaited: None,
            own_cache,
            totals: Totals::default(),
            adapter,
            recorder,
            given: Given::default(),
            cached,
            began: Instant::now(),
            seat,
            job,
        })
    }

    /// Begins a draft if the sequence is between rounds. `shared` holds the n-grams of all
    /// sequences of this pair.
    pub(crate) fn draft(&mut self, shared: Option<&NgramCache>) -> Result<(), SpecError> {
        if !matches!(self.stage, Stage::Ready) {
            return Ok(());
        }
        let cache = self.own_cache.as_deref().or(shared);
        let drafting = self.seat.session.begin_round(cache, &mut self.policy)?;
        self.stage = Stage::Drafting(drafting);
        Ok(())
    }

    /// The tokens that the drafter reads next, with its engine.
    pub(crate) fn draft_input(&mut self) -> Option<(&mut Engine, &[DraftId])> {
        match &self.stage {
            Stage::Drafting(round) if !round.input().is_empty() => {
                Some((self.seat.session.drafting_model(), round.input()))
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
        let session = &mut self.seat.session;
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
        let drafted = self.seat.session.end_draft(round, cache)?;
        self.stage = Stage::Drafted(drafted);
        Ok(())
    }

    /// The tokens that the target scores in this round, with its engine.
    pub(crate) fn input(&mut self) -> Option<(&mut Engine, &[TargetId])> {
        match (&self.stage, self.seat.session.target_mut()) {
            (Stage::Drafted(round), Seated::Here(engine)) => Some((engine, round.input())),
            _ => None,
        }
    }

    /// Verifies the draft with the target's logits.
    pub(crate) fn judge(
        &mut self,
        shared: Option<&NgramCache>,
        logits: &[f32],
    ) -> Result<(), SpecError> {
        let Stage::Drafted(round) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(());
        };
        let cache = self.own_cache.as_deref().or(shared);
        let judged = self.seat.session.judge_round(round, cache, logits)?;
        self.stage = Stage::Judged(judged);
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
        let Stage::Judged(round) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(Some(Progress::default()));
        };
        let cache = self.own_cache.as_deref_mut().or(shared);
        let mut sink = Sink {
            recorder: self.recorder.as_mut(),
            seconds: 0.0,
            logprobs: self.job.ask.logprobs,
            rows: Vec::new(),
        };
        let session = &mut self.seat.session;
        let outcome = session.commit_round(round, logits, cache, &mut self.policy, &mut sink)?;
        let (rows, recording) = (sink.rows, sink.seconds);
        self.policy.take_in(&outcome, recording, alone);
        self.totals.add(&outcome);
        let piece = self.piece(&outcome, rows, target);
        let ended = self.text.ended();
        let finish = self.seat.session.finished();
        let reason = match (ended, finish) {
            (true, _) | (false, Some(Finish::Stop(_))) => Some("stop"),
            (false, Some(_)) => Some("length"),
            (false, None) => None,
        };
        if !self.job.tell(Event::Piece(piece)) {
            return Ok(None);
        }
        Ok(Some(Progress {
            outcome: Some(outcome),
            reason,
        }))
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
            let from = origin(outcome, i);
            self.given.add(from);
            piece.tokens.push(Token {
                id,
                from,
                text,
                logprobs,
            });
        }
        piece
    }

    /// Number of tokens that were sent to the client.
    pub(crate) fn given(&self) -> usize {
        self.given.all
    }

    /// Sends the end of the answer to the client.
    pub(crate) fn tell_end(&mut self, reason: &'static str) {
        let rest = self.text.finish();
        if !rest.is_empty() {
            let tokens = Vec::new();
            self.job.tell(Event::Piece(Piece { text: rest, tokens }));
        }
        let totals = &self.totals;
        self.job.end(Event::Done(Done {
            reason,
            prompt_tokens: self.job.ask.prompt.target.len(),
            cached_tokens: self.cached,
            tokens: self.given.all,
            rounds: totals.rounds,
            proposed: totals.proposed,
            accepted: self.given.drafted,
            ngrams: self.given.ngrams,
            seconds: self.began.elapsed().as_secs_f64(),
        }));
    }

    /// The example that the answer gives the drafter, if any.
    pub(crate) fn example(
        &mut self,
        target: &Target,
        terms: Option<Terms>,
        positions: usize,
    ) -> Option<Example> {
        let (recorder, terms) = (self.recorder.take()?, terms?);
        let session = &self.seat.session;
        let response = session.response();
        if response.is_empty() {
            return None;
        }
        let example = Example::new(
            (session.draft_context(), session.draft_lengths()),
            self.job.ask.prompt.draft.len(),
            response,
            recorder,
            &target.pair,
            terms.losses,
            terms.ends,
        );
        let mut example = example.within(positions, &target.pair.draft);
        example.sampled = !self.job.ask.sampling.is_greedy();
        if terms.blocks > 0 {
            let read: Vec<DraftId> = example.read().iter().copied().map(DraftId).collect();
            let session = &mut self.seat.session;
            let states = session.let_drafter_read(&read, |drafter| {
                Ok::<_, anyhow::Error>(drafter.states_of(example.read())?.to_vec())
            });
            match states {
                Ok(states) => example.states = states,
                Err(error) => {
                    tracing::warn!("an answer teaches nothing: {error:#}");
                    return None;
                }
            }
        }
        Some(example)
    }

    /// The text of the answer, where it was looked up.
    pub(super) fn take_source(&mut self) -> Option<CopySource> {
        self.seat.session.take_history()
    }

    /// Releases the slot, with its caches as they are.
    pub(crate) fn stand_up(self) -> (Seat, Job) {
        let mut seat = self.seat;
        if self.awaited.is_some()
            && let Seated::Elsewhere(target) = seat.session.target_mut()
        {
            // A reply that is still on its way must not meet the rounds of the next answer.
            target.renew(crate::http::fresh_number());
        }
        seat.last_used = Instant::now();
        (seat, self.job)
    }
}

/// Result of a committed round.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) outcome: Option<RoundOutcome>,
    /// Reason for which the answer has ended, if it has.
    pub(crate) reason: Option<&'static str>,
}

/// Origin of the `i`-th emitted token of a round.
fn origin(outcome: &RoundOutcome, i: usize) -> From {
    match outcome.proposals.get(i) {
        Some(proposal) if i < outcome.accepted => match proposal.kind {
            ngram_cache::Kind::Ngram => From::Ngram,
            ngram_cache::Kind::Direct => From::Drafted,
        },
        Some(_) => From::Corrected,
        None => From::Target,
    }
}

impl Seat {
    /// A slot with empty caches.
    pub(crate) fn new(
        target: usize,
        session: Session<Engine, Seated>,
        weights: (String, u64),
    ) -> Self {
        Self {
            target,
            session,
            weights,
            last_used: Instant::now(),
        }
    }
}

/// The data that the learner needs of an answer.
pub(crate) fn terms_of(learner: &Learner) -> Terms {
    Terms {
        losses: learner.terms(),
        ends: learner.ends(),
        blocks: learner.blocks(),
    }
}

/// Maximum number of positions of a drafter.
pub(crate) fn positions(drafter: &models::ModelFolder<DraftId>) -> usize {
    drafter.config().max_position_embeddings
}
