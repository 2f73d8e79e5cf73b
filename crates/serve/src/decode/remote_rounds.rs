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
const MAX_REQUESTS: usize = 8;

/// Rounds for one target, with the ticket of each one's sequence.
pub(crate) struct RemoteBatch {
    target: usize,
    tickets: Vec<u64>,
    rounds: Vec<Round>,
    /// True if the rounds are sent a second time, with their whole texts.
    again: bool,
}

/// The reply to a [`RemoteBatch`].
pub(crate) struct Reply {
    batch: RemoteBatch,
    answers: Result<Answers>,
}

/// The queue of rounds for remote targets.
pub(super) struct RemoteQueue {
    sender: Sender<RemoteBatch>,
    next: u64,
}

impl RemoteQueue {
    /// Starts the threads that send rounds to remote targets, if there are any; they end when this
    /// is dropped.
    pub(super) fn start(
        models: &Arc<Models>,
        replies: &Sender<Command>,
        parallel: usize,
    ) -> Result<Self> {
        let (sender, batches) = channel();
        let far = models.targets.iter().any(|t| t.remote().is_some());
        let batches = Arc::new(Mutex::new(batches));
        for _ in 0..if far { parallel.min(MAX_REQUESTS) } else { 0 } {
            let (models, batches) = (Arc::clone(models), Arc::clone(&batches));
            let replies = replies.clone();
            let builder = std::thread::Builder::new().name("remote".to_owned());
            builder.spawn(move || run(&models, &batches, &replies))?;
        }
        Ok(Self { sender, next: 0 })
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn run(models: &Models, batches: &Mutex<Receiver<RemoteBatch>>, replies: &Sender<Command>) {
    loop {
        let next = batches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(mut batch) = next else {
            return;
        };
        let rounds = std::mem::take(&mut batch.rounds);
        let Some(remote) = models.targets[batch.target].remote() else {
            return;
        };
        let answers;
        (batch.rounds, answers) = remote.verify(rounds);
        if replies
            .send(Command::RemoteReply(Reply { batch, answers }))
            .is_err()
        {
            return;
        }
    }
}

impl Decoder {
    /// True if there is something to do beside waiting for replies.
    pub(super) fn is_busy(&self) -> bool {
        let room = self.running.len() + self.prefilling.len() < self.options.parallel;
        !self.prefilling.is_empty()
            || !self.replies.is_empty()
            || !self.verifiers.is_idle()
            || (room && !self.waiting.is_empty())
            || self.running.iter().any(|s| s.awaited.is_none())
    }

    /// Sends the drafts for remote targets, one request per target. This comes before any draft of
    /// the step is committed: the message depends on the n-grams that were drafted with.
    pub(super) fn send_rounds(&mut self, step: &mut Step, failed: &mut Failures) {
        for target in 0..self.models.targets.len() {
            if self.models.targets[target].remote().is_none() {
                continue;
            }
            let (mut tickets, mut rounds) = (Vec::new(), Vec::new());
            for (i, sequence) in self.running.iter_mut().enumerate() {
                if sequence.slot.target != target || sequence.awaited.is_some() {
                    continue;
                }
                let shared = shared(&self.known, &self.models, sequence);
                match sequence.remote_round(shared, self.options.remote.law_top) {
                    None => {}
                    Some(Ok(round)) => {
                        let ticket = self.remote_queue.ticket();
                        sequence.awaited = Some(ticket);
                        tickets.push(ticket);
                        rounds.push(round);
                    }
                    Some(Err(e)) => failed.push((i, ApiError::Internal(e.to_string()))),
                }
            }
            self.send(
                RemoteBatch {
                    target,
                    tickets,
                    rounds,
                    again: false,
                },
                step,
            );
        }
    }

    fn send(&self, batch: RemoteBatch, step: &mut Step) {
        if !batch.rounds.is_empty() {
            step.forwards += 1;
            // The threads live as long as the decode thread, so the send does not fail.
            let _ = self.remote_queue.sender.send(batch);
        }
    }

    /// Commits the rounds whose replies have come.
    pub(super) fn commit_replies(
        &mut self,
        step: &mut Step,
        failed: &mut Failures,
        ended: &mut Ended,
    ) {
        for Reply { batch, answers } in std::mem::take(&mut self.replies) {
            if let Some(remote) = self.models.targets[batch.target].remote() {
                self.stats.traffic(batch.target, &remote.traffic);
            }
            let answers = answers.map_err(|error| ApiError::Target(format!("{error:#}")));
            let mut again = RemoteBatch {
                target: batch.target,
                tickets: Vec::new(),
                rounds: Vec::new(),
                again: true,
            };
            for (n, (ticket, round)) in batch.tickets.iter().zip(batch.rounds).enumerate() {
                // The sequence may have ended meanwhile.
                let of = |sequence: &Sequence| sequence.awaited == Some(*ticket);
                let Some(i) = self.running.iter().position(of) else {
                    continue;
                };
                let sequence = &mut self.running[i];
                match answers.as_ref().map(|answers| answers.get(n)) {
                    Ok(Some(Ok(verdict))) => {
                        sequence.awaited = None;
                        match sequence.apply_verdict(verdict) {
                            Ok(logits) => self.commit(i, &logits, step, failed, ended),
                            Err(error) => failed.push((i, ApiError::Internal(error.to_string()))),
                        }
                    }
                    Ok(Some(Err(Refusal::Unknown))) if !batch.again => {
                        again.tickets.push(*ticket);
                        again.rounds.push(sequence.with_whole_text(round));
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
