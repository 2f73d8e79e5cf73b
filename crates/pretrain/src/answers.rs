//! Answers of a model to many prompts, and the tokens of theirs that loop.

use cpu_engine::{CpuEngine, EngineOptions, PackedWeights};
use indicatif::ProgressBar;
use lm::{TensorSource, WeightType};
use models::Engine;
use rayon::prelude::*;
use spec_decode::{NoSink, PlainConfig, StreamName, decode_plain};
use vocab_align::{TargetId, TokenId};

use crate::error::Result;

/// Options of an engine of one thread.
pub(crate) fn options(weights: WeightType, max_len: usize) -> EngineOptions {
    EngineOptions {
        weights,
        threads: 1,
        max_len,
        ..EngineOptions::default()
    }
}

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
    let options = options(WeightType::Bf16, context);
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

/// Indices of the looping tokens, which end a 4-gram that occurred earlier in the answer.
pub(crate) fn unwanted(answer: &[u32]) -> impl Iterator<Item = usize> {
    let marks = results::looping(answer).into_iter().enumerate();
    marks.filter_map(|(place, loops)| loops.then_some(place))
}
