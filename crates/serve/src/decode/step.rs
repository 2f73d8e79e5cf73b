//! A step: one round of every sequence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{LanguageModel, SpecError};
use vocab_align::{DraftId, TargetId};

use super::seated::Seated;
use super::sequence::{Progress, Sequence, Stage, positions};
use super::{Decoder, Failures, Reading, fail_with, shared};
use crate::ask::Event;
use crate::error::ApiError;
use crate::learn::Mailbox;
use crate::remote::wire::{Judgement, Refusal};
use crate::stats::Step;

/// Time between two measurements of a plain step.
const PROBE: Duration = Duration::from_secs(5);

impl Decoder {
    /// One round of every sequence.
    pub(super) fn step(&mut self) {
        let began = Instant::now();
        self.leave_abandoned();
        self.read_prompts();
        if self.running.is_empty() && self.verifiers.is_idle() {
            return;
        }
        self.probe();
        self.open_rounds();
        let mut failed = Failures::new();
        self.draft(&mut failed);
        let drafted = Instant::now();
        let mut step = Step {
            sequences: self.running.len(),
            target: match &self.running[..] {
                [only] => Some(only.seat.target),
                _ => None,
            },
            draft_seconds: (drafted - began).as_secs_f64(),
            ..Step::default()
        };
        let mut ended = Vec::new();
        for target in 0..self.models.targets.len() {
            match self.models.targets[target].elsewhere().is_some() {
                true => self.verify_elsewhere(target, &mut step, &mut failed, &mut ended),
                false => self.verify(target, &mut step, &mut failed, &mut ended),
            }
        }
        self.verifiers.end();
        step.seconds = began.elapsed().as_secs_f64();
        self.stats.step(&step);
        self.leave(failed, ended);
    }

    /// Drafts for every sequence, a token of all of them at a time: one forward for those whose
    /// drafters have the same weights.
    pub(super) fn draft(&mut self, failed: &mut Failures) {
        self.each(failed, |sequence, shared| sequence.draft(shared));
        loop {
            let inputs = self.running.iter_mut().filter_map(Sequence::draft_input);
            let mut inputs: Vec<(&mut Engine, &[DraftId])> = inputs.collect();
            if inputs.is_empty() {
                break;
            }
            let read = Engine::forward_together(&mut inputs, &mut self.draft_logits);
            if let Err(error) = &read {
                tracing::error!("a forward of the drafter failed: {error}");
            }
            let vocab = self.models.drafter.config().vocab_size;
            let logits = std::mem::take(&mut self.draft_logits);
            let mut at = 0;
            self.each(failed, |sequence, shared| {
                let Some((_, input)) = sequence.draft_input() else {
                    return Ok(());
                };
                let range = at..at + input.len() * vocab;
                at = range.end;
                // Without rows it fails, and leaves.
                let rows = logits.get(range).filter(|_| read.is_ok());
                let taken = sequence.draft_token(shared, rows.unwrap_or_default());
                if taken.is_err() {
                    sequence.stage = Stage::Ready;
                }
                taken
            });
            self.draft_logits = logits;
        }
        self.each(failed, |sequence, shared| sequence.end_draft(shared));
    }

    /// Does something with every sequence and the n-grams that it shares.
    fn each(
        &mut self,
        failed: &mut Failures,
        mut act: impl FnMut(&mut Sequence, Option<&NgramCache>) -> Result<(), SpecError>,
    ) {
        for (i, sequence) in self.running.iter_mut().enumerate() {
            let shared = shared(&self.caches, &self.cache_of, sequence);
            if let Err(error) = act(sequence, shared) {
                failed.push((i, ApiError::Internal(error.to_string())));
            }
        }
    }

    /// Scores the drafts for one target in one forward, judges them, and then commits them.
    pub(super) fn verify(
        &mut self,
        target: usize,
        step: &mut Step,
        failed: &mut Failures,
        ended: &mut Vec<(usize, Option<&'static str>)>,
    ) {
        let clock = Instant::now();
        let own = |sequence: &&mut Sequence| sequence.seat.target == target;
        let mut inputs: Vec<(&mut Engine, &[TargetId])> = self
            .running
            .iter_mut()
            .filter(own)
            .filter_map(Sequence::input)
            .collect();
        inputs.extend(self.verifiers.inputs(target));
        if inputs.is_empty() {
            return;
        }
        let scored = Engine::forward_together(&mut inputs, &mut self.logits);
        step.target_seconds += clock.elapsed().as_secs_f64();
        step.forwards += 1;
        let error = scored.err();
        if let Some(error) = &error {
            tracing::error!("a forward failed: {error}");
        }
        let entry = &self.models.targets[target];
        let vocab = entry.vocab_size;
        // Where each sequence's rows are.
        let (mut at, mut rows) = (0, Vec::new());
        for (i, sequence) in self.running.iter_mut().enumerate() {
            if sequence.seat.target != target {
                continue;
            }
            let Some(count) = sequence.input().map(|(_, ids)| ids.len()) else {
                continue;
            };
            let range = at..at + count * vocab;
            at = range.end;
            let shared = shared(&self.caches, &self.cache_of, sequence);
            let logits = match &error {
                None => self.logits.get(range.clone()).unwrap_or_default(),
                // A failed forward is the failure of every sequence in it.
                Some(_) => &[],
            };
            match sequence.judge(shared, logits) {
                Ok(()) => rows.push((i, range)),
                Err(error) => failed.push((i, ApiError::Internal(error.to_string()))),
            }
        }
        let said = error.as_ref().map(ToString::to_string);
        let behind = self.logits.get(at..).unwrap_or_default();
        self.verifiers
            .judge(target, vocab, said.as_deref().map_or(Ok(behind), Err));
        let logits = std::mem::take(&mut self.logits);
        for (i, range) in rows {
            let rows = logits.get(range).unwrap_or_default();
            self.commit(i, rows, step, failed, ended);
        }
        self.logits = logits;
    }

    /// Now and then, while one answer is made, measures a plain step where it stands.
    fn probe(&mut self) {
        let [only] = &mut self.running[..] else {
            return;
        };
        let target = only.seat.target;
        if self.probed.is_some_and(|last| last.elapsed() < PROBE) {
            return;
        }
        let Seated::Here(engine) = only.seat.session.target_mut() else {
            return;
        };
        self.probed = Some(Instant::now());
        let held = LanguageModel::<TargetId>::len(engine);
        if held >= LanguageModel::<TargetId>::max_len(engine) {
            return;
        }
        let clock = Instant::now();
        let read = engine.forward(&[TargetId(0)], &mut self.logits);
        let seconds = clock.elapsed().as_secs_f64();
        LanguageModel::<TargetId>::truncate(engine, held);
        if read.is_ok() {
            self.stats.plain_step(target, seconds);
        }
    }

    /// Begins the rounds of drafts that were made elsewhere.
    pub(super) fn open_rounds(&mut self) {
        let (models, options) = (&self.models, &self.options);
        let engine = |target: usize| match models.targets[target].folder() {
            Some(folder) => folder.engine(options.engine),
            None => anyhow::bail!("the target is elsewhere"),
        };
        let vocab = |target: usize| models.targets[target].vocab_size;
        self.verifiers.begin(engine, vocab);
        self.stats.sessions(self.verifiers.sessions());
    }

    /// Has the drafts for a target elsewhere judged there, in one round trip, and commits them.
    pub(super) fn verify_elsewhere(
        &mut self,
        target: usize,
        step: &mut Step,
        failed: &mut Failures,
        ended: &mut Vec<(usize, Option<&'static str>)>,
    ) {
        let clock = Instant::now();
        let models = Arc::clone(&self.models);
        let entry = &models.targets[target];
        let Some(remote) = entry.elsewhere() else {
            return;
        };
        let mut of: Vec<usize> = (0..self.running.len())
            .filter(|i| self.running[*i].seat.target == target)
            .collect();
        let mut judged: Vec<(usize, Judgement)> = Vec::new();
        // A second time where texts have to be sent again as a whole.
        for _ in 0..2 {
            let mut asked = Vec::new();
            let mut rounds = Vec::new();
            for i in std::mem::take(&mut of) {
                let sequence = &mut self.running[i];
                let shared = shared(&self.caches, &self.cache_of, sequence);
                match sequence.remote_round(shared, self.options.remote.law_top) {
                    None => {}
                    Some(Ok(round)) => {
                        asked.push(i);
                        rounds.push(round);
                    }
                    Some(Err(e)) => failed.push((i, ApiError::Internal(e.to_string()))),
                }
            }
            if rounds.is_empty() {
                break;
            }
            let answers = remote.judge(rounds);
            step.forwards += 1;
            match answers {
                Err(error) => {
                    let error = ApiError::Target(format!("{error:#}"));
                    failed.extend(asked.into_iter().map(|i| (i, error.clone())));
                }
                Ok(answers) => {
                    for (i, answer) in asked.into_iter().zip(answers) {
                        match answer {
                            Ok(judgement) => judged.push((i, judgement)),
                            Err(Refusal::Unknown) => {
                                self.running[i].forget_remote();
                                of.push(i);
                            }
                            Err(refusal) => {
                                failed.push((i, ApiError::Target(refusal.to_string())));
                            }
                        }
                    }
                }
            }
        }
        let lost = |i| (i, ApiError::Target(Refusal::Unknown.to_string()));
        failed.extend(of.into_iter().map(lost));
        step.target_seconds += clock.elapsed().as_secs_f64();
        self.stats.traffic(target, &remote.traffic);
        for (i, judgement) in judged {
            match self.running[i].settle(&judgement) {
                Ok(logits) => self.commit(i, &logits, step, failed, ended),
                Err(error) => failed.push((i, ApiError::Internal(error.to_string()))),
            }
        }
    }

    /// Commits a judged round.
    pub(super) fn commit(
        &mut self,
        i: usize,
        logits: &[f32],
        step: &mut Step,
        failed: &mut Failures,
        ended: &mut Vec<(usize, Option<&'static str>)>,
    ) {
        let sequence = &mut self.running[i];
        let target = sequence.seat.target;
        let cache = self.caches.get_mut(&self.cache_of[target]);
        let entry = &self.models.targets[target];
        match sequence.commit(cache.map(|cache| &mut **cache), logits, entry) {
            Err(error) => failed.push((i, ApiError::Internal(error.to_string()))),
            Ok(None) => ended.push((i, None)),
            Ok(Some(Progress { outcome, reason })) => {
                if let Some(outcome) = outcome {
                    if self.options.adapt_length && sequence.job.ask.drafting {
                        let (lengths, alone) = (&mut self.lengths[target], step.sequences == 1);
                        lengths.observe(sequence.policy.scores(), &outcome, alone);
                    }
                    step.add(sequence.job.ask.drafting, &outcome);
                }
                if reason.is_some() {
                    ended.push((i, reason));
                }
            }
        }
    }

    /// Frees the seats of answers that have ended or failed.
    pub(super) fn leave(&mut self, failed: Failures, ended: Vec<(usize, Option<&'static str>)>) {
        let mut reasons: Vec<(usize, Result<Option<&'static str>, ApiError>)> = failed
            .into_iter()
            .map(|(i, error)| (i, Err(error)))
            .chain(ended.into_iter().map(|(i, reason)| (i, Ok(reason))))
            .collect();
        // From the back, so that indices stay what they are.
        reasons.sort_by_key(|(i, _)| std::cmp::Reverse(*i));
        reasons.dedup_by_key(|(i, _)| *i);
        for (i, reason) in reasons {
            let mut sequence = self.running.remove(i);
            let target = &self.models.targets[sequence.seat.target];
            match reason {
                Ok(Some(reason)) => {
                    sequence.tell_end(reason);
                    let terms = self.learner.as_ref().map(Mailbox::terms);
                    let room = positions(&self.models.drafter);
                    if let Some(example) = sequence.example(target, terms, room)
                        && let Some(learner) = &self.learner
                    {
                        learner.offer(&sequence.adapter, example, &self.stats);
                    }
                    self.stats
                        .answer(&target.name, &sequence.totals, sequence.job.ask.drafting);
                }
                Ok(None) => self.stats.cancelled(),
                Err(error) => fail_with(&mut sequence.job, error, &self.stats),
            }
            let (seat, _) = sequence.stand_up();
            self.idle.push(seat);
        }
    }

    /// Answers that nobody waits for any more, or that took too long.
    pub(super) fn leave_abandoned(&mut self) {
        let limit = self.options.timeout;
        let mut i = 0;
        while i < self.running.len() {
            let job = &self.running[i].job;
            let late = job.arrived.elapsed() > limit;
            if !late && !job.abandoned() {
                i += 1;
                continue;
            }
            if late {
                job.tell(Event::Failed(ApiError::Timeout(limit.as_secs())));
            }
            self.stats.cancelled();
            let (seat, _) = self.running.remove(i).stand_up();
            self.idle.push(seat);
        }
        let (late, reading): (VecDeque<Reading>, VecDeque<Reading>) =
            std::mem::take(&mut self.reading)
                .into_iter()
                .partition(|reading| {
                    reading.job.arrived.elapsed() > limit || reading.job.abandoned()
                });
        self.reading = reading;
        for Reading { job, seat, .. } in late {
            job.tell(Event::Failed(ApiError::Timeout(limit.as_secs())));
            self.stats.cancelled();
            self.idle.push(seat);
        }
    }
}
