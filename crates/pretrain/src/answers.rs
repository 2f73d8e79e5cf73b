//! Answers of a model to many prompts, and statistics of them: length, looping, distinct answers.

use std::collections::HashSet;

use cpu_engine::{CpuEngine, EngineOptions, PackedWeights};
use indicatif::ProgressBar;
use lm::{TensorSource, WeightType};
use models::Engine;
use rayon::prelude::*;
use spec_decode::{NoSink, PlainConfig, StreamName, decode_plain};
use vocab_align::{TargetId, TokenId};

use crate::error::Result;

/// Answers every prompt with the model of `source`, on all cores, one prompt per core at a time.
/// Its weights are rounded to bf16, as they are stored; a KV cache holds `context` tokens. The
/// answers do not depend on the number of cores.
pub(crate) fn answer(
    source: &dyn TensorSource,
    prompts: &[&[u32]],
    config: &PlainConfig,
    context: usize,
    seed: u64,
    bar: &ProgressBar,
) -> Result<Vec<Vec<u32>>> {
    let options = EngineOptions {
        weights: WeightType::Bf16,
        threads: 1,
        max_len: context,
        ..EngineOptions::default()
    };
    let packed = PackedWeights::new(source, &options)?;
    let one = |engine: &mut Option<Engine>, place: usize| -> Result<Vec<u32>> {
        let engine = match engine {
            Some(engine) => engine,
            None => {
                let own = CpuEngine::with_weights(packed.clone(), options.clone())?;
                engine.insert(Engine::of(Box::new(own)))
            }
        };
        let prompt: Vec<TargetId> = prompts[place].iter().map(|id| TargetId::new(*id)).collect();
        let name = StreamName::new(seed, place as u64);
        let done = decode_plain(engine, &prompt, config, name, &mut NoSink)?;
        bar.inc(1);
        Ok(done.tokens.into_iter().map(TokenId::get).collect())
    };
    let places = (0..prompts.len()).into_par_iter();
    places.map_init(|| None, one).collect()
}

/// Statistics of a set of answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Habits {
    /// Mean number of tokens per answer.
    pub(crate) length: f64,
    /// Share of the tokens, in `[0, 1]`, that end a 4-gram which occurred earlier in the answer.
    pub(crate) looping: f64,
    /// Share of distinct answers, in `[0, 1]`.
    pub(crate) distinct: f64,
}

impl Habits {
    /// Statistics of at least one answer.
    pub(crate) fn of(answers: &[Vec<u32>]) -> Self {
        let tokens: usize = answers.iter().map(Vec::len).sum();
        let looping: usize = answers.iter().map(|a| unwanted(a).count()).sum();
        let distinct: HashSet<_> = answers.iter().collect();
        let count = answers.len().max(1) as f64;
        Self {
            length: tokens as f64 / count,
            looping: looping as f64 / tokens.max(1) as f64,
            distinct: distinct.len() as f64 / count,
        }
    }
}

/// Indices of the looping tokens.
pub(crate) fn unwanted(answer: &[u32]) -> impl Iterator<Item = usize> {
    let marks = results::looping(answer).into_iter().enumerate();
    marks.filter_map(|(place, loops)| loops.then_some(place))
}
