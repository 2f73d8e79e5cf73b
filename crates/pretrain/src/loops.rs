//! The phase against loops: the model answers, and what it repeats becomes less likely.

use std::collections::BTreeSet;

use anyhow::Result;
use indicatif::ProgressBar;
use trainer::{Backend, Marked, Step, Unlikelihood};
use vocab_align::{TargetId, TokenId};

use crate::answers::{Answerer, unwanted};
use crate::config::{Recipe, UnlikelihoodRecipe};
use crate::data::TokenData;

/// One step on `texts` and on fresh answers. Returns what the step did and the share of the answered
/// tokens that looped.
///
/// # Errors
/// Those of the engine and of the trainer.
pub(crate) fn step(
    recipe: &Recipe,
    own: &UnlikelihoodRecipe,
    model: &mut Backend,
    data: &TokenData,
    texts: &[Vec<u32>],
    step: u64,
) -> Result<(Step, f64)> {
    let trainer = model.on_host()?;
    let checkpoint = trainer.checkpoint();
    let stop: BTreeSet<_> = checkpoint
        .config
        .eos_token_ids
        .iter()
        .copied()
        .map(TargetId::new)
        .collect();
    let prompts = data.prompts(step, own.answers);
    // A template keeps prompts to its length; those of the corpus have the opening token too.
    let longest = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
    let context = longest + own.answer_tokens;
    let answerer = Answerer::new(
        &checkpoint,
        0.0,
        own.answer_tokens,
        stop,
        context,
        recipe.seed,
    )?;
    let answers = answerer.answer(&prompts, &ProgressBar::hidden())?;
    let tokens: usize = answers.iter().map(Vec::len).sum();
    let mark = |(prompt, answer): (&&[u32], &Vec<u32>)| {
        let unwanted: Vec<usize> = unwanted(answer).map(|place| prompt.len() + place).collect();
        // What follows the last of them has no gradient.
        let end = unwanted.last()? + 1;
        let mut ids = [prompt, answer.as_slice()].concat();
        ids.truncate(end);
        Some(Marked { ids, unwanted })
    };
    let marked: Vec<Marked> = prompts.iter().zip(&answers).filter_map(mark).collect();
    let looped: usize = marked.iter().map(|answer| answer.unwanted.len()).sum();
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let objective = Unlikelihood::new(&texts, &marked, tokens, own.weight);
    let looping = marked.iter().map(|answer| answer.ids.as_slice());
    let batch: Vec<&[u32]> = texts.iter().copied().chain(looping).collect();
    let graded = trainer.accumulate(&batch, &objective)?;
    let grad_norm = trainer.step(recipe.learning_rate(step))?;
    let loss = graded.terms[0];
    let share = looped as f64 / tokens.max(1) as f64;
    Ok((Step { loss, grad_norm }, share))
}
