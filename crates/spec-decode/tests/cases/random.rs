//! Random settings, from their number.

use std::collections::BTreeSet;
use std::sync::Arc;

use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::testkit::{FakeModel, RowFn};
use spec_decode::{
    Dice, Pair, PromptLookup, Purpose, Sampling, SamplingOptions, SessionConfig, StreamName,
    VerifyMode,
};
use vocab_align::{DraftId, TargetId, TokenId};

use super::Setting;
use crate::common::*;

/// Random choices of a case, from its number.
pub struct Choices(Dice);

impl Choices {
    pub fn new(case: u64, what: u64) -> Self {
        Self(StreamName::new(what, case).dice(Purpose::Plain))
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.0.uniform() * n as f64) as usize
    }

    pub fn of<T: Clone>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())].clone()
    }

    pub fn some<T: Clone + Ord>(&mut self, pool: &[T], n: usize) -> Vec<T> {
        let mut chosen = BTreeSet::new();
        while chosen.len() < n {
            chosen.insert(self.of(pool));
        }
        chosen.into_iter().collect()
    }
}

/// Kind of logits.
#[derive(Clone, Copy)]
pub enum Rough {
    /// Multiples of 1/2, so that ties are common, and some `-inf`.
    TiesAndZeros,
    /// Multiples of 1/2.
    Ties,
    /// No ties.
    Smooth,
}

pub fn rows<I: TokenId>(seed: u64, vocab: usize, active: Vec<u32>, rough: Rough) -> RowFn<I> {
    Arc::new(move |ids: &[I]| {
        let key = ids.iter().fold(seed, |key, id| {
            (key ^ u64::from(id.get() + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        let mut dice = StreamName::new(seed, key).dice(Purpose::Draft);
        let mut row = vec![f32::NEG_INFINITY; vocab];
        let certain = (dice.uniform() * active.len() as f64) as usize;
        for (index, &token) in active.iter().enumerate() {
            let logit = 4.0 * dice.uniform();
            let zero = dice.uniform() < 0.2;
            row[token as usize] = match rough {
                Rough::TiesAndZeros if zero && index != certain => f32::NEG_INFINITY,
                Rough::Smooth => logit as f32,
                _ => ((2.0 * logit).round() / 2.0) as f32,
            };
        }
        row
    })
}

/// Properties that the cases of a test share.
#[derive(Clone, Copy)]
pub struct Family {
    pub rough: Rough,
    /// Temperature, or `None` for a random one with random options.
    pub temperature: Option<f64>,
}

pub const MIXED: Family = Family {
    rough: Rough::TiesAndZeros,
    temperature: None,
};

pub const DRAFT_TEXTS: [&str; 10] = ["b", "c", "d", "e", "ef", "bd", "<", "t", ">", "u"];
pub const TARGET_TEXTS: [&str; 16] = [
    "a", "b", "c", "d", "e", "ab", "abd", "ace", "cd", "de", "efa", "zz", "<", "t", "<t>", "<u>",
];

pub fn sampling(choices: &mut Choices, family: Family) -> Sampling {
    let mut options = SamplingOptions::default();
    if let Some(temperature) = family.temperature {
        options.temperature = temperature;
    } else {
        options.temperature = choices.of(&[0.3, 0.7, 1.0, 1.0, 2.0]);
        options.top_k = choices.of(&[0, 0, 0, 1, 2, 3]);
        options.top_p = choices.of(&[1.0, 1.0, 0.87, 0.61]);
        options.min_p = choices.of(&[0.0, 0.0, 0.11, 0.43]);
        options.repetition_penalty = choices.of(&[1.0, 1.0, 1.3, 0.8]);
    }
    Sampling::with_options(options).expect("valid options")
}

/// Session settings and draft length of a case.
pub fn setting(choices: &mut Choices, family: Family, mode: VerifyMode) -> (SessionConfig, usize) {
    let k = choices.of(&[1, 1, 1, 2, 2, 2, 3]);
    let config = SessionConfig {
        sampling: sampling(choices, family),
        stop: choices.of(&[BTreeSet::new(), stop()]),
        learn_ngrams: false,
        ..SessionConfig::new(mode, (k + 1).min(3))
    };
    (config, k)
}

pub fn spread(choices: &mut Choices, texts: &[&str], most: usize) -> Vec<&'static str> {
    let n = 1 + choices.below(most);
    let pool: Vec<&'static str> = DRAFT_TEXTS
        .iter()
        .chain(&TARGET_TEXTS)
        .copied()
        .filter(|text| texts.contains(text))
        .collect();
    choices.some(&pool, n)
}

/// Two vocabularies, a cache of arbitrary n-grams of active tokens, and sometimes two rounds.
pub fn across(case: u64, family: Family, mode: VerifyMode) -> Setting<FakeModel<DraftId>> {
    let choices = &mut Choices::new(case, mode as u64 + 1);
    let (config, k) = setting(choices, family, mode);
    // `a` has a direct token, so that no mask is ever without an active token.
    let mut draft: Vec<u32> = d(&["a"]).iter().map(|id| id.0).collect();
    let texts = spread(choices, &DRAFT_TEXTS, if k == 3 { 2 } else { 3 });
    draft.extend(d(&texts).iter().map(|id| id.0));
    let mut target: Vec<u32> = spread(choices, &TARGET_TEXTS, 4)
        .iter()
        .map(|text| t(text).0)
        .collect();
    if choices.below(3) == 0 {
        draft.push(DRAFT.end_of_turn());
        target.push(TARGET.end_of_turn());
    }
    let mut cache = NgramCache::new(CacheConfig::default());
    for _ in 0..choices.below(6) {
        let length = choices.of(&[2, 2, 3, 4]);
        let spelling: Vec<DraftId> = (0..length).map(|_| DraftId(choices.of(&draft))).collect();
        cache.insert(&spelling, TargetId(choices.of(&target)));
    }
    let rounds = if k == 1 { 1 + choices.below(2) } else { 1 };
    let rough = choices.of(&[family.rough, family.rough, Rough::Smooth]);
    let rough_draft = match rough {
        // The drafter's masks must leave a token with positive probability.
        Rough::TiesAndZeros => Rough::Ties,
        other => other,
    };
    let drafter = FakeModel::new(DRAFT.len(), rows(case, DRAFT.len(), draft, rough_draft));
    let target = FakeModel::new(TARGET.len(), rows(!case, TARGET.len(), target, rough));
    Setting {
        cache,
        k,
        rounds,
        ..Setting::new(drafter, target, PAIR.with(Pair::clone), config)
    }
}

thread_local! {
    static PAIR: Pair = pair();
    static SHARED: Pair = Pair::shared(pair().target);
}

/// One vocabulary for both models.
pub fn within(case: u64, mode: VerifyMode) -> Setting<FakeModel<DraftId>> {
    let choices = &mut Choices::new(case, 77);
    let (config, k) = setting(choices, MIXED, mode);
    let active = |choices: &mut Choices| -> Vec<u32> {
        let texts = spread(choices, &TARGET_TEXTS, 3);
        let mut ids: Vec<u32> = texts.iter().map(|text| t(text).0).collect();
        ids.push(TARGET.end_of_turn());
        ids
    };
    let (draft, target) = (active(choices), active(choices));
    let rough = Rough::TiesAndZeros;
    let drafter = FakeModel::new(TARGET.len(), rows(case, TARGET.len(), draft, rough));
    let target = FakeModel::new(TARGET.len(), rows(!case, TARGET.len(), target, rough));
    Setting {
        k,
        rounds: 1 + usize::from(k == 1),
        ..Setting::new(drafter, target, SHARED.with(Pair::clone), config)
    }
}

/// No draft model; a prompt with text to look up.
pub fn lookup(case: u64) -> Setting<PromptLookup> {
    let choices = &mut Choices::new(case, 78);
    let (config, k) = setting(choices, MIXED, VerifyMode::Tli);
    let mut active: Vec<u32> = spread(choices, &TARGET_TEXTS, 4)
        .iter()
        .map(|text| t(text).0)
        .collect();
    active.push(TARGET.end_of_turn());
    let prompt: Vec<TargetId> = (0..6).map(|_| TargetId(choices.of(&active))).collect();
    let rows = rows(case, TARGET.len(), active, Rough::TiesAndZeros);
    let drafter = PromptLookup::new(TARGET.len());
    let target = FakeModel::new(TARGET.len(), rows);
    let mut setting = Setting {
        draft_prompt: prompt.iter().map(|id| DraftId(id.0)).collect(),
        k,
        rounds: 2,
        ..Setting::new(drafter, target, SHARED.with(Pair::clone), config)
    };
    setting.alone.prompt = prompt;
    setting
}
