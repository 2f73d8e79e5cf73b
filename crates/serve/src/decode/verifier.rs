//! Verification of drafts of other servers, with the KV caches that belong to them.

use std::time::{Duration, Instant};

use lm::EngineSettings;
use models::Engine;
use spec_decode::{Acceptance, LanguageModel, Purpose, Rows, Sampling, StreamName};
use tokio::sync::oneshot;
use vocab_align::{TargetId, raw_ids};

use crate::error::{Result, ServeError};
use crate::models::{Models, Target};
use crate::remote::wire::{self, Answers, Refusal, Round, RoundVerdict, digest};

/// Maximum number of tokens of the target's distribution that are sent back for each emitted token.
const MAX_TOP: u32 = 1024;

/// Rounds that wait for the next step, with the channel for their answers.
pub(crate) struct VerifyRequest {
    pub(crate) target: usize,
    pub(crate) rounds: Vec<Round>,
    pub(crate) reply: oneshot::Sender<Answers>,
}

/// A KV cache for drafts of one session of another server.
struct Verifier {
    session: u64,
    target: usize,
    engine: Engine,
    /// Tokens that the cache holds.
    text: Vec<TargetId>,
    last_used: Instant,
}

/// A round that is being verified.
struct OpenRound {
    /// Index of its request among those that wait, and of the round in it.
    index: (usize, usize),
    round: Round,
    sampling: Sampling,
    /// Index of its verifier.
    at: usize,
    /// Tokens that are scored: the last token of the text, and the proposals.
    input: Vec<TargetId>,
}

/// The KV caches for drafts of other servers, and the rounds that wait for them.
#[derive(Default)]
pub(crate) struct Verifiers {
    all: Vec<Verifier>,
    limit: usize,
    idle: Duration,
    /// Rounds for the next step.
    pub(super) waiting: Vec<VerifyRequest>,
    /// Rounds of the present step, by verifier.
    open: Vec<OpenRound>,
    /// Answers to the rounds, by request.
    answers: Vec<Vec<Result<RoundVerdict, Refusal>>>,
}

impl Verifiers {
    /// At most `limit` caches, each freed when it was unused for `idle`.
    pub(crate) fn new(limit: usize, idle: Duration) -> Self {
        Self {
            limit,
            idle,
            ..Self::default()
        }
    }

    pub(crate) fn sessions(&self) -> usize {
        self.all.len()
    }

    /// Begins a step: finds or creates the caches of the waiting rounds, and reads the new tokens
    /// of their texts.
    pub(crate) fn begin(&mut self, models: &Models, settings: EngineSettings) {
        let idle = self.idle;
        self.all
            .retain(|verifier| verifier.last_used.elapsed() < idle);
        let mut waiting = std::mem::take(&mut self.waiting);
        for (request, group) in waiting.iter_mut().enumerate() {
            let unanswered = || Err(Refusal::Failed("it was not scored".into()));
            let mut answers = Vec::new();
            for (i, round) in std::mem::take(&mut group.rounds).into_iter().enumerate() {
                answers.push(unanswered());
                let index = (request, i);
                match self.open(round, index, group.target, models, settings) {
                    Ok(open) => self.open.push(open),
                    Err(refusal) => answers[i] = Err(refusal),
                }
            }
            self.answers.push(answers);
        }
        self.waiting = waiting;
        self.open.sort_by_key(|open| open.at);
    }

    /// Ends a step: sends the answers.
    pub(crate) fn end(&mut self) {
        self.open.clear();
        for (waiting, answers) in self.waiting.drain(..).zip(self.answers.drain(..)) {
            // The client may have hung up.
            let _ = waiting.reply.send(answers);
        }
    }

    fn open(
        &mut self,
        round: Round,
        index: (usize, usize),
        target: usize,
        models: &Models,
        settings: EngineSettings,
    ) -> Result<OpenRound, Refusal> {
        let impossible = |e: &dyn std::fmt::Display| Refusal::Impossible(e.to_string());
        let sampling = Sampling::with_options(round.sampling).map_err(|e| impossible(&e))?;
        let entry = &models.targets[target];
        let vocab = entry.vocab_size;
        round
            .draft
            .check(vocab, sampling)
            .map_err(|e| impossible(&e))?;
        let Some((&last, rest)) = round.append.split_last() else {
            return Err(impossible(&"no text"));
        };
        if let Some(token) = round.append.iter().find(|token| token.0 as usize >= vocab) {
            return Err(impossible(&format_args!(
                "token {token} is none of the target's"
            )));
        }
        let engine = || engine(entry, settings).map_err(|e| Refusal::Failed(e.in_full()));
        let at = self.find(&round, target, engine)?;
        let verifier = &mut self.all[at];
        let keep = round.keep as usize;
        let input: Vec<TargetId> = std::iter::once(last)
            .chain(round.draft.proposals.iter().copied())
            .collect();
        if keep + rest.len() + input.len() > verifier.engine.max_len() {
            return Err(Refusal::TooLong);
        }
        verifier.text.truncate(keep);
        verifier.engine.truncate(keep);
        if let Err(error) = verifier.engine.prefill(&raw_ids(rest)) {
            self.all[at].text.clear();
            return Err(Refusal::Failed(error.to_string()));
        }
        verifier.text.extend_from_slice(rest);
        verifier.last_used = Instant::now();
        Ok(OpenRound {
            index,
            round,
            sampling,
            at,
            input,
        })
    }

    /// Index of a round's cache, after a check that it holds the tokens that the round relies on.
    fn find(
        &mut self,
        round: &Round,
        target: usize,
        engine: impl Fn() -> Result<Engine, Refusal>,
    ) -> Result<usize, Refusal> {
        let keep = round.keep as usize;
        let taken = |at: usize| self.open.iter().any(|open| open.at == at);
        let own = |v: &Verifier| v.session == round.session && v.target == target;
        if let Some(at) = self.all.iter().position(own) {
            let held = self.all[at].text.get(..keep);
            return match held.is_some_and(|held| digest(held) == round.digest) {
                // A client sends at most one round of a session at a time.
                _ if taken(at) => Err(Refusal::Impossible("a session twice".into())),
                true => Ok(at),
                false => Err(Refusal::Unknown),
            };
        }
        if keep > 0 {
            return Err(Refusal::Unknown);
        }
        if self.all.len() < self.limit {
            self.all.push(Verifier {
                session: round.session,
                target,
                engine: engine()?,
                text: Vec::new(),
                last_used: Instant::now(),
            });
            return Ok(self.all.len() - 1);
        }
        // The cache that was unused for longest is replaced: its client sends the whole text again.
        let free = (0..self.all.len()).filter(|at| !taken(*at));
        let at = free.min_by_key(|at| self.all[*at].last_used);
        let at = at.ok_or(Refusal::Busy)?;
        let verifier = &mut self.all[at];
        if verifier.target != target {
            verifier.engine = engine()?;
        }
        verifier.engine.truncate(0);
        verifier.text.clear();
        (verifier.session, verifier.target) = (round.session, target);
        Ok(at)
    }

    /// The tokens to be scored for a target, in order.
    pub(crate) fn inputs(&mut self, target: usize) -> Vec<(&mut Engine, &[TargetId])> {
        let mut open = self.open.iter().peekable();
        let mut inputs = Vec::new();
        for (at, verifier) in self.all.iter_mut().enumerate() {
            if let Some(open) = open.next_if(|open| open.at == at)
                && verifier.target == target
            {
                inputs.push((&mut verifier.engine, open.input.as_slice()));
            }
        }
        inputs
    }

    /// Verifies the rounds of a target with the logits of [`inputs`](Self::inputs), or fails them
    /// all.
    pub(crate) fn verify(&mut self, target: usize, vocab: usize, logits: Result<&[f32], &str>) {
        let mut from = 0;
        for open in &self.open {
            let verifier = &mut self.all[open.at];
            if verifier.target != target {
                continue;
            }
            let count = open.input.len() * vocab;
            let answer = logits.map_err(|error| Refusal::Failed(error.to_owned()));
            let answer = answer.and_then(|logits| {
                verifier.text.push(open.input[0]);
                let rows = logits.get(from..from + count).unwrap_or_default();
                open.verify(&verifier.text, vocab, rows)
            });
            from += count;
            match &answer {
                Ok(_) => verifier.text.extend_from_slice(&open.input[1..]),
                // The content of the cache is unknown after a failure.
                Err(_) => verifier.text.clear(),
            }
            let (request, round) = open.index;
            self.answers[request][round] = answer;
        }
    }
}

/// A new cache of a target.
fn engine(target: &Target, settings: EngineSettings) -> Result<Engine> {
    match target.folder() {
        Some(folder) => Ok(folder.engine(settings)?),
        None => Err(ServeError::said("the target is elsewhere")),
    }
}

impl OpenRound {
    /// Verifies one round. `text` is the text that the target has read before the first logits.
    fn verify(
        &self,
        text: &[TargetId],
        vocab: usize,
        logits: &[f32],
    ) -> Result<RoundVerdict, Refusal> {
        let failed = |e: &dyn std::fmt::Display| Refusal::Failed(e.to_string());
        let rows = Rows::new(logits, vocab, self.input.len());
        let rows = rows.ok_or_else(|| failed(&"rows of another shape"))?;
        let acceptance = match self.round.block {
            true => Acceptance::Block,
            false => Acceptance::Token,
        };
        let (seed, prompt, sample) = self.round.coins;
        let name = StreamName {
            seed,
            prompt,
            sample,
        };
        let mut dice = name.dice(Purpose::Verify);
        let verdict = self
            .round
            .draft
            .judge(acceptance, rows, self.sampling, text, &mut dice)
            .map_err(|e| failed(&e))?;
        let top = self.round.top.min(MAX_TOP) as usize;
        let emitted = match top {
            0 => 0,
            _ => verdict.accepted + 1,
        };
        let emitted = (0..emitted).map(|position| rows.row(position));
        Ok(RoundVerdict {
            accepted: verdict.accepted as u32,
            last: verdict.last,
            origin: verdict.origin,
            scores: verdict.scores.iter().map(|s| s.target as f32).collect(),
            rows: wire::Rows::new(vocab, top.min(vocab), emitted),
        })
    }
}
