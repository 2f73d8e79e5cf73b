//! Recording of a model's greedy answer with the distribution at every position.

use lm::{LanguageModel, ModelError};

use crate::law::largest;
use crate::{Law, Record, TraceInfo};

/// A greedy answer in progress, of up to `info.max_tokens` tokens and a tail of up to `info.tail`.
/// The caller, who holds the engine, feeds it [`pending`](Self::pending) and passes the row of
/// logits to [`take`](Self::take). One forward can therefore serve several answers.
#[derive(Debug, Clone)]
pub struct Answering<'a> {
    info: &'a TraceInfo,
    path: Vec<u32>,
    law: Law,
    answer_len: Option<usize>,
    pending: u32,
}

impl<'a> Answering<'a> {
    /// An answer to a prompt whose last token is `last`. The engine has read the tokens before it.
    pub fn new(last: u32, info: &'a TraceInfo) -> Self {
        Self {
            info,
            path: Vec::new(),
            law: Law::new(info),
            answer_len: None,
            pending: last,
        }
    }

    /// The token that the engine reads next; `None` once the answer and its tail are complete.
    pub fn pending(&self) -> Option<u32> {
        let stop = &self.info.stop;
        let goes_on = match (self.answer_len, self.path.as_slice()) {
            (None, _) => true,
            // After a stop token one more row is recorded, because verification reads it.
            (_, [.., end, _]) if stop.contains(end) => false,
            (_, [.., last]) if stop.contains(last) => true,
            (Some(answer), path) => path.len() < answer + self.info.tail,
        };
        goes_on.then_some(self.pending)
    }

    /// Adds the next token, given the logits `[vocab_size]` that follow the pending one.
    pub fn take(&mut self, row: &[f32]) {
        self.law.push_logits(row);
        self.pending = largest(row, 1).first().copied().unwrap_or_default();
        self.path.push(self.pending);
        let ended =
            self.info.stop.contains(&self.pending) || self.path.len() >= self.info.max_tokens;
        if self.answer_len.is_none() && ended {
            self.answer_len = Some(self.path.len());
        }
    }

    /// The record of a prompt with the answer as it is: complete, or cut because the context was
    /// full.
    pub fn finish(mut self, id: String, prompt: String, prompt_ids: Vec<u32>) -> Record {
        let tail = self
            .path
            .split_off(self.answer_len.unwrap_or(self.path.len()));
        Record {
            id,
            prompt,
            prompt_ids,
            answer: self.path,
            tail,
            law: self.law,
        }
    }
}

/// Answers one prompt, given by its id, its text and its tokens, token by token. The answer is cut
/// if the context is full, and empty if the prompt is.
///
/// # Errors
/// Those of the engine, for example a prompt that is too long.
pub fn answer(
    engine: &mut dyn LanguageModel,
    (id, prompt, prompt_ids): (&str, &str, &[u32]),
    info: &TraceInfo,
) -> Result<Record, ModelError> {
    let record = |answering: Answering<'_>| {
        answering.finish(id.to_owned(), prompt.to_owned(), prompt_ids.to_vec())
    };
    engine.truncate(0);
    let Some((&last, rest)) = prompt_ids.split_last() else {
        return Ok(record(Answering::new(0, info)));
    };
    engine.prefill(rest)?;
    let mut answering = Answering::new(last, info);
    let mut row = Vec::new();
    while let Some(pending) = answering.pending()
        && engine.len() < engine.max_len()
    {
        engine.forward(&[pending], &mut row)?;
        answering.take(&row);
    }
    Ok(record(answering))
}
