//! The threads that send rounds to remote targets and wait for the replies, so that the decode
//! thread never waits for the network.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::command::Command;
use crate::error::Result;
use crate::models::Models;
use crate::remote::Traffic;
use crate::remote::wire::{Answers, Round};

/// Maximum number of requests under way at a time. Sequences with the same target in a step share
/// one request.
const MAX_REQUESTS: usize = 8;

/// Rounds for one target, each of a session of its own.
#[derive(Default)]
pub(crate) struct RemoteBatch {
    pub(super) target: usize,
    pub(super) rounds: Vec<Round>,
    /// True if the rounds were sent before, and now have their whole texts.
    pub(super) again: bool,
}

/// The reply to a [`RemoteBatch`].
pub(crate) struct Reply {
    pub(super) batch: RemoteBatch,
    pub(super) traffic: Traffic,
    pub(super) answers: Result<Answers>,
}

/// Starts the threads that send rounds to remote targets, if there are any; they end when the
/// returned end of their queue is dropped, or once nobody reads their `replies`.
pub(super) fn start_remotes(
    models: &Arc<Models>,
    parallel: usize,
    replies: &Sender<Command>,
) -> Result<Sender<RemoteBatch>> {
    let (sender, batches) = channel();
    let far = models.targets.iter().any(|t| t.remote().is_some());
    let batches = Arc::new(Mutex::new(batches));
    for _ in 0..if far { parallel.min(MAX_REQUESTS) } else { 0 } {
        let (models, batches) = (Arc::clone(models), Arc::clone(&batches));
        let replies = replies.clone();
        let builder = std::thread::Builder::new().name("remote".to_owned());
        builder.spawn(move || run(&models, &batches, &replies))?;
    }
    Ok(sender)
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
        let (rounds, traffic, answers) = remote.verify(rounds);
        batch.rounds = rounds;
        let reply = Reply {
            batch,
            traffic,
            answers,
        };
        if replies.send(Command::RemoteReply(reply)).is_err() {
            return;
        }
    }
}
