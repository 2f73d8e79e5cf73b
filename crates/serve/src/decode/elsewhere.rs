//! Rounds on their way to targets elsewhere. Whoever waits for a reply holds up nobody else: threads
//! ask, and the decode thread is told.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::sequence::Sequence;
use super::{Command, Decoder, Ended, Failures, shared};
use crate::error::ApiError;
use crate::models::Models;
use crate::remote::wire::{Answers, Refusal, Round};
use crate::stats::Step;

/// Most requests under way at a time; sequences that wait for one target in a step share one.
const MOST: usize = 8;

/// Rounds for one target, and whose they are.
pub(crate) struct Errand {
    target: usize,
    tickets: Vec<u64>,
    rounds: Vec<Round>,
    /// Whether the texts are sent a second time, as a whole.
    again: bool,
}

/// What came back.
pub(crate) struct Reply {
    errand: Errand,
    answers: Result<Answers>,
}

/// The way out.
pub(super) struct Errands {
    sender: Sender<Errand>,
    next: u64,
}

impl Errands {
    /// Starts the threads that ask targets elsewhere, if there are such targets; they end when this is
    /// dropped.
    pub(super) fn start(
        models: &Arc<Models>,
        replies: &Sender<Command>,
        parallel: usize,
    ) -> Result<Self> {
        let (sender, errands) = channel();
        let far = models.targets.iter().any(|t| t.elsewhere().is_some());
        let errands = Arc::new(Mutex::new(errands));
        for _ in 0..if far { parallel.min(MOST) } else { 0 } {
            let (models, errands) = (Arc::clone(models), Arc::clone(&errands));
            let replies = replies.clone();
            let builder = std::thread::Builder::new().name("remote".to_owned());
            builder.spawn(move || run(&models, &errands, &replies))?;
        }
        Ok(Self { sender, next: 0 })
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn run(models: &Models, errands: &Mutex<Receiver<Errand>>, replies: &Sender<Command>) {
    loop {
        let next = errands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(mut errand) = next else {
            return;
        };
        let rounds = std::mem::take(&mut errand.rounds);
        let Some(remote) = models.targets[errand.target].elsewhere() else {
            return;
        };
        let answers;
        (errand.rounds, answers) = remote.judge(rounds);
        if replies
            .send(Command::Judged(Reply { errand, answers }))
            .is_err()
        {
            return;
        }
    }
}

impl Decoder {
    /// Whether there is something to do beside waiting for replies.
    pub(super) fn is_busy(&self) -> bool {
        let room = self.running.len() + self.reading.len() < self.options.parallel;
        !self.reading.is_empty()
            || !self.replies.is_empty()
            || !self.verifiers.is_idle()
            || (room && !self.waiting.is_empty())
            || self.running.iter().any(|s| s.awaited.is_none())
    }

    /// Sends the drafts for targets elsewhere, in one request a target. It comes before any draft of
    /// the step is committed: what is sent depends on the n-grams that were drafted with.
    pub(super) fn send_rounds(&mut self, step: &mut Step, failed: &mut Failures) {
        for target in 0..self.models.targets.len() {
            if self.models.targets[target].elsewhere().is_none() {
                continue;
            }
            let (mut tickets, mut rounds) = (Vec::new(), Vec::new());
            for (i, sequence) in self.running.iter_mut().enumerate() {
                if sequence.seat.target != target || sequence.awaited.is_some() {
                    continue;
                }
                let shared = shared(&self.caches, &self.cache_of, sequence);
                match sequence.remote_round(shared, self.options.remote.law_top) {
                    None => {}
                    Some(Ok(round)) => {
                        let ticket = self.errands.ticket();
                        sequence.awaited = Some(ticket);
                        tickets.push(ticket);
                        rounds.push(round);
                    }
                    Some(Err(e)) => failed.push((i, ApiError::Internal(e.to_string()))),
                }
            }
            self.send(
                Errand {
                    target,
                    tickets,
                    rounds,
                    again: false,
                },
                step,
            );
        }
    }

    fn send(&self, errand: Errand, step: &mut Step) {
        if !errand.rounds.is_empty() {
            step.forwards += 1;
            // The threads live as long as the decode thread.
            let _ = self.errands.sender.send(errand);
        }
    }

    /// Commits what targets elsewhere have judged.
    pub(super) fn settle_replies(
        &mut self,
        step: &mut Step,
        failed: &mut Failures,
        ended: &mut Ended,
    ) {
        for Reply { errand, answers } in std::mem::take(&mut self.replies) {
            if let Some(remote) = self.models.targets[errand.target].elsewhere() {
                self.stats.traffic(errand.target, &remote.traffic);
            }
            let answers = answers.map_err(|error| ApiError::Target(format!("{error:#}")));
            let mut again = Errand {
                target: errand.target,
                tickets: Vec::new(),
                rounds: Vec::new(),
                again: true,
            };
            for (n, (ticket, round)) in errand.tickets.iter().zip(errand.rounds).enumerate() {
                // It may have left meanwhile.
                let of = |sequence: &Sequence| sequence.awaited == Some(*ticket);
                let Some(i) = self.running.iter().position(of) else {
                    continue;
                };
                let sequence = &mut self.running[i];
                match answers.as_ref().map(|answers| answers.get(n)) {
                    Ok(Some(Ok(judgement))) => {
                        sequence.awaited = None;
                        match sequence.settle(judgement) {
                            Ok(logits) => self.commit(i, &logits, step, failed, ended),
                            Err(error) => failed.push((i, ApiError::Internal(error.to_string()))),
                        }
                    }
                    Ok(Some(Err(Refusal::Unknown))) if !errand.again => {
                        again.tickets.push(*ticket);
                        again.rounds.push(sequence.whole(round));
                    }
                    Ok(Some(Err(refusal))) => {
                        failed.push((i, ApiError::Target(refusal.to_string())));
                    }
                    Ok(None) => failed.push((i, ApiError::Internal("no answer".to_owned()))),
                    Err(error) => failed.push((i, error.clone())),
                }
            }
            self.send(again, step);
        }
    }
}
