//! Checked requests to the decode thread, in tokens, and the events that it answers with.

use std::time::{Duration, Instant};

use serde::Serialize;
use spec_decode::Sampling;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use vocab_align::TargetId;

use crate::error::ApiError;
use crate::models::Encoded;

/// A checked request for one answer.
#[derive(Debug, Clone)]
pub struct Request {
    /// Index of the target.
    pub target: usize,
    /// The prompt that is answered.
    pub prompt: Encoded,
    /// Distribution that tokens are drawn from.
    pub sampling: Sampling,
    /// Maximum number of tokens of the answer, at least 1.
    pub max_tokens: usize,
    /// True if decoding continues after tokens that end an answer, until `max_tokens`.
    pub ignore_eos: bool,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Seed of the random streams.
    pub seed: u64,
    /// Number of this answer among all answers to one call, from 0. It is sent with its events.
    pub sample: u32,
    /// Number of most probable tokens to list beside each token; `None` for no probabilities at
    /// all.
    pub logprobs: Option<usize>,
    /// True if the drafter drafts; otherwise the target decodes alone.
    pub drafting: bool,
    /// User who sent the request; may be empty.
    pub user: String,
}

/// A [`Request`] with the channel for its events.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) events: mpsc::UnboundedSender<(u32, Event)>,
    pub(crate) arrived: Instant,
    /// The request's place in the queue.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl Job {
    /// Sends an event to the client. Returns false if the client has hung up.
    pub(crate) fn send(&self, event: Event) -> bool {
        self.events.send((self.request.sample, event)).is_ok()
    }

    /// Sends the last event. The place in the queue is free before, so that a client that has its
    /// answer can send the next request.
    pub(crate) fn end(&mut self, event: Event) {
        self.permit = None;
        self.send(event);
    }

    /// True if the client has hung up, or the answer took longer than `limit`; the client is then
    /// told so.
    pub(crate) fn given_up(&self, limit: Duration) -> bool {
        let late = self.arrived.elapsed() > limit;
        if late {
            self.send(Event::Failed(ApiError::Timeout(limit.as_secs())));
        }
        late || self.events.is_closed()
    }
}

/// An event of a [`Request`]: pieces in order, then one of the others.
#[derive(Debug, Clone)]
pub enum Event {
    /// More of the answer: the tokens that one round added.
    Piece(Piece),
    /// The answer has ended.
    Done(Done),
    /// The answer failed, at its start or after some pieces.
    Failed(ApiError),
}

/// Tokens that one round added to an answer.
#[derive(Debug, Clone, Default)]
pub struct Piece {
    /// Text that can be shown now. It is shorter than the text of the tokens while an incomplete
    /// character or the beginning of a stop string is held back, and comes without tokens at the
    /// end.
    pub text: String,
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// One token of an answer.
#[derive(Debug, Clone)]
pub struct Token {
    /// The token.
    pub id: TargetId,
    /// Origin of the token.
    pub origin: TokenOrigin,
    /// Text that the token added. A character made of several tokens comes with the last of them.
    pub text: String,
    /// Log-probabilities of the token and of others, if the request wants them.
    pub logprobs: Option<LogProbs>,
}

/// Origin of a token of an answer, written in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenOrigin {
    /// Drafted as one token, or copied from earlier text, and accepted.
    Drafted,
    /// Merged from several draft tokens by the n-gram cache and accepted.
    Ngram,
    /// Drawn from the target in place of a rejected draft token.
    Corrected,
    /// Drawn from the target after a draft that was accepted as a whole, without any draft, or after
    /// the first token of an alternative.
    Target,
}

/// Log-probabilities under the target's distribution at temperature 1.
#[derive(Debug, Clone)]
pub struct LogProbs {
    /// Log-probability of the token itself.
    pub own: f32,
    /// The most probable tokens, in descending order.
    pub top: Vec<(TargetId, f32)>,
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Done {
    /// `stop` if the answer ended by itself or at a stop string, `length` at the limit.
    pub reason: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Number of prompt tokens that the KV cache still held from the last answer.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Number of rounds, which are forwards of the target.
    pub rounds: usize,
    /// Number of proposed tokens.
    pub proposed: usize,
    /// Number of accepted tokens.
    pub accepted: usize,
    /// Number of accepted tokens that were merged n-grams.
    pub ngrams: usize,
    /// Seconds from its first round to its last, rounds of other answers in between included.
    pub seconds: f64,
}
