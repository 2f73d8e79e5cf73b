//! Texts that answers copy from: of one user, or of all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spec_decode::{CopySource, History, SharedCorpus, SuffixCorpus, SuffixLookup};
use vocab_align::TargetId;

use crate::options::LookupScope;

/// Bytes that a corpus takes beside its texts.
const EACH: usize = 512;

/// The texts of one vocabulary and user.
#[derive(Clone)]
pub(crate) struct Texts {
    /// Index of the first target with the vocabulary.
    pub(crate) target: usize,
    /// Whose texts they are; `None` if they are shared.
    pub(crate) user: Option<String>,
    pub(crate) corpus: SharedCorpus<TargetId>,
}

impl Texts {
    fn bytes(&self) -> usize {
        let name = self.user.as_ref().map_or(0, String::len);
        locked(&self.corpus).bytes() + name + EACH
    }
}

/// The texts of a server, within one bound of memory. Of users, those who asked longest ago are
/// forgotten first.
pub(super) struct Corpora {
    scope: LookupScope,
    limit: usize,
    /// By vocabulary and user, with the number of the answer that used them last.
    known: BTreeMap<(usize, Option<String>), (u64, Texts)>,
    answers: u64,
}

impl Corpora {
    /// Starts from saved texts, the least recently used first.
    pub(super) fn new(scope: LookupScope, limit: usize, saved: Vec<Texts>) -> Self {
        let mut corpora = Self {
            scope,
            limit,
            known: BTreeMap::new(),
            answers: 0,
        };
        for texts in saved {
            corpora.answers += 1;
            let key = (texts.target, texts.user.clone());
            corpora.known.insert(key, (corpora.answers, texts));
        }
        corpora.shrink();
        corpora
    }

    /// What an answer copies from. `target` is the first target with its vocabulary. A user without
    /// a name may be anyone: only an answer's own prompt is copied from then.
    pub(super) fn source(&mut self, target: usize, user: &str) -> CopySource {
        let user = match self.scope {
            LookupScope::Shared => None,
            LookupScope::User if !user.is_empty() => Some(user.to_owned()),
            LookupScope::User | LookupScope::Own => return History::default().into(),
        };
        self.answers += 1;
        let limit = self.limit;
        let texts = || Texts {
            target,
            user: user.clone(),
            corpus: Arc::new(Mutex::new(SuffixCorpus::new(limit))),
        };
        let known = self.known.entry((target, user.clone()));
        let (used, texts) = known.or_insert_with(|| (0, texts()));
        *used = self.answers;
        SuffixLookup::new(Some(Arc::clone(&texts.corpus))).into()
    }

    /// Adds the text of a finished answer.
    pub(super) fn absorb(&mut self, source: Option<CopySource>) {
        if let Some(CopySource::Frequent(lookup)) = source {
            lookup.absorb();
            self.shrink();
        }
    }

    /// All texts, the least recently used first.
    pub(super) fn texts(&self) -> Vec<Texts> {
        let mut known: Vec<&(u64, Texts)> = self.known.values().collect();
        known.sort_by_key(|(used, _)| *used);
        known.into_iter().map(|(_, texts)| texts.clone()).collect()
    }

    fn shrink(&mut self) {
        let bytes = |(_, texts): &(u64, Texts)| texts.bytes();
        let mut total: usize = self.known.values().map(bytes).sum();
        while total > self.limit {
            let oldest = self.known.iter().min_by_key(|(_, (used, _))| *used);
            let Some((key, texts)) = oldest.map(|(key, texts)| (key.clone(), texts)) else {
                return;
            };
            let before = bytes(texts);
            let mut corpus = locked(&texts.1.corpus);
            corpus.forget();
            let empty = corpus.is_empty();
            drop(corpus);
            let after = if empty { 0 } else { bytes(texts) };
            if empty {
                self.known.remove(&key);
            }
            total -= before - after;
        }
    }
}

/// A corpus; a text is added to it as a whole or not at all, whatever became of who held it.
pub(crate) fn locked(corpus: &SharedCorpus<TargetId>) -> MutexGuard<'_, SuffixCorpus<TargetId>> {
    corpus.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u32) -> Vec<TargetId> {
        (0..200)
            .map(|i| TargetId((seed * 7919 + i * i) % 997))
            .collect()
    }

    fn answer(corpora: &mut Corpora, user: &str, seed: u32) {
        let mut source = corpora.source(0, user);
        source.start(&text(seed));
        corpora.absorb(Some(source));
    }

    /// True if the text is continued for a user who has said its first half.
    fn knows(corpora: &mut Corpora, user: &str, seed: u32) -> bool {
        let mut source = corpora.source(0, user);
        source.start(&text(seed)[..100]);
        let found = source.find(4);
        found.is_some_and(|found| found.tokens == text(seed)[100..104])
    }

    #[test]
    fn a_user_copies_from_no_other() {
        let mut corpora = Corpora::new(LookupScope::User, 1 << 20, Vec::new());
        answer(&mut corpora, "a", 1);
        answer(&mut corpora, "", 2);
        assert!(knows(&mut corpora, "a", 1));
        assert!(!knows(&mut corpora, "b", 1) && !knows(&mut corpora, "", 1));
        assert!(!knows(&mut corpora, "", 2), "who has no name may be anyone");
        assert!(!knows(&mut corpora, "a", 2));
        let mut own = Corpora::new(LookupScope::Own, 1 << 20, Vec::new());
        answer(&mut own, "a", 1);
        assert!(!knows(&mut own, "a", 1) && own.texts().is_empty());
        let mut shared = Corpora::new(LookupScope::Shared, 1 << 20, Vec::new());
        answer(&mut shared, "a", 1);
        assert!(knows(&mut shared, "", 1));
    }

    #[test]
    fn who_asked_longest_ago_is_forgotten_first() {
        let limit = 200_000;
        let mut corpora = Corpora::new(LookupScope::User, limit, Vec::new());
        for round in 0..40 {
            answer(&mut corpora, "always", 1);
            answer(&mut corpora, &format!("user {round}"), round);
            let bytes: usize = corpora.texts().iter().map(Texts::bytes).sum();
            assert!(bytes <= limit, "{bytes}");
        }
        assert!(knows(&mut corpora, "always", 1) && knows(&mut corpora, "user 39", 39));
        assert!(!knows(&mut corpora, "user 0", 0));
        let saved = corpora.texts();
        let mut again = Corpora::new(LookupScope::User, limit, saved);
        assert!(knows(&mut again, "user 39", 39));
    }
}
