//! Plain autoregressive decoding. Speculation is compared with it, in speed and in output.

use std::collections::BTreeSet;
use std::time::Instant;

use vocab_align::{TargetId, TokenId};

use crate::error::{Role, SpecError};
use crate::model::Rows;
use crate::sampling::Sampling;
use crate::session::{Finish, read_prompt};
use crate::{LanguageModel, Purpose, StreamName, TeacherSink};

/// Settings of plain decoding.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainConfig {
    /// Rule for drawing tokens from logits.
    pub sampling: Sampling,
    /// Largest number of tokens of a response.
    pub max_new_tokens: usize,
    /// Stop tokens. The one that ends a response is kept in it.
    pub stop: BTreeSet<TargetId>,
}

/// A response decoded token by token.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainGeneration {
    /// Its tokens, a final stop token included.
    pub tokens: Vec<TargetId>,
    /// Reason why it ended.
    pub finish: Finish,
    /// Seconds of reading the prompt without its last token.
    pub prefill_seconds: f64,
    /// Seconds of all following forwards and samples, one per token.
    pub decode_seconds: f64,
}

/// Decodes one response with one target forward per token.
///
/// Greedy at temperature 0; otherwise every token is drawn from the stream [`Purpose::Plain`] of
/// `name`.
///
/// # Errors
/// An empty or too long prompt, a failing model, impossible logits (the "round" is the token's
/// index).
pub fn decode_plain<T: LanguageModel>(
    target: &mut T,
    prompt: &[TargetId],
    config: &PlainConfig,
    name: StreamName,
    sink: &mut dyn TeacherSink,
) -> Result<PlainGeneration, SpecError> {
    let mut dice = name.dice(Purpose::Plain);
    let clock = Instant::now();
    let mut pending = read_prompt(target, Role::Target, prompt, 0)?;
    let prefill_seconds = clock.elapsed().as_secs_f64();
    let clock = Instant::now();
    let mut tokens = Vec::new();
    let (mut logits, mut penalised) = (Vec::new(), Vec::new());
    let mut seen: BTreeSet<TargetId> = prompt.iter().copied().collect();
    let takes_best = config.sampling.is_greedy() && !config.sampling.penalises();
    let finish = loop {
        if tokens.len() >= config.max_new_tokens {
            break Finish::MaxNewTokens;
        }
        if target.len() >= target.max_len() {
            break Finish::ContextFull;
        }
        let round = tokens.len();
        let best = match takes_best && !sink.reads() {
            true => best_on_device(target, pending, round)?,
            false => None,
        };
        pending = match best {
            Some(best) => best,
            None => {
                let read = target.forward(&[pending.get()], &mut logits);
                read.map_err(SpecError::model(Role::Target, round))?;
                let law = SpecError::law(Role::Target, round);
                Rows::checked(&logits, target.vocab_size(), 1).map_err(law)?;
                let row = if config.sampling.penalises() {
                    penalised.clone_from(&logits);
                    config.sampling.penalise(&mut penalised, &seen);
                    &penalised
                } else {
                    &logits
                };
                let column = config.sampling.draw(row, &mut dice);
                TargetId::new(column.map_err(law)? as u32)
            }
        };
        sink.record(round, pending, &logits);
        tokens.push(pending);
        seen.insert(pending);
        if config.stop.contains(&pending) {
            break Finish::Stop(pending);
        }
    };
    Ok(PlainGeneration {
        tokens,
        finish,
        prefill_seconds,
        decode_seconds: clock.elapsed().as_secs_f64(),
    })
}

/// The most probable next token by a target on a device, which keeps the logits. `None`, with
/// nothing read, if the target is not on a device or the row has no most probable token.
fn best_on_device<T: LanguageModel>(
    target: &mut T,
    pending: TargetId,
    round: usize,
) -> Result<Option<TargetId>, SpecError> {
    let held = target.len();
    let Some(device) = target.device_logits(1) else {
        return Ok(None);
    };
    let failed = SpecError::model(Role::Target, round);
    let mut best = Vec::new();
    device.score(&[pending.get()]).map_err(failed)?;
    device.best(&mut best).map_err(failed)?;
    let best = best.pop().flatten().map(TargetId::new);
    if best.is_none() {
        target.truncate(held);
    }
    Ok(best)
}
