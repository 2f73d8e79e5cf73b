//! Answers in the format of the API: whole, or in pieces as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::{Value, json};
use vocab_align::TargetId;

use super::app::App;
use super::request::{Kind, Parsed};
use crate::error::ApiError;
use crate::models::{Models, Target};
use crate::random::random_number;
use crate::request::{Done, Event, LogProbs, Piece, Token};
use crate::service::Events;

/// The fields that all parts of an answer share.
struct Envelope {
    id: String,
    created: u64,
    model: String,
    kind: Kind,
    origins: bool,
}

impl Envelope {
    fn new(request: &Parsed) -> Self {
        let number = random_number();
        let name = match request.kind {
            Kind::Chat => "chatcmpl",
            Kind::Text => "cmpl",
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: format!("{name}-{number:016x}"),
            created: since.map_or(0, |since| since.as_secs()),
            model: request.model.clone(),
            kind: request.kind,
            origins: request.origins,
        }
    }

    fn object(&self, chunk: bool) -> &'static str {
        match (self.kind, chunk) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Text, _) => "text_completion",
        }
    }

    fn wrap(&self, chunk: bool, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut all = json!({
            "id": self.id,
            "object": self.object(chunk),
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            all["usage"] = usage;
        }
        all
    }
}

/// The API's usage object: sums over the answers of a request, `answers` to each prompt.
fn usage(done: &[Done], answers: usize) -> Value {
    let sum = |of: fn(&Done) -> usize| done.iter().map(of).sum::<usize>();
    let completion = sum(|d| d.tokens);
    // Several answers to one prompt count its tokens once, those of the first answer.
    let firsts = || done.iter().step_by(answers.max(1));
    let prompt: usize = firsts().map(|d| d.prompt_tokens).sum();
    let cached: usize = firsts().map(|d| d.cached_tokens).sum();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "drafted_tokens": sum(|d| d.proposed),
            "accepted_tokens": sum(|d| d.accepted),
            "ngram_tokens": sum(|d| d.ngrams),
            "rounds": sum(|d| d.rounds),
        },
    })
}

/// The whole answers to a request, one choice each.
pub(super) async fn whole(
    models: &Models,
    request: &Parsed,
    mut events: Events,
) -> Result<Response, ApiError> {
    let envelope = Envelope::new(request);
    let target = &models.targets[request.target];
    let count = request.requests.len();
    let mut texts = vec![String::new(); count];
    let mut tokens: Vec<Vec<Token>> = vec![Vec::new(); count];
    let mut ends: Vec<Option<Done>> = vec![None; count];
    while ends.iter().any(Option::is_none) {
        let Some((number, event)) = events.recv().await else {
            return Err(ApiError::Internal("the decode thread has ended".into()));
        };
        let number = number as usize;
        match event {
            Event::Piece(piece) => {
                texts[number].push_str(&piece.text);
                tokens[number].extend(piece.tokens);
            }
            Event::Done(done) => ends[number] = Some(done),
            Event::Failed(error) => return Err(error),
        }
    }
    let ends: Vec<Done> = ends.into_iter().flatten().collect();
    let choices = texts.into_iter().zip(&tokens).zip(&ends).enumerate();
    let choices = choices.map(|(index, ((text, tokens), done))| {
        let mut choice = match envelope.kind {
            Kind::Chat => json!({
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": null},
            }),
            Kind::Text => json!({"index": index, "text": text}),
        };
        choice["finish_reason"] = json!(done.reason);
        choice["logprobs"] = log_probs(envelope.kind, tokens, target, &mut 0);
        if envelope.origins {
            choice["tokens"] = origins(tokens);
        }
        choice
    });
    let choices = choices.collect();
    let usage = usage(&ends, request.answers);
    Ok(axum::Json(envelope.wrap(false, choices, Some(usage))).into_response())
}

/// The tokens with their origins.
fn origins(tokens: &[Token]) -> Value {
    let each = tokens
        .iter()
        .map(|token| json!({"text": token.text, "from": token.origin}));
    each.collect()
}

/// Text of a single token.
fn token_text(id: TargetId, target: &Target) -> String {
    let vocabulary = &target.pair.target;
    match (vocabulary.bytes(id), vocabulary.content(id)) {
        (Some(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
        (None, name) => name.unwrap_or_default().to_owned(),
    }
}

/// Log-probabilities in the format of the API; null if the request wants none. `offset` is the
/// number of characters in front of the tokens; for completions theirs are added to it.
fn log_probs(kind: Kind, tokens: &[Token], target: &Target, offset: &mut usize) -> Value {
    let known: Vec<(&Token, &LogProbs)> = tokens
        .iter()
        .filter_map(|token| Some((token, token.logprobs.as_ref()?)))
        .collect();
    if known.is_empty() {
        return Value::Null;
    }
    let bytes = |id: TargetId| target.pair.target.bytes(id).unwrap_or_default();
    // JSON has no minus infinity.
    let finite = |x: f32| x.max(-9999.0);
    match kind {
        Kind::Chat => {
            let entry = |id: TargetId, log_prob: f32| json!({"token": token_text(id, target), "logprob": finite(log_prob), "bytes": bytes(id)});
            let content = known.iter().map(|(token, probs)| {
                let mut own = entry(token.id, probs.own);
                let top = probs.top.iter().map(|(id, log_prob)| entry(*id, *log_prob));
                own["top_logprobs"] = top.collect();
                own
            });
            json!({"content": content.collect::<Vec<_>>(), "refusal": null})
        }
        Kind::Text => {
            let (mut names, mut own, mut top, mut offsets) = (vec![], vec![], vec![], vec![]);
            for (token, probs) in known {
                names.push(token_text(token.id, target));
                own.push(finite(probs.own));
                let each = probs.top.iter();
                let each = each.map(|(id, x)| (token_text(*id, target), json!(finite(*x))));
                top.push(Value::Object(each.collect()));
                offsets.push(*offset);
                *offset += token_text(token.id, target).chars().count();
            }
            json!({"tokens": names, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets})
        }
    }
}

/// A request's events as the bytes of a stream.
struct Chunks {
    app: Arc<App>,
    envelope: Envelope,
    target: usize,
    usage: bool,
    answers: usize,
    /// The first event, until it is written.
    first: Option<(u32, Event)>,
    /// The events after it.
    events: Events,
    /// Number of characters of each answer so far, counted for the log-probabilities of completions
    /// and else 0; `None` if nothing was sent yet.
    offsets: Vec<Option<usize>>,
    ends: Vec<Option<Done>>,
    /// True if the last events are written.
    ended: bool,
}

/// The answers to a request in pieces, from the first event on. An error is the last event, with
/// the same object as in a plain answer.
pub(super) fn stream(
    request: Parsed,
    first: (u32, Event),
    events: Events,
    app: Arc<App>,
) -> Response {
    let chunks = Chunks {
        envelope: Envelope::new(&request),
        target: request.target,
        usage: request.usage,
        answers: request.answers,
        offsets: vec![None; request.requests.len()],
        ends: vec![None; request.requests.len()],
        first: Some(first),
        events,
        ended: false,
        app,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

impl Chunks {
    fn event(value: &Value) -> String {
        format!("data: {value}\n\n")
    }

    fn chunk(&self, choice: Value) -> String {
        // If usage was requested, every chunk has the key, null in all but the last.
        let usage = self.usage.then_some(Value::Null);
        Self::event(&self.envelope.wrap(true, vec![choice], usage))
    }

    fn piece(&mut self, number: usize, piece: &Piece) -> String {
        let mut out = String::new();
        let chat = self.envelope.kind == Kind::Chat;
        let first = self.offsets[number].is_none();
        let mut offset = self.offsets[number].unwrap_or_default();
        if first && chat {
            let delta = json!({"role": "assistant", "content": ""});
            let choice =
                json!({"index": number, "delta": delta, "finish_reason": null, "logprobs": null});
            out.push_str(&self.chunk(choice));
        }
        let target = &self.app.service.models().targets[self.target];
        let logprobs = log_probs(self.envelope.kind, &piece.tokens, target, &mut offset);
        self.offsets[number] = Some(offset);
        if piece.text.is_empty() && logprobs.is_null() && !self.envelope.origins {
            return out;
        }
        let mut choice = match chat {
            true => json!({"index": number, "delta": {"content": piece.text}}),
            false => json!({"index": number, "text": piece.text}),
        };
        choice["finish_reason"] = Value::Null;
        choice["logprobs"] = logprobs;
        if self.envelope.origins {
            choice["tokens"] = origins(&piece.tokens);
        }
        out.push_str(&self.chunk(choice));
        out
    }

    fn done(&mut self, number: usize, done: Done) -> String {
        let mut choice = match self.envelope.kind {
            Kind::Chat => json!({"index": number, "delta": {}}),
            Kind::Text => json!({"index": number, "text": ""}),
        };
        choice["finish_reason"] = json!(done.reason);
        choice["logprobs"] = Value::Null;
        let mut out = self.chunk(choice);
        self.ends[number] = Some(done);
        if self.ends.iter().all(Option::is_some) {
            let ends: Vec<Done> = self.ends.iter().copied().flatten().collect();
            if self.usage {
                let usage = usage(&ends, self.answers);
                out.push_str(&Self::event(&self.envelope.wrap(
                    true,
                    Vec::new(),
                    Some(usage),
                )));
            }
            out.push_str("data: [DONE]\n\n");
            self.ended = true;
        }
        out
    }
}

impl Stream for Chunks {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.ended {
            let event = match this.first.take() {
                Some(first) => Some(first),
                None => ready!(this.events.poll_recv(cx)),
            };
            let gone = || Event::Failed(ApiError::Internal("the decode thread has ended".into()));
            let text = match event.unwrap_or_else(|| (0, gone())) {
                (number, Event::Piece(piece)) => this.piece(number as usize, &piece),
                (number, Event::Done(done)) => this.done(number as usize, done),
                (_, Event::Failed(error)) => {
                    this.ended = true;
                    Self::event(&error.to_json())
                }
            };
            if !text.is_empty() {
                return Poll::Ready(Some(Ok(Bytes::from(text))));
            }
        }
        Poll::Ready(None)
    }
}
