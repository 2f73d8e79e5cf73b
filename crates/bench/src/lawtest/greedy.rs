//! Greedy answers against plain decoding.

use anyhow::Result;
use ngram_cache::{CacheConfig, NgramCache};
use serde::Serialize;
use serde_json::{Value, json};
use spec_decode::{
    LanguageModel, NoSink, PlainConfig, SessionConfig, StreamName, Totals, decode_plain,
};
use vocab_align::{TargetId, TokenId, raw_ids};

use super::prompts::prompts;
use super::{LawtestArgs, Mode, Models};

/// Default number of tokens of an answer.
const TOKENS: usize = 48;
/// Maximum number of differences that are listed; all are counted.
const SHOWN: usize = 5;

/// The comparison of one mode.
#[derive(Debug, Default, Serialize)]
struct Compared {
    verify: String,
    equal: usize,
    different: usize,
    /// Number of the different answers whose first difference is a tie.
    ties: usize,
    /// Largest gap of the two best logits at a first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    largest_gap: Option<f32>,
    /// The first few differences.
    differences: Vec<Difference>,
    cache_ngrams: usize,
    acceptance_rate: f64,
    block_efficiency: f64,
    bytes_per_forward: f64,
    seconds: f64,
}

/// First difference between an answer and the plain one.
#[derive(Debug, Serialize)]
struct Difference {
    prompt: String,
    position: usize,
    plain: Option<TargetId>,
    found: Option<TargetId>,
    /// Logit margin by which the target prefers its own token: near 0 if rounding decides a tie.
    margin: Option<f32>,
    /// Gap of the two best logits there, decoded one token at a time.
    gap: f32,
}

/// Compares every mode on every prompt; the n-gram cache learns from prompt to prompt. Returns the
/// report, and the modes with a difference that is no tie.
pub(super) fn run(
    args: &LawtestArgs,
    modes: &[Mode],
    models: &mut Models,
) -> Result<(Value, Vec<String>)> {
    let tokens = args.tokens.unwrap_or(TOKENS);
    let tie = args.tie.unwrap_or_else(|| models.tie());
    let sampling = args.decode().sampling()?;
    let plain_config = PlainConfig {
        sampling,
        max_new_tokens: tokens,
        stop: models.target.stop_tokens_unless(models.ignore_eos),
    };
    let mut results: Vec<(Compared, Totals, NgramCache)> = modes
        .iter()
        .map(|mode| {
            let compared = Compared {
                verify: mode.name.clone(),
                ..Compared::default()
            };
            let cache = NgramCache::new(CacheConfig::default());
            (compared, Totals::default(), cache)
        })
        .collect();
    let mut compared_tokens = 0;
    let asked = prompts(args.prompts, args.seed)?;
    for (number, prompt) in asked.iter().enumerate() {
        let ids = models.ids(prompt)?;
        let name = StreamName::new(args.seed, number as u64);
        let plain = decode_plain(
            &mut models.target_engine,
            &ids.target,
            &plain_config,
            name,
            &mut NoSink,
        )?;
        compared_tokens += plain.tokens.len();
        for (mode, (compared, totals, cache)) in modes.iter().zip(&mut results) {
            let settings = SessionConfig {
                learn_ngrams: true,
                ..models.settings(mode, sampling, tokens)
            };
            let mut drafts = mode.drafts(args.k);
            let done = models.session(mode, settings)?.generate(
                ids.of(mode),
                name,
                Some(cache),
                drafts.as_mut(),
                &mut NoSink,
            )?;
            totals.merge(&done.totals);
            if done.tokens == plain.tokens {
                compared.equal += 1;
                continue;
            }
            let found = difference(models, prompt, &ids.target, &plain.tokens, &done.tokens)?;
            compared.add(found, tie);
        }
    }
    let mut failed = Vec::new();
    let mut reports = Vec::new();
    for (mut compared, totals, cache) in results {
        compared.cache_ngrams = cache.len();
        compared.acceptance_rate = totals.acceptance_rate();
        compared.block_efficiency = totals.block_efficiency();
        compared.bytes_per_forward = totals.bytes_per_forward();
        compared.seconds = totals.timings.total();
        let different = compared.different - compared.ties;
        if different > 0 {
            let verify = &compared.verify;
            failed.push(format!("{verify} ({different} of {} prompts)", asked.len()));
        }
        reports.push(compared);
    }
    let report = json!({
        "drafter": args.drafter,
        "target": args.target,
        "prompts": asked.len(),
        "tokens": compared_tokens,
        "k": args.k,
        "repetition_penalty": args.repetition_penalty,
        "tie_below": tie,
        "modes": reports,
    });
    Ok((report, failed))
}

impl Compared {
    /// Adds an answer that is different. If the gap is below `tie`, rounding explains the
    /// difference.
    fn add(&mut self, found: Difference, tie: f32) {
        self.different += 1;
        self.ties += usize::from(found.gap < tie);
        self.largest_gap = Some(self.largest_gap.map_or(found.gap, |gap| gap.max(found.gap)));
        if self.differences.len() < SHOWN {
            self.differences.push(found);
        }
    }
}

fn difference(
    models: &mut Models,
    prompt: &str,
    ids: &[TargetId],
    plain: &[TargetId],
    found: &[TargetId],
) -> Result<Difference> {
    let position = plain.iter().zip(found).take_while(|(a, b)| a == b).count();
    let (expected, got) = (plain.get(position).copied(), found.get(position).copied());
    let target = &mut models.target_engine;
    target.truncate(0);
    let context = [ids, &plain[..position]].concat();
    let mut logits = Vec::new();
    // One token at a time, as plain decoding reads them: rows of a worker depend on their number.
    let context = raw_ids(&context);
    target.prefill(&context[..ids.len().saturating_sub(1)])?;
    for id in &context[ids.len().saturating_sub(1)..] {
        target.forward(&[*id], &mut logits)?;
    }
    let row = &logits;
    let mut best = [f32::NEG_INFINITY; 2];
    for logit in row {
        if *logit > best[0] {
            best = [*logit, best[0]];
        } else if *logit > best[1] {
            best[1] = *logit;
        }
    }
    let margin = expected
        .zip(got)
        .map(|(expected, got)| row[expected.index()] - row[got.index()]);
    Ok(Difference {
        prompt: prompt.to_owned(),
        position,
        plain: expected,
        found: got,
        margin,
        gap: best[0] - best[1],
    })
}
