//! A step: one round of every sequence.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use adaptive_draft::{Forwards, SharedStep};
use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{LanguageModel, SpecError};
use vocab_align::{DraftId, TargetId};

use super::sequence::{Prefilling, Progress, Sequence, Stage};
use super::target_model::TargetModel;
use super::{Decoder, Ended, fail_with, shared};
use crate::error::ApiError;
use crate::stats::Step;

/// Time between two measurements of a plain step.
const PROBE: Duration = Duration::from_secs(5);

/// Verified rounds of one target that are not committed yet.
#[derive(Default)]
struct JudgedStep {
    logits: Vec<f32>,
    /// Index of each sequence, with the range of its logits.
    rows: Vec<(usize, Range<usize>)>,
    forward: Forwards,
    /// Seconds of verification.
    rest: f64,
    /// True if drafts of other servers were scored too.
    peer_drafts: bool,
}

impl Decoder {
    /// One round of every sequence.
    pub(super) fn step(&mut self) {
        let began = Instant::now();
        self.end_abandoned();
        self.prefill();
        if !self.is_busy() {
            return;
        }
        self.probe();
        let mut step = Step {
            prompt_seconds: began.elapsed().as_secs_f64(),
            alone: self.running.len() == 1,
            target: match &self.running[..] {
                [only] => Some(only.slot.target),
                _ => None,
            },
            ..Step::default()
        };
        let mut ended = Ended::new();
        self.commit_replies(&mut step, &mut ended);
        // An answer that ended by a reply does not draft again.
        self.end_answers(std::mem::take(&mut ended));
        self.open_rounds();
        let only = self.only_target();
        let drafted = self.draft(&mut ended);
        step.draft_seconds = began.elapsed().as_secs_f64();
        self.send_rounds(&mut step, &mut ended);
        // All drafts are verified before any is committed: targets of one vocabulary share an
        // n-gram cache, and a draft must be verified with the n-grams that it was drafted with.
        let targets = 0..self.models.targets.len();
        let judged: Vec<JudgedStep> = targets
            .map(|target| self.judge(target, &mut step, &mut ended))
            .collect();
        for (target, judged) in judged.into_iter().enumerate() {
            let clock = Instant::now();
            for (i, range) in judged.rows {
                let rows = judged.logits.get(range).unwrap_or_default();
                self.commit(i, rows, &mut step, &mut ended);
            }
            self.logits[target] = judged.logits;
            // A step without drafts says nothing of their cost, and drafts of other servers are not
            // drafted here.
            let counts = drafted.calls > 0 && judged.forward.calls > 0 && !judged.peer_drafts;
            if only == Some(target) && counts {
                self.costs[target].shared.observe(&SharedStep {
                    draft: drafted,
                    verify: judged.forward,
                    rest: judged.rest + clock.elapsed().as_secs_f64(),
                });
            }
        }
        self.verifiers.end();
        step.seconds = began.elapsed().as_secs_f64();
        self.stats.step(&step);
        self.end_answers(ended);
    }

    /// Drafts for all sequences, one token of each at a time, in one forward for those whose
    /// drafters have the same weights. Returns the costs.
    pub(super) fn draft(&mut self, ended: &mut Ended) -> Forwards {
        let (clock, mut forwards) = (Instant::now(), Forwards::default());
        // Alternatives are scored in forwards of one sequence.
        let alternatives = match self.running.len() {
            1 => self.options.alternatives,
            _ => 0,
        };
        self.each(ended, |sequence, shared| {
            sequence.draft(shared, alternatives)
        });
        loop {
            let inputs = self.running.iter_mut().filter_map(Sequence::draft_input);
            let mut inputs: Vec<(&mut Engine, &[DraftId])> = inputs.collect();
            if inputs.is_empty() {
                break;
            }
            forwards.calls += 1;
            forwards.sequences += inputs.len();
            forwards.tokens += inputs.iter().map(|(_, ids)| ids.len()).sum::<usize>();
            let read = Engine::forward_together(&mut inputs, &mut self.draft_logits);
            forwards.passes += *read.as_ref().unwrap_or(&1);
            if let Err(error) = &read {
                tracing::error!("a forward of the drafter failed: {error}");
            }
            let vocab = self.models.drafter.config().vocab_size;
            let logits = std::mem::take(&mut self.draft_logits);
            let mut at = 0;
            self.each(ended, |sequence, shared| {
                let Some((_, input)) = sequence.draft_input() else {
                    return Ok(());
                };
                let range = at..at + input.len() * vocab;
                at = range.end;
                // Without logits the sequence fails and ends.
                let rows = logits.get(range).filter(|_| read.is_ok());
                let taken = sequence.draft_token(shared, rows.unwrap_or_default());
                if taken.is_err() {
                    sequence.stage = Stage::Ready;
                }
                taken
            });
            self.draft_logits = logits;
        }
        self.each(ended, |sequence, shared| sequence.end_draft(shared));
        forwards.seconds = clock.elapsed().as_secs_f64();
        forwards
    }

    /// Calls `act` with every sequence and the n-grams that it shares.
    fn each(
        &mut self,
        ended: &mut Ended,
        mut act: impl FnMut(&mut Sequence, Option<&NgramCache>) -> Result<(), SpecError>,
    ) {
        for (i, sequence) in self.running.iter_mut().enumerate() {
            let shared = shared(&self.known, &self.models, sequence);
            if let Err(error) = act(sequence, shared) {
                ended.push((i, Err(ApiError::Internal(error.to_string()))));
            }
        }
    }

    /// Scores the drafts for one target in one forward and verifies them.
    fn judge(&mut self, target: usize, step: &mut Step, ended: &mut Ended) -> JudgedStep {
        let clock = Instant::now();
        let mut logits = std::mem::take(&mut self.logits[target]);
        let own = |sequence: &&mut Sequence| sequence.slot.target == target && sequence.rows() > 0;
        let mut own: Vec<&mut Sequence> = self.running.iter_mut().filter(own).collect();
        let sequences = own.len();
        let mut drafts = self.verifiers.inputs(target);
        let peer_drafts = !drafts.is_empty();
        let alternatives = self.options.alternatives;
        let (scored, tokens) = match &mut own[..] {
            [] if !peer_drafts => {
                self.logits[target] = logits;
                return JudgedStep::default();
            }
            [only] if !peer_drafts && alternatives > 0 => {
                let scored = only.score_alone(&mut logits);
                (
                    scored.map(|()| 1).map_err(|error| online::in_full(&error)),
                    only.rows(),
                )
            }
            _ => {
                let inputs = own.into_iter().filter_map(Sequence::input);
                let mut inputs: Vec<(&mut Engine, &[TargetId])> = inputs.collect();
                inputs.append(&mut drafts);
                let tokens = inputs.iter().map(|(_, ids)| ids.len()).sum();
                let scored = Engine::forward_together(&mut inputs, &mut logits);
                (scored.map_err(|e| e.to_string()), tokens)
            }
        };
        let forward = Forwards {
            calls: 1,
            passes: *scored.as_ref().unwrap_or(&1),
            sequences,
            tokens,
            seconds: clock.elapsed().as_secs_f64(),
        };
        step.alone &= sequences == 1 && !peer_drafts;
        step.target_seconds += forward.seconds;
        step.forwards += 1;
        let error = scored.err();
        if let Some(error) = &error {
            tracing::error!("a forward failed: {error}");
        }
        let entry = &self.models.targets[target];
        let vocab = entry.vocab_size;
        // The range of each sequence's logits.
        let (mut at, mut rows) = (0, Vec::new());
        for (i, sequence) in self.running.iter_mut().enumerate() {
            if sequence.slot.target != target {
                continue;
            }
            let count = sequence.rows();
            if count == 0 {
                continue;
            }
            let range = at..at + count * vocab;
            at = range.end;
            let shared = shared(&self.known, &self.models, sequence);
            let scored = match &error {
                None => logits.get(range.clone()).unwrap_or_default(),
                // A failed forward fails every sequence in it.
                Some(_) => &[],
            };
            match sequence.verify(shared, scored) {
                Ok(()) => rows.push((i, range)),
                Err(error) => ended.push((i, Err(ApiError::Internal(error.to_string())))),
            }
        }
        let behind = logits.get(at..).unwrap_or_default();
        self.verifiers
            .verify(target, vocab, error.as_deref().map_or(Ok(behind), Err));
        JudgedStep {
            logits,
            rows,
            forward,
            rest: clock.elapsed().as_secs_f64() - forward.seconds,
            peer_drafts,
        }
    }

    /// Measures a plain step at intervals of [`PROBE`], at the present context, while one answer
    /// runs.
    fn probe(&mut self) {
        let [only] = &mut self.running[..] else {
            return;
        };
        let target = only.slot.target;
        if self.probed.is_some_and(|last| last.elapsed() < PROBE) {
            return;
        }
        let TargetModel::Local(engine) = only.slot.session.target_mut() else {
            return;
        };
        self.probed = Some(Instant::now());
        let held = engine.len();
        if held >= engine.max_len() {
            return;
        }
        let clock = Instant::now();
        let read = engine.forward(&[0], &mut self.logits[target]);
        let seconds = clock.elapsed().as_secs_f64();
        engine.truncate(held);
        if read.is_ok() {
            self.stats.plain_step(target, seconds);
        }
    }

    /// Begins the verification of drafts of other servers.
    pub(super) fn open_rounds(&mut self) {
        self.verifiers.begin(&self.models, self.options.engine);
        self.stats.counters().sessions = self.verifiers.sessions();
    }

    /// Commits a verified round.
    pub(super) fn commit(&mut self, i: usize, logits: &[f32], step: &mut Step, ended: &mut Ended) {
        let target = self.running[i].slot.target;
        let concurrency = self.concurrency(target, 0);
        let sequence = &mut self.running[i];
        let entry = &self.models.targets[target];
        let cache = self.known.caches.get_mut(&entry.vocabulary());
        match sequence.commit(cache, logits, entry, step.alone) {
            Err(error) => ended.push((i, Err(ApiError::Internal(error.to_string())))),
            Ok(None) => ended.push((i, Ok(None))),
            Ok(Some(Progress { outcome, reason })) => {
                let costs = &mut self.costs[target];
                let drafting = sequence.job.request.drafting;
                // Only a round decoded alone has times of its own.
                if drafting && step.alone {
                    costs.alone.observe(&outcome);
                }
                let asked = sequence.policy.last_asked();
                if let Some(scores) = asked.and_then(|policy| policy.inner().scores())
                    && drafting
                    && outcome.looked_up() == 0
                {
                    let costs = || costs.of(concurrency);
                    self.lengths
                        .observe(&sequence.adapter, scores, &outcome, costs);
                }
                step.add(drafting, &outcome);
                if reason.is_some() {
                    ended.push((i, Ok(reason)));
                }
            }
        }
    }

    /// Releases the slots of answers that have ended or failed.
    pub(super) fn end_answers(&mut self, mut ended: Ended) {
        // In descending order, so that the remaining indices stay valid.
        ended.sort_by_key(|(i, _)| std::cmp::Reverse(*i));
        ended.dedup_by_key(|(i, _)| *i);
        for (i, reason) in ended {
            let mut sequence = self.running.remove(i);
            let target = &self.models.targets[sequence.slot.target];
            match reason {
                Ok(Some(reason)) => {
                    let needs = self.needs();
                    // Its engine may have a shorter context than the model was trained for.
                    let most = self.models.drafter.config().max_position_embeddings;
                    let room = most.min(sequence.slot.session.drafter().max_len());
                    let length = sequence.policy.inner_mut().inner_mut();
                    let head_examples = length.take_head_examples();
                    let rejected = sequence.totals.proposed - sequence.totals.accepted;
                    let (mut left, mut closed) = (None, false);
                    let learns = match sequence.policy.end() {
                        Some(mut answer) if !sequence.shared => {
                            if let Some(corpora) = &mut self.corpora {
                                let costs = self.costs[sequence.slot.target].of(1).costs;
                                let request = &sequence.job.request;
                                let said = sequence.slot.session.response();
                                let vocabulary = target.vocabulary();
                                answer.would_copy(|| {
                                    corpora.replay(vocabulary, request, &costs, said)
                                });
                            }
                            closed = self.stats.close(answer, rejected);
                            closed
                        }
                        Some(answer) => {
                            left = Some(answer);
                            true
                        }
                        None => true,
                    };
                    // Counted before the client has its answer, so that a client that then reads
                    // the counters finds it.
                    self.stats.answer(
                        &target.name,
                        &sequence.totals,
                        sequence.done.tokens,
                        sequence.job.request.drafting,
                    );
                    self.stats.load(self.running.len(), self.waiting.len());
                    // Before the client has its answer: its next request may copy from it.
                    let source = sequence.slot.session.take_history();
                    if let Some(corpora) = &mut self.corpora {
                        corpora.absorb(source);
                    }
                    sequence.send_end(reason);
                    let example = match learns {
                        true => sequence.example(target, needs, room),
                        false => None,
                    };
                    if let Some(answer) = left {
                        let learns = example.is_some();
                        self.stats.tell(|own| own.leave(&answer, learns));
                    }
                    if closed && example.is_none() {
                        self.stats.tell(|own| own.drop_recording(&target.name));
                    }
                    if let Some(example) = example
                        && let Some(learner) = &self.learner
                    {
                        learner.offer(&sequence.adapter, example, head_examples, &self.stats);
                    }
                }
                Ok(None) => self.stats.counters().cancelled += 1,
                Err(error) => fail_with(&mut sequence.job, error, &self.stats),
            }
            if let Some(answer) = sequence.policy.end() {
                self.stats.tell(|own| own.leave(&answer, false));
            }
            self.idle.push(sequence.release());
        }
    }

    /// Ends answers whose client has hung up or that took too long.
    pub(super) fn end_abandoned(&mut self) {
        let limit = self.options.timeout;
        let running = self.running.iter().enumerate();
        let ended = running.filter(|(_, sequence)| sequence.job.given_up(limit));
        let ended: Ended = ended.map(|(i, _)| (i, Ok(None))).collect();
        self.end_answers(ended);
        let prefilling = std::mem::take(&mut self.prefilling).into_iter();
        let (ended, prefilling): (VecDeque<Prefilling>, VecDeque<Prefilling>) =
            prefilling.partition(|prefilling| prefilling.job.given_up(limit));
        self.prefilling = prefilling;
        for Prefilling { slot, .. } in ended {
            self.stats.counters().cancelled += 1;
            self.idle.push(slot);
        }
    }
}
