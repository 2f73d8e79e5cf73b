//! The output law by exact enumeration, over thousands of random cases: logits with zeros and
//! ties, disjoint supports, caches, draft lengths, temperatures, sampling options, special tokens,
//! stop tokens, one and two rounds.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use common::*;
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::testkit::{FakeModel, RowFn, law_of};
use spec_decode::{
    Acceptance, ConstantLength, CopyPlan, Dice, DraftPolicy, DraftStep, Found, History,
    LanguageModel, NoSink, Pair, Prompt, PromptLookup, Purpose, Sampling, SamplingOptions, Session,
    SessionConfig, StreamName, VerifyMode,
};
use vocab_align::{DraftId, TargetId, TokenId};

type Law = BTreeMap<Vec<TargetId>, f64>;

/// What enumeration may be off by: sums of at most some ten thousand products of probabilities.
const TOLERANCE: f64 = 1e-12;

/// Random choices of a case, from its number.
struct Choices(Dice);

impl Choices {
    fn new(case: u64, what: u64) -> Self {
        Self(StreamName::new(what, case).dice(Purpose::Plain))
    }

    fn below(&mut self, n: usize) -> usize {
        (self.0.uniform() * n as f64) as usize
    }

    fn of<T: Clone>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())].clone()
    }

    fn some<T: Clone + Ord>(&mut self, pool: &[T], n: usize) -> Vec<T> {
        let mut chosen = BTreeSet::new();
        while chosen.len() < n {
            chosen.insert(self.of(pool));
        }
        chosen.into_iter().collect()
    }
}

/// How logits come about.
#[derive(Clone, Copy)]
enum Rough {
    /// Multiples of 1/2, so that ties are common, and some `-inf`.
    TiesAndZeros,
    /// Multiples of 1/2.
    Ties,
    /// No ties.
    Smooth,
}

fn rows<I: TokenId>(seed: u64, vocab: usize, active: Vec<u32>, rough: Rough) -> RowFn<I> {
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

/// The processed law, written down as the options are defined, without any regard to speed.
fn reference(sampling: Sampling, row: &[f32], context: &[TargetId]) -> Vec<(TargetId, f64)> {
    let o: SamplingOptions = sampling.options();
    let seen: BTreeSet<usize> = context.iter().map(|id| id.index()).collect();
    let penalised = |(id, &logit): (usize, &f32)| {
        let logit = f64::from(logit);
        match (seen.contains(&id), logit > 0.0) {
            (false, _) => (id, logit),
            (true, true) => (id, f64::from((logit / o.repetition_penalty) as f32)),
            (true, false) => (id, f64::from((logit * o.repetition_penalty) as f32)),
        }
    };
    let logits: Vec<(usize, f64)> = row.iter().enumerate().map(penalised).collect();
    let best = logits.iter().fold(f64::NEG_INFINITY, |m, l| m.max(l.1));
    let mut law: Vec<(usize, f64)> = logits
        .into_iter()
        .map(|(id, logit)| (id, ((logit - best) / o.temperature).exp()))
        .filter(|&(_, weight)| weight > 0.0)
        .collect();
    law.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if o.top_k > 0 {
        law.truncate(o.top_k);
    }
    let total: f64 = law.iter().map(|l| l.1).sum();
    let mut held = 0.0;
    law.retain(|&(_, weight)| {
        let keep = held < o.top_p * total;
        held += weight;
        keep || o.top_p == 1.0
    });
    let largest = law[0].1;
    law.retain(|&(_, weight)| weight >= o.min_p * largest);
    let total: f64 = law.iter().map(|l| l.1).sum();
    law.into_iter()
        .map(|(id, weight)| (TargetId(id as u32), weight / total))
        .collect()
}

type Memo = RefCell<HashMap<Vec<TargetId>, Vec<(TargetId, f64)>>>;

/// The target on its own.
struct Alone {
    target: FakeModel<TargetId>,
    prompt: Vec<TargetId>,
    config: SessionConfig,
    memo: Memo,
}

impl Alone {
    /// Adds the law of what follows `prefix`, which has probability `mass`, to `law`.
    fn extend(&self, prefix: &[TargetId], mass: f64, law: &mut Law) {
        let ended = prefix.last().is_some_and(|t| self.config.stop.contains(t));
        if ended || prefix.len() >= self.config.max_new_tokens {
            *law.entry(prefix.to_vec()).or_default() += mass;
            return;
        }
        let known = self.memo.borrow().get(prefix).cloned();
        let next = known.unwrap_or_else(|| {
            let context = [&self.prompt, prefix].concat();
            let row = self.target.row(&context);
            let next = reference(self.config.sampling, &row, &context);
            let mut memo = self.memo.borrow_mut();
            memo.insert(prefix.to_vec(), next.clone());
            next
        });
        for (token, p) in next {
            self.extend(&[prefix, &[token]].concat(), mass * p, law);
        }
    }
}

/// One setting to enumerate.
struct Setting<D> {
    drafter: D,
    alone: Alone,
    pair: Pair,
    cache: NgramCache,
    draft_prompt: Vec<DraftId>,
    k: usize,
    rounds: usize,
    /// Numbers the policy that decides how much of k is drafted.
    policy: u64,
    /// Where text is looked up.
    history: Option<History>,
}

/// A stand-in for policies that a head or a plan drives: it stops behind tokens, as a
/// hash of the drafter's state, its logits, the token and the path so far will have it.
struct StateDriven {
    seed: u64,
    k: usize,
    path: u64,
}

impl StateDriven {
    fn stops(&mut self, position: usize, token: DraftId, state: &[f32], open: bool) -> bool {
        let mut key = self.seed ^ self.path ^ (u64::from(open) << 48);
        for value in state.iter().filter(|value| value.is_finite()) {
            key = (key ^ u64::from(value.to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        key = (key ^ u64::from(token.0) ^ ((position as u64) << 32))
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.path = self.path.rotate_left(7) ^ key;
        StreamName::new(self.seed, key)
            .dice(Purpose::Head)
            .uniform()
            < 0.35
    }
}

impl DraftPolicy for StateDriven {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        let text = found.tokens.iter().fold(self.seed, |key, token| {
            (key ^ u64::from(token.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        let mut dice = StreamName::new(text, found.matched as u64).dice(Purpose::Head);
        CopyPlan {
            copy: (dice.uniform() * 4.0) as usize,
            draft: dice.uniform() < 0.7,
        }
    }

    fn next_len(&mut self) -> usize {
        self.path = 0;
        self.k
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let DraftStep {
            position,
            token,
            state,
            open,
            ..
        } = *step;
        assert!(!state.is_empty() && state == step.logits);
        self.stops(position, token, state, open)
    }
}

impl<D: LanguageModel<DraftId>> Setting<D> {
    /// The same with drafts that the drafter's state cuts short.
    fn state_driven(self, seed: u64) -> Self {
        Self {
            policy: 1 + seed,
            ..self
        }
    }

    /// The same with text to copy from: a prompt and an earlier text out of the tokens that the
    /// target says most, and, where the drafter may not follow, nothing else.
    fn copying(mut self, case: u64) -> Self {
        let choices = &mut Choices::new(case, 79);
        let row = self.alone.target.row(&self.alone.prompt);
        let mut ids: Vec<u32> = (0..row.len() as u32).collect();
        ids.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
        let likely: Vec<TargetId> = ids[..3].iter().copied().map(TargetId).collect();
        let mut text = |n| -> Vec<TargetId> { (0..n).map(|_| choices.of(&likely)).collect() };
        let (earlier, prompt) = (text(4), text(4));
        let mut history = History::default();
        history.start(&earlier);
        self.history = Some(history);
        self.alone.prompt = prompt;
        self.state_driven(case)
    }

    /// The same with all choices of a draft judged together.
    fn block(mut self) -> Self {
        self.alone.config.acceptance = Acceptance::Block;
        self
    }

    /// The same with a cache in which every token has one spelling, direct ones none.
    fn one_spelling(mut self) -> Self {
        let mut known: BTreeSet<TargetId> = self
            .pair
            .alignment
            .pairs()
            .iter()
            .map(|&(_, t)| t)
            .collect();
        let mut cache = NgramCache::new(CacheConfig::default());
        for (node, target) in self.cache.subtree(self.cache.root()) {
            let entry = self.cache.entry(node).expect("a node with a token");
            let spelling = self.cache.spelling(entry).expect("an entry of the cache");
            if known.insert(target) {
                cache.insert(&spelling, target);
            }
        }
        self.cache = cache;
        self
    }

    /// Looked-up tokens that the first round is expected to accept.
    fn copies_accepted(self) -> f64 {
        let alone = &self.alone;
        let history = self.history.expect("text to copy from");
        let mut session = Session::new(
            self.drafter,
            alone.target.clone(),
            self.pair,
            alone.config.clone(),
        )
        .expect("a valid session");
        let mut cache = self.cache;
        let prompt = Prompt {
            draft: &self.draft_prompt,
            target: &alone.prompt,
        };
        let mut policy = StateDriven {
            seed: self.policy,
            k: self.k,
            path: 0,
        };
        let outcomes = law_of(|oracle| {
            let dice = || Box::new(oracle.clone());
            session.look_up_in(history.clone());
            session.start_with(prompt, dice(), dice()).expect("starts");
            let round = session.round(Some(&mut cache), &mut policy, &mut NoSink);
            let round = round.expect("a round");
            round.looked_up().min(round.accepted)
        });
        outcomes.iter().map(|(&n, mass)| n as f64 * mass).sum()
    }

    /// Tokens that the first round is expected to emit.
    fn expected_tokens(self) -> f64 {
        let alone = &self.alone;
        let config = SessionConfig {
            max_new_tokens: 100,
            ..alone.config.clone()
        };
        let mut session = Session::new(self.drafter, alone.target.clone(), self.pair, config)
            .expect("a valid session");
        let mut cache = self.cache;
        let prompt = Prompt {
            draft: &self.draft_prompt,
            target: &alone.prompt,
        };
        let outcomes = law_of(|oracle| {
            let dice = || Box::new(oracle.clone());
            session.start_with(prompt, dice(), dice()).expect("starts");
            let k = &mut ConstantLength(self.k);
            let round = session.round(Some(&mut cache), k, &mut NoSink);
            round.expect("a round").emitted.len()
        });
        outcomes.iter().map(|(&n, mass)| n as f64 * mass).sum()
    }

    /// Largest deviation of the law after some rounds, continued by the target alone, from the
    /// target's own.
    fn deviation(self) -> f64 {
        let alone = &self.alone;
        let (target, config) = (alone.target.clone(), alone.config.clone());
        let mut session =
            Session::new(self.drafter, target, self.pair, config).expect("a valid session");
        let mut cache = self.cache;
        let history = self.history;
        let prompt = Prompt {
            draft: &self.draft_prompt,
            target: &alone.prompt,
        };
        let mut constant = ConstantLength(self.k);
        let mut driven = StateDriven {
            seed: self.policy,
            k: self.k,
            path: 0,
        };
        let outcomes = law_of(|oracle| {
            let dice = || Box::new(oracle.clone());
            if let Some(history) = history.clone() {
                session.look_up_in(history);
            }
            session.start_with(prompt, dice(), dice()).expect("starts");
            for _ in 0..self.rounds {
                if session.finished().is_none() {
                    let policy: &mut dyn DraftPolicy = if self.policy == 0 {
                        &mut constant
                    } else {
                        &mut driven
                    };
                    session
                        .round(Some(&mut cache), policy, &mut NoSink)
                        .expect("a round");
                }
            }
            session.response().to_vec()
        });
        let (mut found, mut expected) = (Law::new(), Law::new());
        alone.extend(&[], 1.0, &mut expected);
        for (response, mass) in &outcomes {
            alone.extend(response, *mass, &mut found);
        }
        let total: f64 = found.values().sum();
        assert!((total - 1.0).abs() < TOLERANCE, "the law sums to {total}");
        let at = |law: &Law, key: &Vec<TargetId>| law.get(key).copied().unwrap_or(0.0);
        found
            .keys()
            .chain(expected.keys())
            .map(|key| (at(&found, key) - at(&expected, key)).abs())
            .fold(0.0, f64::max)
    }
}

/// What the cases of a test have in common.
#[derive(Clone, Copy)]
struct Family {
    rough: Rough,
    /// Temperature, or `None` for a random one with random options.
    temperature: Option<f64>,
}

const MIXED: Family = Family {
    rough: Rough::TiesAndZeros,
    temperature: None,
};

const DRAFT_TEXTS: [&str; 10] = ["b", "c", "d", "e", "ef", "bd", "<", "t", ">", "u"];
const TARGET_TEXTS: [&str; 16] = [
    "a", "b", "c", "d", "e", "ab", "abd", "ace", "cd", "de", "efa", "zz", "<", "t", "<t>", "<u>",
];

fn sampling(choices: &mut Choices, family: Family) -> Sampling {
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
fn setting(choices: &mut Choices, family: Family, mode: VerifyMode) -> (SessionConfig, usize) {
    let k = choices.of(&[1, 1, 1, 2, 2, 2, 3]);
    let config = SessionConfig {
        sampling: sampling(choices, family),
        stop: choices.of(&[BTreeSet::new(), stop()]),
        learn_ngrams: false,
        ..SessionConfig::new(mode, (k + 1).min(3))
    };
    (config, k)
}

fn spread(choices: &mut Choices, texts: &[&str], most: usize) -> Vec<&'static str> {
    let n = 1 + choices.below(most);
    let pool: Vec<&'static str> = DRAFT_TEXTS
        .iter()
        .chain(&TARGET_TEXTS)
        .copied()
        .filter(|text| texts.contains(text))
        .collect();
    choices.some(&pool, n)
}

/// Two vocabularies, a cache of anything spelled in active tokens, and sometimes two rounds.
fn across(case: u64, family: Family, mode: VerifyMode) -> Setting<FakeModel<DraftId>> {
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
        // Masks of the drafter must not meet a zero on every token they leave.
        Rough::TiesAndZeros => Rough::Ties,
        other => other,
    };
    Setting {
        drafter: FakeModel::new(DRAFT.len(), rows(case, DRAFT.len(), draft, rough_draft)),
        alone: Alone {
            target: FakeModel::new(TARGET.len(), rows(!case, TARGET.len(), target, rough)),
            prompt: PROMPT.target.to_vec(),
            config,
            memo: Memo::default(),
        },
        pair: PAIR.with(Pair::clone),
        cache,
        draft_prompt: PROMPT.draft.to_vec(),
        k,
        rounds,
        policy: 0,
        history: None,
    }
}

thread_local! {
    static PAIR: Pair = pair();
    static SHARED: Pair = Pair::shared(pair().target);
}

/// One vocabulary for both models.
fn within(case: u64, mode: VerifyMode) -> Setting<FakeModel<DraftId>> {
    let choices = &mut Choices::new(case, 77);
    let (config, k) = setting(choices, MIXED, mode);
    let active = |choices: &mut Choices| -> Vec<u32> {
        let texts = spread(choices, &TARGET_TEXTS, 3);
        let mut ids: Vec<u32> = texts.iter().map(|text| t(text).0).collect();
        ids.push(TARGET.end_of_turn());
        ids
    };
    let (draft, target) = (active(choices), active(choices));
    Setting {
        drafter: FakeModel::new(
            TARGET.len(),
            rows(case, TARGET.len(), draft, Rough::TiesAndZeros),
        ),
        alone: Alone {
            target: FakeModel::new(
                TARGET.len(),
                rows(!case, TARGET.len(), target, Rough::TiesAndZeros),
            ),
            prompt: PROMPT.target.to_vec(),
            config,
            memo: Memo::default(),
        },
        pair: SHARED.with(Pair::clone),
        cache: NgramCache::new(CacheConfig::default()),
        draft_prompt: PROMPT.draft.to_vec(),
        k,
        rounds: 1 + usize::from(k == 1),
        policy: 0,
        history: None,
    }
}

/// No draft model at all, a prompt with something to look up.
fn lookup(case: u64) -> Setting<PromptLookup<DraftId>> {
    let choices = &mut Choices::new(case, 78);
    let (config, k) = setting(choices, MIXED, VerifyMode::Tli);
    let mut active: Vec<u32> = spread(choices, &TARGET_TEXTS, 4)
        .iter()
        .map(|text| t(text).0)
        .collect();
    active.push(TARGET.end_of_turn());
    let prompt: Vec<TargetId> = (0..6).map(|_| TargetId(choices.of(&active))).collect();
    Setting {
        drafter: PromptLookup::new(TARGET.len()),
        alone: Alone {
            target: FakeModel::new(
                TARGET.len(),
                rows(case, TARGET.len(), active, Rough::TiesAndZeros),
            ),
            prompt: prompt.clone(),
            config,
            memo: Memo::default(),
        },
        pair: SHARED.with(Pair::clone),
        cache: NgramCache::new(CacheConfig::default()),
        draft_prompt: prompt.iter().map(|id| DraftId(id.0)).collect(),
        k,
        rounds: 2,
        policy: 0,
        history: None,
    }
}

fn assert_exact<D: LanguageModel<DraftId>>(
    cases: std::ops::Range<u64>,
    setting: impl Fn(u64) -> Setting<D>,
) {
    for case in cases {
        let off = setting(case).deviation();
        assert!(off < TOLERANCE, "case {case}: off by {off:e}");
    }
}

#[test]
fn exact() {
    assert_exact(0..8000, |case| across(case, MIXED, VerifyMode::Exact));
}

#[test]
fn blocks() {
    assert_exact(0..8000, |case| {
        across(case, MIXED, VerifyMode::Exact).block()
    });
    assert_exact(0..3000, |case| across(case, MIXED, VerifyMode::Tli).block());
    assert_exact(0..2000, |case| within(case, VerifyMode::Tli).block());
    assert_exact(0..2000, |case| within(case, VerifyMode::Exact).block());
    assert_exact(0..3000, |case| lookup(case).block());
    assert_exact(0..4000, |case| {
        across(case, MIXED, VerifyMode::Exact)
            .state_driven(case)
            .block()
    });
}

#[test]
fn drafts_that_begin_with_copied_text() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
        assert_exact(0..4000, |case| across(case, MIXED, mode).copying(case));
        assert_exact(0..2000, |case| {
            across(case, MIXED, mode).copying(case).block()
        });
    }
    assert_exact(0..2000, |case| {
        within(case, VerifyMode::Exact).copying(case).block()
    });
}

#[test]
fn copied_text_is_proposed() {
    let mut accepted = 0.0;
    for case in 0..200 {
        let family = Family {
            temperature: Some(0.3),
            ..MIXED
        };
        accepted += across(case, family, VerifyMode::Exact)
            .copying(case)
            .copies_accepted();
    }
    assert!(accepted > 20.0, "{accepted}");
}

#[test]
fn blocks_never_emit_fewer_tokens() {
    let family = Family {
        temperature: Some(1.0),
        ..MIXED
    };
    let (mut sums, mut more) = ([0.0; 2], 0);
    for case in 0..1500 {
        let setting = || match case % 3 {
            0 => across(case, family, VerifyMode::Tli),
            1 => within(case, VerifyMode::Exact),
            _ => across(case, family, VerifyMode::Exact).one_spelling(),
        };
        let (token, block) = (
            setting().expected_tokens(),
            setting().block().expected_tokens(),
        );
        assert!(block > token - TOLERANCE, "case {case}: {block} < {token}");
        more += usize::from(block > token + TOLERANCE);
        sums[0] += token;
        sums[1] += block;
    }
    assert!(more > 80, "only {more} cases gain: {sums:?}");
}

#[test]
fn tli() {
    assert_exact(0..3000, |case| across(case, MIXED, VerifyMode::Tli));
}

#[test]
fn slem() {
    assert_exact(0..3000, |case| across(case, MIXED, VerifyMode::Slem));
}

#[test]
fn one_vocabulary() {
    assert_exact(0..2000, |case| within(case, VerifyMode::Tli));
    assert_exact(0..2000, |case| within(case, VerifyMode::Exact));
}

#[test]
fn drafts_that_the_drafters_state_cuts_short() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
        let cases = if mode == VerifyMode::Exact {
            6000
        } else {
            2000
        };
        assert_exact(0..cases, |case| {
            across(case, MIXED, mode).state_driven(case)
        });
    }
    assert_exact(0..2000, |case| {
        within(case, VerifyMode::Exact).state_driven(case)
    });
}

#[test]
fn prompt_lookup() {
    assert_exact(0..3000, lookup);
}

#[test]
fn the_papers_rule_fails_at_temperature_1() {
    let family = Family {
        rough: Rough::Ties,
        temperature: Some(1.0),
    };
    let off = |case| across(case, family, VerifyMode::Paper).deviation();
    let far = (0..200).filter(|&case| off(case) > 1e-3).count();
    assert!(far > 30, "only {far} of 200 cases are off");
}

#[test]
fn the_papers_rule_passes_as_the_temperature_vanishes() {
    // Without ties: among equally probable tokens the paper's rule draws wrongly at any
    // temperature.
    let family = Family {
        rough: Rough::Smooth,
        temperature: Some(1e-6),
    };
    for case in 0..200 {
        let off = across(case, family, VerifyMode::Paper).deviation();
        assert!(off < TOLERANCE, "case {case}: off by {off:e}");
    }
}
