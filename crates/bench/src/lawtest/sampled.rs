//! Sampled answers, tested against the target's own distribution.

use std::time::Instant;

use anyhow::Result;
use ngram_cache::{CacheConfig, NgramCache};
use serde::Serialize;
use serde_json::{Value, json};
use spec_decode::goodness::{LEAST_EXPECTED, Partition, g_test, holm};
use spec_decode::{NoSink, Sampling, SessionConfig, StreamName, Totals, VerifyMode};

use super::{LawtestArgs, Mode, Models};

/// Default number of tokens that are tested.
const TOKENS: usize = 3;
/// Number of tokens of an answer that fills the cache.
const WARMUP_TOKENS: usize = 64;

/// The test of one mode.
#[derive(Debug, Serialize)]
struct Tested {
    verify: String,
    g: f64,
    degrees: usize,
    p_value: f64,
    rejected: bool,
    cache_ngrams: usize,
    acceptance_rate: f64,
    block_efficiency: f64,
    bytes_per_forward: f64,
    ngrams_proposed: usize,
    ngrams_accepted: usize,
    seconds: f64,
}

/// Tests every mode. Returns the report, and the modes that should have passed and did not.
pub(super) fn run(
    args: &LawtestArgs,
    modes: &[Mode],
    sampling: Sampling,
    models: &mut Models,
) -> Result<(Value, Vec<String>)> {
    let tokens = args.tokens.unwrap_or(TOKENS);
    let ids = models.ids(&args.prompt)?;
    let partition = Partition::new(
        &mut models.target_engine,
        &ids.target,
        sampling,
        &models.target.stop_tokens_unless(models.ignore_eos),
        tokens,
        LEAST_EXPECTED / f64::from(args.samples),
    )?;
    let mut tests = Vec::new();
    for mode in modes {
        tests.push(test(args, mode, sampling, tokens, &partition, models)?);
    }
    let p_values: Vec<f64> = tests.iter().map(|test| test.p_value).collect();
    for (test, rejected) in tests.iter_mut().zip(holm(&p_values, args.alpha)) {
        test.rejected = rejected;
    }
    let failed = tests
        .iter()
        .zip(modes)
        .filter(|(test, mode)| test.rejected && mode.verify != VerifyMode::Paper)
        .map(|(test, _)| format!("{} (p = {:.1e})", test.verify, test.p_value))
        .collect();
    let report = json!({
        "drafter": args.drafter,
        "target": args.target,
        "prompt": args.prompt,
        "temperature": args.temperature,
        "top_k": args.top_k,
        "top_p": args.top_p,
        "min_p": args.min_p,
        "repetition_penalty": args.repetition_penalty,
        "k": args.k,
        "seed": args.seed,
        "samples": args.samples,
        "tokens": tokens,
        "ignore_eos": args.ignore_eos,
        "buckets": partition.law().len(),
        "left_over": partition.law()[0],
        "alpha": args.alpha,
        "modes": tests,
    });
    Ok((report, failed))
}

fn test(
    args: &LawtestArgs,
    mode: &Mode,
    sampling: Sampling,
    tokens: usize,
    partition: &Partition,
    models: &mut Models,
) -> Result<Tested> {
    let ids = models.ids(&args.prompt)?;
    let prompt = ids.of(mode);
    let mut cache = NgramCache::new(CacheConfig::default());
    if mode.verify.uses_cache() {
        let settings = SessionConfig {
            learn_ngrams: true,
            ..models.settings(mode, sampling, WARMUP_TOKENS)
        };
        let mut session = models.session(mode, settings)?;
        let mut drafts = mode.drafts(args.k);
        for sample in 0..args.warmup {
            let name = name(args, 1, sample);
            let drafts = drafts.as_mut();
            session.generate(prompt, name, Some(&mut cache), drafts, &mut NoSink)?;
        }
    }
    // The cache does not change from here on, so that the samples are independent of each other.
    let began = Instant::now();
    let mut counts = vec![0; partition.law().len()];
    let mut totals = Totals::default();
    let settings = models.settings(mode, sampling, tokens);
    let mut session = models.session(mode, settings)?;
    let mut drafts = mode.drafts(args.k);
    for sample in 0..args.samples {
        let name = name(args, 0, sample);
        let drafts = drafts.as_mut();
        let done = session.generate(prompt, name, Some(&mut cache), drafts, &mut NoSink)?;
        counts[partition.bucket(&done.tokens)] += 1;
        totals.merge(&done.totals);
    }
    let found = g_test(&counts, partition.law());
    Ok(Tested {
        verify: mode.name.clone(),
        g: found.g,
        degrees: found.degrees,
        p_value: found.p_value,
        rejected: false,
        cache_ngrams: cache.len(),
        acceptance_rate: totals.acceptance_rate(),
        block_efficiency: totals.block_efficiency(),
        bytes_per_forward: totals.bytes_per_forward(),
        ngrams_proposed: totals.ngrams_proposed,
        ngrams_accepted: totals.ngrams_accepted,
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn name(args: &LawtestArgs, prompt: u64, sample: u32) -> StreamName {
    StreamName {
        sample,
        ..StreamName::new(args.seed, prompt)
    }
}
