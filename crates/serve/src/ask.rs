//! What the decode thread is asked, and what it answers: checked, in tokens.

use std::time::Instant;

use spec_decode::Sampling;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use vocab_align::TargetId;

use crate::error::ApiError;
use crate::models::Encoded;

/// A checked request for one answer.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Index of the target.
    pub target: usize,
    /// What is answered.
    pub prompt: Encoded,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Most tokens of the answer, at least 1.
    pub max_tokens: usize,
    /// Whether to go on behind tokens that end an answer, until `max_tokens`.
    pub ignore_eos: bool,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Seed of the random streams.
    pub seed: u64,
    /// Which of several answers to the same prompt.
    pub sample: u32,
    /// Most probable tokens to list beside each token; `None` for no probabilities at all.
    pub logprobs: Option<usize>,
    /// Whether the drafter drafts; without it the target decodes alone.
    pub drafting: bool,
    /// Whose request it is; may be empty.
    pub user: String,
}

/// An [`Ask`] on its way.
pub(crate) struct Job {
    pub(crate) ask: Ask,
    pub(crate) events: mpsc::UnboundedSender<(u32, Event)>,
    pub(crate) arrived: Instant,
    /// The place in the queue.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl Job {
    /// Tells the client; whether it still listens.
    pub(crate) fn tell(&self, event: Event) -> bool {
        self.events.send((self.ask.sample, event)).is_ok()
    }

    /// Tells the client the last thing. The place is free by then: who has an answer may ask again.
    pub(crate) fn end(&mut self, event: Event) {
        self.permit = None;
        self.tell(event);
    }

    /// Whether the client has hung up.
    pub(crate) fn abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// What comes of an [`Ask`], in order: pieces, then one of the others.
#[derive(Debug, Clone)]
pub enum Event {
    /// More of the answer: what one round added.
    Piece(Piece),
    /// The answer has ended.
    Done(Done),
    /// There is no (whole) answer.
    Failed(ApiError),
}

/// Tokens that one round added to an answer.
#[derive(Debug, Clone, Default)]
pub struct Piece {
    /// Text that can be shown now: less than the tokens spell where a character or a stop string may
    /// be on its way.
    pub text: String,
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// One token of an answer.
#[derive(Debug, Clone)]
pub struct Token {
    /// The token.
    pub id: TargetId,
    /// Where it came from.
    pub from: From,
    /// What it added to the text: a character that several tokens spell comes with the last of them.
    pub text: String,
    /// Its probability and those of others, where asked for.
    pub logprobs: Option<LogProbs>,
}

/// Where a token of an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Drafted as one token, and accepted.
    Drafted,
    /// Merged from several draft tokens by the n-gram cache, and accepted.
    Ngram,
    /// The target's, in the place of a rejected draft.
    Corrected,
    /// The target's, behind a draft that stood as a whole or where nothing was drafted.
    Target,
}

impl From {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drafted => "drafted",
            Self::Ngram => "ngram",
            Self::Corrected => "corrected",
            Self::Target => "target",
        }
    }
}

/// Log-probabilities under the target's law at temperature 1.
#[derive(Debug, Clone)]
pub struct LogProbs {
    /// Of the token itself.
    pub own: f32,
    /// The most probable ones, in order.
    pub top: Vec<(TargetId, f32)>,
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    /// `stop` where the answer ended by itself or at a stop string, `length` at the limit.
    pub reason: &'static str,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of which the KV cache still held from the last answer.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Rounds: forwards of the target.
    pub rounds: usize,
    /// Proposed tokens.
    pub proposed: usize,
    /// Accepted ones.
    pub accepted: usize,
    /// Accepted ones that were merged n-grams.
    pub ngrams: usize,
    /// Seconds from its first round to its last, those of others in between included.
    pub seconds: f64,
}
