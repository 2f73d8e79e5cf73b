//! Measurement of answers: plain, with drafts of several lengths, and with prompt lookup.

use anyhow::Result;
use models::{Engine, ModelFolder, Talk, TargetFolder, align};
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::{
    ConstantLength, Generation, LanguageModel, NoSink, Pair, PlainConfig, Prompt, PromptLookup,
    Session, SessionConfig, StreamName, Totals, VerifyMode, decode_plain,
};
use streams::Prompt as Question;
use vocab_align::DraftId;

use super::LENGTHS;
use super::model::RoundCost;

/// Measurement of one way of decoding.
#[derive(Debug, Clone, Default)]
pub struct DecodingRun {
    /// Draft length; 0 is plain decoding.
    pub k: usize,
    /// Tokens and seconds of decoding, by prompt.
    pub answers: Vec<(usize, f64)>,
    totals: Totals,
}

impl DecodingRun {
    fn new(k: usize) -> Self {
        Self {
            k,
            ..Self::default()
        }
    }

    fn add(&mut self, done: &Generation) {
        let seconds = done.totals.timings.total();
        self.answers.push((done.tokens.len(), seconds));
        self.totals.merge(&done.totals);
    }

    /// Tokens of all answers.
    pub fn tokens(&self) -> usize {
        self.answers.iter().map(|(tokens, _)| tokens).sum()
    }

    /// Seconds per token, over all answers.
    pub fn seconds_a_token(&self) -> f64 {
        seconds_a_token(self.answers.iter())
    }

    /// Acceptance rate: accepted over proposed tokens, pooled over rounds.
    pub fn acceptance(&self) -> f64 {
        self.totals.accepted as f64 / self.totals.proposed as f64
    }

    /// Block efficiency: tokens per round.
    pub fn tokens_a_round(&self) -> f64 {
        self.totals.block_efficiency()
    }

    /// Speedup over `plain`.
    pub fn speed(&self, plain: &Self) -> f64 {
        plain.seconds_a_token() / self.seconds_a_token()
    }

    /// The speedup of a bootstrap sample, the prompts `order`.
    pub fn speed_of(&self, plain: &Self, order: &[usize]) -> f64 {
        let of = |way: &Self| seconds_a_token(order.iter().map(|i| &way.answers[*i]));
        of(plain) / of(self)
    }

    /// Cost of a round, in plain steps.
    pub fn round_cost(&self, plain: &Self) -> RoundCost {
        let rounds = self.totals.rounds as f64;
        RoundCost {
            k: self.k,
            proposed: self.totals.proposed as f64 / rounds,
            cost: self.totals.timings.total() / rounds / plain.seconds_a_token(),
        }
    }

    /// Shares of a round's time: drafting, target, everything else.
    pub fn shares(&self) -> [f64; 3] {
        let timings = &self.totals.timings;
        let total = timings.total();
        [
            timings.draft,
            timings.target,
            total - timings.draft - timings.target,
        ]
        .map(|s| s / total)
    }
}

fn seconds_a_token<'a>(answers: impl Iterator<Item = &'a (usize, f64)>) -> f64 {
    let (tokens, seconds) = answers.fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    seconds / tokens as f64
}

/// All measurements of a pair.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Decoding with the target alone.
    pub plain: DecodingRun,
    /// Decoding with the drafter, by draft length.
    pub drafted: Vec<DecodingRun>,
    /// Prompt lookup without a drafter.
    pub lookup: DecodingRun,
    /// Number of tokens of all prompts for the drafter.
    pub prompt_tokens: usize,
}

impl Measured {
    /// Costs of a round, by draft length.
    pub fn rounds(&self) -> Vec<RoundCost> {
        let rounds = self.drafted.iter().map(|way| way.round_cost(&self.plain));
        rounds.collect()
    }
}

/// Answers the prompts in all ways, one prompt after the other, so that a disturbance of the
/// machine affects all ways alike. `settings` are those of every answer, `seed` that of the random
/// streams. `progress` is called with the number of prompts that are done.
///
/// # Errors
/// Text that cannot be tokenised; errors of the models.
pub fn measure(
    drafter: &ModelFolder<DraftId>,
    target: &TargetFolder,
    (mut draft_engine, mut target_engine): (Engine, Engine),
    prompts: &[Question],
    settings: &PlainConfig,
    seed: u64,
    mut progress: impl FnMut(usize),
) -> Result<Measured> {
    let pair = align(drafter, target);
    let shared = Pair::shared(target.vocabulary.clone());
    let longest = LENGTHS.into_iter().max().unwrap_or(1);
    let run = |k| (DecodingRun::new(k), NgramCache::new(CacheConfig::default()));
    let mut lengths = LENGTHS.map(run);
    let mut prompt_tokens = 0;
    let (mut plain, mut lookup) = (DecodingRun::new(0), DecodingRun::new(longest));
    let mut talk = Talk::default();
    for (number, question) in prompts.iter().enumerate() {
        let name = StreamName::new(seed, number as u64);
        let long = (settings.max_new_tokens, false);
        let before = talk.before(&question.earlier, target, &mut target_engine, long)?;
        let (_, ids) = target.turn(before, &question.prompt)?;
        let (_, draft_ids) = drafter.turn(before, &question.prompt)?;
        prompt_tokens += draft_ids.len();
        let done = decode_plain(&mut target_engine, &ids, settings, name, &mut NoSink)?;
        plain.answers.push((done.tokens.len(), done.decode_seconds));
        for (way, cache) in &mut lengths {
            let session = session(VerifyMode::Exact, settings);
            let mut session =
                Session::new(&mut draft_engine, &mut target_engine, pair.clone(), session)?;
            let prompt = Prompt {
                draft: &draft_ids,
                target: &ids,
            };
            let mut policy = ConstantLength(way.k);
            way.add(&session.generate(prompt, name, Some(cache), &mut policy, &mut NoSink)?);
        }
        let copied: Vec<DraftId> = ids.iter().map(|id| DraftId(id.0)).collect();
        let vocabulary = target_engine.vocab_size();
        let mut session = Session::new(
            PromptLookup::new(vocabulary),
            &mut target_engine,
            shared.clone(),
            session(VerifyMode::Tli, settings),
        )?;
        let prompt = Prompt {
            draft: &copied,
            target: &ids,
        };
        let mut policy = ConstantLength(longest);
        lookup.add(&session.generate(prompt, name, None, &mut policy, &mut NoSink)?);
        progress(number + 1);
    }
    Ok(Measured {
        plain,
        drafted: lengths.into_iter().map(|(way, _)| way).collect(),
        lookup,
        prompt_tokens,
    })
}

fn session(mode: VerifyMode, settings: &PlainConfig) -> SessionConfig {
    SessionConfig {
        sampling: settings.sampling,
        stop: settings.stop.clone(),
        ..SessionConfig::new(mode, settings.max_new_tokens)
    }
}
