//! One setting of models, cache and session, enumerated.
#![allow(dead_code, reason = "every test file uses its own part")]

pub mod random;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use ngram_cache::{CacheConfig, NgramCache};
use random::Choices;
use spec_decode::testkit::{FakeModel, Oracle, law_of};
use spec_decode::{
    Acceptance, Chance, ConstantLength, CopyPlan, CopySource, DraftPolicy, DraftStep, Found,
    History, LanguageModel, NoSink, Pair, Prompt, Purpose, Rows, Sampling, SamplingOptions, Score,
    Session, SessionConfig, SparseDraft, StreamName, SuffixCorpus, SuffixLookup,
};
use vocab_align::{DraftId, TargetId, TokenId, raw_ids};

use crate::common::PROMPT;

pub type Law = BTreeMap<Vec<TargetId>, f64>;

/// Largest error of an enumeration: sums of at most some ten thousand products of probabilities.
pub const TOLERANCE: f64 = 1e-12;

/// The processed distribution, written as the options are defined, without regard to speed.
pub fn reference(sampling: Sampling, row: &[f32], context: &[TargetId]) -> Vec<(TargetId, f64)> {
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
    if o.temperature == 0.0 {
        let first = logits.iter().find(|l| l.1 == best).expect("a token");
        return vec![(TargetId(first.0 as u32), 1.0)];
    }
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

pub type Memo = RefCell<HashMap<Vec<TargetId>, Vec<(TargetId, f64)>>>;

/// The target decoding alone.
pub struct Alone {
    pub target: FakeModel<TargetId>,
    pub prompt: Vec<TargetId>,
    pub config: SessionConfig,
    pub memo: Memo,
}

impl Alone {
    /// Adds to `law` the distribution of the continuations of `prefix`, which has probability
    /// `mass`.
    pub fn extend(&self, prefix: &[TargetId], mass: f64, law: &mut Law) {
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
pub struct Setting<D> {
    pub drafter: D,
    pub alone: Alone,
    pub pair: Pair,
    pub cache: NgramCache,
    pub draft_prompt: Vec<DraftId>,
    pub k: usize,
    pub rounds: usize,
    /// Number of the policy that decides how much of k is drafted.
    pub policy: u64,
    /// Text in which continuations are looked up.
    pub history: Option<CopySource>,
    /// True if drafts are verified without knowledge of drafter and n-grams.
    pub sparse: bool,
}

/// Policy in place of those driven by a head or a plan: it stops after a token by a hash of the
/// drafter's state, its logits, the token and the path so far.
pub struct StateDriven {
    pub seed: u64,
    pub k: usize,
    pub path: u64,
}

impl StateDriven {
    pub fn stops(&mut self, position: usize, token: DraftId, state: &[f32], open: bool) -> bool {
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
        assert!(!state.is_empty() && state.len() == step.logits.len());
        // A fake model's state is its logits.
        let own = |(state, logit): (&f32, &f32)| state == logit || !logit.is_finite();
        assert!(state.iter().zip(step.logits).all(own));
        self.stops(position, token, state, open)
    }
}

impl<D: LanguageModel + Clone> Setting<D> {
    /// Models with the prompt of all tests, an empty cache, and one round of one drafted token.
    pub fn new(drafter: D, target: FakeModel<TargetId>, pair: Pair, config: SessionConfig) -> Self {
        Self {
            drafter,
            alone: Alone {
                target,
                prompt: PROMPT.target.to_vec(),
                config,
                memo: Memo::default(),
            },
            pair,
            cache: NgramCache::new(CacheConfig::default()),
            draft_prompt: PROMPT.draft.to_vec(),
            k: 1,
            rounds: 1,
            policy: 0,
            history: None,
            sparse: false,
        }
    }

    /// The same setting with drafts that the drafter's state cuts short.
    pub fn state_driven(self, seed: u64) -> Self {
        Self {
            policy: 1 + seed,
            ..self
        }
    }

    /// The same setting with text to copy from: a prompt and an earlier text of the target's most
    /// frequent tokens, and, if the drafter may not follow, nothing else.
    pub fn copying(mut self, case: u64) -> Self {
        let choices = &mut Choices::new(case, 79);
        let row = self.alone.target.row(&self.alone.prompt);
        let mut ids: Vec<u32> = (0..row.len() as u32).collect();
        ids.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
        let likely: Vec<TargetId> = ids[..3].iter().copied().map(TargetId).collect();
        let mut text = |n| -> Vec<TargetId> { (0..n).map(|_| choices.of(&likely)).collect() };
        let (earlier, prompt) = (text(4), text(4));
        let mut history = History::default();
        history.start(&earlier);
        self.history = Some(history.into());
        self.alone.prompt = prompt;
        self.state_driven(case)
    }

    /// The same with three earlier texts, to copy from by frequency.
    pub fn copying_often(self, case: u64) -> Self {
        let setting = self.copying(case);
        let choices = &mut Choices::new(case, 83);
        let prompt = setting.alone.prompt.clone();
        let mut corpus = SuffixCorpus::new(1 << 20);
        for _ in 0..3 {
            let text: Vec<TargetId> = (0..5).map(|_| choices.of(&prompt)).collect();
            corpus.absorb(&text);
        }
        let lookup = SuffixLookup::new(Some(Arc::new(Mutex::new(corpus))));
        Self {
            history: Some(lookup.into()),
            ..setting
        }
    }

    /// The same setting with all choices of a draft verified together.
    pub fn block(mut self) -> Self {
        self.alone.config.acceptance = Acceptance::Block;
        self
    }

    /// The same setting with drafts from the `top` most probable tokens, verified as
    /// [`SparseDraft`]s.
    ///
    /// [`SparseDraft`]: spec_decode::SparseDraft
    pub fn sparse(mut self, top: usize) -> Self {
        self.alone.config.draft_top = top;
        self.sparse = true;
        self
    }

    /// The same setting with a cache in which every token has one n-gram, direct ones none.
    pub fn one_spelling(mut self) -> Self {
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

    /// Expected number of looked-up tokens that the first round accepts.
    pub fn copies_accepted(self) -> f64 {
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

    /// Largest error of the scores of the first round: the acceptance probability that each states,
    /// compared with the frequency with which its proposal is accepted once those before it are,
    /// for every draft. The second number is that of scores that differ from min(1, p / q').
    pub fn scores_off(self) -> (f64, usize) {
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
        // By draft: its scores, and the mass of each number of accepted proposals.
        let mut drafts: BTreeMap<Vec<DraftId>, (Vec<Score>, Vec<f64>)> = BTreeMap::new();
        Oracle::default().each(|oracle| {
            let dice = || Box::new(oracle.clone());
            session.start_with(prompt, dice(), dice()).expect("starts");
            let k = &mut ConstantLength(self.k);
            let round = session.round(Some(&mut cache), k, &mut NoSink);
            let round = round.expect("a round");
            let fresh = || (Vec::new(), vec![0.0; round.proposed() + 1]);
            let (scores, stood) = drafts.entry(round.draft.clone()).or_insert_with(fresh);
            for (one, other) in scores.iter().zip(&round.scores) {
                let apart = one.acceptance() - other.acceptance();
                assert!(apart.abs() < TOLERANCE, "twice: {one:?} {other:?}");
            }
            // The more are accepted, the more are scored.
            let known = scores.len();
            scores.extend(round.scores.iter().skip(known).cloned());
            stood[round.accepted] += oracle.probability();
        });
        let (mut off, mut by_choice) = (0.0_f64, 0);
        for (scores, stood) in drafts.values() {
            for (i, score) in scores.iter().enumerate() {
                let reached: f64 = stood[i..].iter().sum();
                let stands: f64 = stood[i + 1..].iter().sum();
                if reached > 1e-6 {
                    off = off.max((stands / reached - score.acceptance()).abs());
                }
                let plain = Score::new(score.target, score.proposal).acceptance();
                by_choice += usize::from((plain - score.acceptance()).abs() > 1e-6);
            }
        }
        (off, by_choice)
    }

    /// Expected number of tokens that the first round emits.
    pub fn expected_tokens(self) -> f64 {
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

    /// Largest deviation of the distribution after some rounds, continued by the target alone, from
    /// the target's own.
    pub fn deviation(self) -> f64 {
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
        let mut expected = Law::new();
        alone.extend(&[], 1.0, &mut expected);
        let mut worst: f64 = 0.0;
        // Alternatives that are scored along change nothing.
        for alternatives in [0, 3] {
            let config = SessionConfig {
                alternatives,
                ..alone.config.clone()
            };
            session.configure(config);
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
                        if self.sparse {
                            let text = [&alone.prompt, session.response()].concat();
                            let dice = &mut oracle.clone();
                            sparse_round(&mut session, &mut cache, policy, &text, dice);
                        } else {
                            let round = session.round(Some(&mut cache), policy, &mut NoSink);
                            round.expect("a round");
                        }
                    }
                }
                session.response().to_vec()
            });
            let mut found = Law::new();
            for (response, mass) in &outcomes {
                alone.extend(response, *mass, &mut found);
            }
            let total: f64 = found.values().sum();
            assert!((total - 1.0).abs() < TOLERANCE, "the law sums to {total}");
            let at = |law: &Law, key: &Vec<TargetId>| law.get(key).copied().unwrap_or(0.0);
            worst = found
                .keys()
                .chain(expected.keys())
                .map(|key| (at(&found, key) - at(&expected, key)).abs())
                .fold(worst, f64::max);
        }
        worst
    }
}

/// A round that is verified by its sparse draft, which is returned.
pub fn sparse_round<D: LanguageModel>(
    session: &mut Session<D, FakeModel<TargetId>>,
    cache: &mut NgramCache,
    policy: &mut dyn DraftPolicy,
    text: &[TargetId],
    dice: &mut dyn Chance,
) -> SparseDraft {
    let round = session.draft_round(Some(cache), policy).expect("a draft");
    let draft = session.sparse_draft(&round, Some(cache)).expect("a draft");
    let (sampling, acceptance) = (session.config().sampling, session.config().acceptance);
    let mut logits = Vec::new();
    let target = session.target_mut();
    target
        .forward(&raw_ids(round.input()), &mut logits)
        .expect("rows");
    let vocab = target.vocab_size();
    draft.check(vocab, sampling).expect("a possible draft");
    let rows = Rows::new(&logits, vocab, round.input().len()).expect("rows");
    let verdict = draft.judge(acceptance, rows, sampling, text, dice);
    let judged = session.settle_round(round, verdict.expect("a verdict"));
    let committed = session.commit_round(
        judged.expect("a judged round"),
        &[],
        Some(cache),
        policy,
        &mut NoSink,
    );
    committed.expect("a committed round");
    draft
}
