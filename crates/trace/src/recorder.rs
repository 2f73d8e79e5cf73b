//! A model's answer with all it knew on the way.

use lm::{DecodeEngine, LmError};

use crate::law::largest;
use crate::{Law, TraceInfo};

/// A greedy answer as a [`Record`](crate::Record) holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The answer, a final stop token included.
    pub answer: Vec<u32>,
    /// What the model says behind it.
    pub tail: Vec<u32>,
    /// A row for each of them.
    pub law: Law,
}

/// Answers a prompt greedily, token by token, up to `info.max_tokens`, and goes on behind the answer
/// as `info.tail` says; shorter where the context is full.
///
/// # Errors
/// Those of the engine, a prompt that is too long among them.
pub fn answer(
    engine: &mut dyn DecodeEngine,
    prompt_ids: &[u32],
    info: &TraceInfo,
) -> Result<Answered, LmError> {
    engine.truncate(0);
    let mut path = Vec::new();
    let mut law = Law::new(info);
    let Some((&last, rest)) = prompt_ids.split_last() else {
        return Ok(Answered {
            answer: path,
            tail: Vec::new(),
            law,
        });
    };
    engine.append(rest)?;
    let mut pending = last;
    let mut row = Vec::new();
    let mut answer_len = None;
    let wanted = |path: &[u32], answer_len: Option<usize>| match answer_len {
        None => true,
        // Of a text that has ended, one more row is judged with the end.
        Some(_) if path.len() > 1 && info.stop.contains(&path[path.len() - 2]) => false,
        Some(_) if path.last().is_some_and(|id| info.stop.contains(id)) => true,
        Some(answer) => path.len() < answer + info.tail,
    };
    while wanted(&path, answer_len) && engine.len() < engine.max_len() {
        engine.forward(&[pending], &mut row)?;
        law.push_logits(&row);
        pending = largest(&row, 1).first().copied().unwrap_or_default();
        path.push(pending);
        let ended = info.stop.contains(&pending) || path.len() >= info.max_tokens;
        if answer_len.is_none() && ended {
            answer_len = Some(path.len());
        }
    }
    let tail = path.split_off(answer_len.unwrap_or(path.len()));
    Ok(Answered {
        answer: path,
        tail,
        law,
    })
}
