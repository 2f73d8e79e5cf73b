//! The cache compared with a naive model, under random operations and all policies.

use std::collections::HashMap;

use proptest::prelude::*;
use vocab_align::{DraftId, TargetId};

use crate::{CacheConfig, Eviction, Insertion, Ngram, NgramCache, NgramMatch, translate};

/// A naive cache: draft tokens, target token, count and time of last use, with full scans
/// throughout.
#[derive(Default)]
struct Model {
    config: CacheConfig,
    ngrams: HashMap<Vec<DraftId>, (TargetId, u32, u64)>,
    /// Token and count of the rival of an n-gram.
    rivals: HashMap<Vec<DraftId>, (TargetId, u32)>,
    clock: u64,
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// All n-grams, next victim first.
    fn ranked(&self) -> Vec<Ngram> {
        let mut all: Vec<_> = self.ngrams.iter().collect();
        all.sort_by_key(|(draft, (_, count, used))| match self.config.eviction {
            Eviction::None => (0, 0, (*draft).clone()),
            Eviction::Lru => (0, *used, vec![]),
            Eviction::Lfu => (*count, *used, vec![]),
        });
        let ngram = |(draft, (target, count, _)): (&Vec<DraftId>, &(TargetId, u32, u64))| Ngram {
            draft: draft.clone(),
            target: *target,
            count: *count,
        };
        all.into_iter().map(ngram).collect()
    }

    fn evict(&mut self) -> Option<Ngram> {
        let victim = match self.config.eviction {
            Eviction::None => None,
            _ => self.ranked().into_iter().next(),
        }?;
        self.ngrams.remove(&victim.draft);
        self.rivals.remove(&victim.draft);
        Some(victim)
    }

    fn insert(&mut self, draft: &[DraftId], target: TargetId) -> Insertion {
        if draft.len() < 2 {
            return Insertion::Invalid;
        }
        let now = self.tick();
        if let Some((kept, count, used)) = self.ngrams.get_mut(draft) {
            if *kept == target {
                (*count, *used) = (*count + 1, now);
                return Insertion::Known { count: *count };
            }
            let (rival, claims) = self.rivals.remove(draft).unwrap_or((target, 0));
            let before = *kept;
            if rival != target {
                if claims > 1 {
                    self.rivals.insert(draft.to_vec(), (rival, claims - 1));
                }
            } else if claims + 1 > *count {
                self.rivals.insert(draft.to_vec(), (before, *count));
                (*kept, *count, *used) = (target, claims + 1, now);
                return Insertion::Replaced { before };
            } else {
                self.rivals.insert(draft.to_vec(), (target, claims + 1));
            }
            return Insertion::Conflict { kept: before };
        }
        let result = match self.config.max_entries {
            Some(max) if self.ngrams.len() >= max => match self.evict() {
                Some(victim) => Insertion::Evicted(vec![victim]),
                None => return Insertion::Full,
            },
            _ => Insertion::New,
        };
        self.ngrams.insert(draft.to_vec(), (target, 1, now));
        result
    }

    /// Re-ranks by the new policy from the present order, as documented.
    fn reconfigure(&mut self, config: CacheConfig) -> usize {
        for ngram in self.ranked() {
            let now = self.tick();
            if let Some((_, _, used)) = self.ngrams.get_mut(&ngram.draft) {
                *used = now;
            }
        }
        self.config = config;
        let before = self.ngrams.len();
        while config
            .max_entries
            .is_some_and(|max| self.ngrams.len() > max)
            && self.evict().is_some()
        {}
        before - self.ngrams.len()
    }

    fn longest_match(&self, draft: &[DraftId]) -> Option<NgramMatch> {
        (2..=draft.len()).rev().find_map(|len| {
            let &(target, ..) = self.ngrams.get(&draft[..len])?;
            Some(NgramMatch { target, len })
        })
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(Vec<DraftId>, TargetId),
    Reconfigure(CacheConfig),
    SaveAndLoad,
}

/// Few labels and short n-grams, so that prefixes, repeats and conflicts are common.
fn draft_tokens(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Vec<DraftId>> {
    prop::collection::vec((0..4u32).prop_map(DraftId), lengths)
}

fn config() -> impl Strategy<Value = CacheConfig> {
    let eviction = prop_oneof![
        Just(Eviction::None),
        Just(Eviction::Lru),
        Just(Eviction::Lfu)
    ];
    (eviction, prop::option::of(0..20usize)).prop_map(|(eviction, max_entries)| CacheConfig {
        eviction,
        max_entries,
        max_bytes: None,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let target = prop_oneof![6 => Just(7u32), 3 => Just(8u32), 1 => Just(9u32)].prop_map(TargetId);
    prop_oneof![
        20 => (draft_tokens(1..6), target).prop_map(|(d, t)| Operation::Insert(d, t)),
        1 => config().prop_map(Operation::Reconfigure),
        1 => Just(Operation::SaveAndLoad),
    ]
}

fn save_and_load(cache: &NgramCache) -> NgramCache {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.bin");
    cache.save(&path).unwrap();
    NgramCache::load(&path).unwrap()
}

fn apply(cache: &mut NgramCache, model: &mut Model, operation: &Operation) {
    let generation = cache.generation();
    match operation {
        Operation::Insert(draft, target) => {
            let expected = model.insert(draft, *target);
            let changes = matches!(
                expected,
                Insertion::New | Insertion::Evicted(_) | Insertion::Replaced { .. }
            );
            assert_eq!(cache.insert(draft, *target), expected);
            assert_eq!(cache.generation() != generation, changes);
        }
        Operation::Reconfigure(config) => {
            assert_eq!(cache.reconfigure(*config), model.reconfigure(*config));
        }
        Operation::SaveAndLoad => *cache = save_and_load(cache),
    }
}

fn assert_equal(cache: &NgramCache, model: &Model) {
    cache.trie.check();
    assert_eq!(cache.config, model.config);
    assert_eq!(cache.len(), model.ngrams.len());
    let ranked: Vec<Ngram> = cache
        .ranked_entries()
        .into_iter()
        .map(|entry| cache.ngram(entry))
        .collect();
    assert_eq!(ranked, model.ranked());
    let rivals = cache
        .rivals
        .iter()
        .map(|(entry, rival)| (cache.ngram(*entry).draft, (rival.target, rival.count)));
    assert_eq!(rivals.collect::<HashMap<_, _>>(), model.rivals);
    let mut sorted = ranked;
    sorted.sort();
    assert_eq!(cache.entries().collect::<Vec<_>>(), sorted);
    for ngram in &sorted {
        let mut tokens = ngram.draft.iter();
        let node = tokens.try_fold(cache.root(), |node, token| cache.child(node, *token));
        let node = node.unwrap();
        assert_eq!(cache.token(node), Some(ngram.target));
        assert_eq!(cache.get(&ngram.draft).as_ref(), Some(ngram));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_cache_behaves_like_a_map_with_full_scans(
        config in config(),
        operations in prop::collection::vec(operation(), 1..120),
        drafts in prop::collection::vec(draft_tokens(0..8), 8),
    ) {
        let mut cache = NgramCache::new(config);
        let mut model = Model { config, ..Model::default() };
        for operation in &operations {
            apply(&mut cache, &mut model, operation);
            assert_equal(&cache, &model);
        }
        for draft in &drafts {
            prop_assert_eq!(cache.longest_match(draft), model.longest_match(draft));
        }
    }

    #[test]
    fn a_translation_is_the_greedy_cover_of_a_prefix(
        ngrams in prop::collection::vec((draft_tokens(2..5), 100..200u32), 0..12),
        direct_tokens in prop::collection::vec(any::<bool>(), 4),
        draft in draft_tokens(0..12),
    ) {
        let direct = |d: DraftId| direct_tokens[d.0 as usize].then_some(TargetId(d.0));
        let mut cache = NgramCache::new(CacheConfig::default());
        let mut model = Model::default();
        for (ngram, target) in &ngrams {
            cache.insert(ngram, TargetId(*target));
            model.insert(ngram, TargetId(*target));
        }
        let mut at = 0;
        for token in translate(&draft, direct, Some(&cache)) {
            let expected = match model.longest_match(&draft[at..]) {
                Some(found) => (found.target, at..at + found.len),
                None => (direct(draft[at]).unwrap(), at..at + 1),
            };
            prop_assert_eq!((token.target, token.span.clone()), expected);
            at = token.span.end;
        }
        if let Some(&stuck) = draft.get(at) {
            prop_assert_eq!(direct(stuck), None);
            prop_assert_eq!(model.longest_match(&draft[at..]), None);
        }
    }
}
