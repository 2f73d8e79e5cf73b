//! The phase against loops: the model answers prompts, and its repetitions are made less likely.

use std::path::Path;

use cpu_engine::{CpuEngine, PackedWeights};
use indicatif::ProgressBar;
use lm::{LanguageModel, LmError, WeightType};
use rayon::prelude::*;
use spec_decode::{PlainConfig, Sampling};
use trainer::{Backend, Marked, Step, Trainer, Unlikelihood};
use vocab_align::{TargetId, TokenId};

use crate::answers::{answer, options, unwanted};
use crate::config::{Recipe, UnlikelihoodRecipe};
use crate::data::TokenData;
use crate::error::Result;
use crate::state;

/// The phase against loops, from its first step or the step that a run resumes from.
pub(crate) struct Phase<'a> {
    recipe: &'a Recipe,
    own: &'a UnlikelihoodRecipe,
    /// The model before the phase, if the divergence from it is part of the loss.
    before: Option<PackedWeights>,
}

impl<'a> Phase<'a> {
    /// Begins the phase, or resumes it at step `step`. If the divergence from the model before the
    /// phase is part of the loss, its weights are saved in `out` at the beginning, and read later.
    pub(crate) fn at(
        (recipe, own): (&'a Recipe, &'a UnlikelihoodRecipe),
        model: &mut Backend,
        out: &Path,
        step: u64,
    ) -> Result<Self> {
        let before = if own.keep > 0.0 {
            let checkpoint = if step == recipe.text_steps() {
                let checkpoint = model.checkpoint()?;
                state::save_before(out, &checkpoint)?;
                checkpoint
            } else {
                state::load_before(out, &model.checkpoint()?.config)?
            };
            let options = options(WeightType::F32, recipe.model.max_positions);
            Some(PackedWeights::new(&checkpoint, &options)?)
        } else {
            None
        };
        Ok(Self {
            recipe,
            own,
            before,
        })
    }

    /// One step on `texts` and on fresh answers. Returns the result of the step, whose loss is that
    /// of the texts, and the share of looping tokens in the answers.
    pub(crate) fn step(
        &self,
        model: &mut Backend,
        data: &TokenData,
        texts: &[Vec<u32>],
        step: u64,
    ) -> Result<(Step, f64)> {
        let trainer = model.on_host()?;
        let prompts = data.prompts(step, self.own.answers, &self.own.tasks);
        let answers = self.answers(trainer, &prompts)?;
        let tokens: usize = answers.iter().map(Vec::len).sum();
        let pairs = prompts.par_iter().zip(&answers);
        let marked = pairs.map(|(prompt, answer)| self.mark(prompt, answer));
        let marked: Vec<Option<Marked>> = marked.collect::<Result<_>>()?;
        let marked: Vec<Marked> = marked.into_iter().flatten().collect();
        let looped: usize = marked.iter().map(|answer| answer.unwanted.len()).sum();
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let objective = Unlikelihood::new(&texts, &marked, tokens, self.own.weight, self.own.keep);
        let own = marked.iter().map(|answer| answer.ids.as_slice());
        let batch: Vec<&[u32]> = texts.iter().copied().chain(own).collect();
        let graded = trainer.accumulate(&batch, &objective)?;
        let grad_norm = trainer.step(self.recipe.learning_rate(step))?;
        let loss = graded.terms[0];
        let share = looped as f64 / tokens.max(1) as f64;
        Ok((Step { loss, grad_norm }, share))
    }

    /// Greedy answers of the present model.
    fn answers(&self, trainer: &Trainer, prompts: &[&[u32]]) -> Result<Vec<Vec<u32>>> {
        let checkpoint = trainer.checkpoint();
        let stop = checkpoint.config.eos_token_ids.iter().copied();
        let config = PlainConfig {
            sampling: Sampling::GREEDY,
            max_new_tokens: self.own.answer_tokens,
            stop: stop.map(TargetId::new).collect(),
        };
        // A template limits the length of prompts, but those of the corpus also have the opening
        // token.
        let longest = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let context = longest + self.own.answer_tokens;
        let (seed, bar) = (self.recipe.seed, ProgressBar::hidden());
        answer(&checkpoint, prompts, &config, context, seed, &bar)
    }

    /// Marks the unwanted tokens of an answer and those whose distribution is to be kept. `None` if
    /// none of its tokens has a gradient.
    fn mark(&self, prompt: &[u32], answer: &[u32]) -> Result<Option<Marked>> {
        let unwanted: Vec<usize> = unwanted(answer).map(|place| prompt.len() + place).collect();
        let mut ids = [prompt, answer].concat();
        let kept = match &self.before {
            None => {
                // Tokens after the last unwanted one have no gradient.
                ids.truncate(unwanted.last().map_or(0, |place| place + 1));
                Vec::new()
            }
            Some(before) => {
                let mut laws = laws(before, &ids, prompt.len())?;
                laws.retain(|(place, _)| unwanted.binary_search(place).is_err());
                laws
            }
        };
        let any = !(unwanted.is_empty() && kept.is_empty());
        Ok(any.then_some(Marked {
            ids,
            unwanted,
            kept,
        }))
    }
}

/// The model's distribution at every token of `ids` from index `from` on.
fn laws(
    packed: &PackedWeights,
    ids: &[u32],
    from: usize,
) -> Result<Vec<(usize, Vec<f32>)>, LmError> {
    let Some((_, read)) = ids.split_last().filter(|_| from > 0 && from < ids.len()) else {
        return Ok(Vec::new());
    };
    let options = options(WeightType::F32, ids.len());
    let mut engine = CpuEngine::with_weights(packed.clone(), options)?;
    engine.prefill(&read[..from - 1])?;
    let mut logits = Vec::new();
    engine.forward(&read[from - 1..], &mut logits)?;
    let width = engine.config().vocab_size;
    let rows = logits.chunks_exact(width).map(|row| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut law: Vec<f32> = row.iter().map(|logit| (logit - max).exp()).collect();
        let total: f32 = law.iter().sum();
        law.iter_mut().for_each(|weight| *weight /= total);
        law
    });
    Ok((from..).zip(rows).collect())
}
