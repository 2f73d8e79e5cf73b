//! Rounds for remote targets. Threads send the requests and wait for the replies, so that the
//! decode thread never waits for the network.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::sequence::Sequence;
use super::{Command, Decoder, Ended, Failures, shared};
use crate::error::ApiError;
use crate::models::Models;
use crate::remote::wire::{Answers, Refusal, Round};
use crate::stats::Step;

/// Maximum number of requests under way at a time. Sequences with the same target in a step share
/// one request.
const MOST: usize = 8;

/// Rounds for one target, with the ticket of each one's sequence.
pub(crate) struct Errand {
    target: usize,
    tickets: Vec<u64>,
    rounds: Vec<Round>,
    /// True if the rounds are sent a second time, with their whole texts.
    again: bool,
}

/// The reply to an [`Errand`].
pub(crate) struct Reply {
    errand: Errand,
    answers: Result<Answers>,
}

/// The queue of rounds for remote targets.
pub(super) struct Errands {
    sender: Sender<Errand>,
    next: u64,
}

impl Errands {
    /// Starts the threads that send rounds to remote targets, if there are any; they end when this
    /// is dropped.
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
    /// True if there is something to do beside waiting for replies.
    pub(super) fn is_busy(&self) -> bool {
        let room = self.running.len() + self.reading.len() < self.options.parallel;
        !self.reading.is_empty()
            || !self.replies.is_empty()
            || !self.verifiers.is_idle()
            || (room && !self.waiting.is_empty())
            || self.running.iter().any(|s| s.awaited.is_none())
    }

    /// Sends the drafts for remote targets, one request per target. This comes before any draft of
    /// the step is committed: the message depends on the n-grams that were drafted with.
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
            // The threads live as long as the decode thread, so the send does not fail.
            let _ = self.errands.sender.send(errand);
        }
    }

    /// Commits the rounds whose replies have come.
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
                // The sequence may have ended meanwhile.
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
