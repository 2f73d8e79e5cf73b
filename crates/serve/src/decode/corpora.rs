//! Earlier prompts and answers, of one user or of all, in which prompt lookup finds text that an
//! answer copies as draft tokens.

use std::sync::Arc;

use adaptive_draft::{CopyRecord, Costs, Replay};
use online::Texts;
use spec_decode::{CopySource, History, SuffixLookup};
use vocab_align::TargetId;

use crate::options::LookupScope;
use crate::request::Request;

/// Bytes that a corpus takes beside its texts.
const EACH: usize = 512;

fn bytes_of(texts: &Texts) -> usize {
    let name = texts.user.as_ref().map_or(0, String::len);
    texts.locked().bytes() + name + EACH
}

/// The texts of a server, within one bound of memory. Of users, those who asked longest ago are
/// forgotten first.
pub(super) struct Corpora {
    scope: LookupScope,
    limit: usize,
    /// The least recently used first.
    known: Vec<Texts>,
}

impl Corpora {
    /// Starts from saved texts, the least recently used first.
    pub(super) fn new(scope: LookupScope, limit: usize, saved: Vec<Texts>) -> Self {
        let mut corpora = Self {
            scope,
            limit,
            known: saved,
        };
        corpora.shrink();
        corpora
    }

    /// The texts that an answer in this vocabulary copies from. They are only its own prompt and
    /// tokens with [`LookupScope::Own`], and with [`LookupScope::User`] for a user without a name,
    /// who may be anyone.
    pub(super) fn source(&mut self, vocabulary: u64, user: &str) -> CopySource {
        let user = match self.scope {
            LookupScope::Shared => None,
            LookupScope::User if !user.is_empty() => Some(user.to_owned()),
            LookupScope::User | LookupScope::Own => return History::default().into(),
        };
        let own = |texts: &Texts| texts.vocabulary == vocabulary && texts.user == user;
        let texts = match self.known.iter().position(own) {
            Some(at) => self.known.remove(at),
            None => Texts::new(vocabulary, user, self.limit),
        };
        let corpus = Arc::clone(&texts.corpus);
        self.known.push(texts);
        SuffixLookup::new(Some(corpus)).into()
    }

    /// The rounds in which copies alone would have made the answer `said`, whose text has not been
    /// [absorbed](Self::absorb) yet.
    pub(super) fn replay(
        &mut self,
        vocabulary: u64,
        request: &Request,
        costs: &Costs,
        said: &[TargetId],
    ) -> Replay {
        let mut source = self.source(vocabulary, &request.user);
        source.start(&request.prompt.target);
        CopyRecord::default().replay(&mut source, costs, said)
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
        self.known.clone()
    }

    fn shrink(&mut self) {
        let mut total: usize = self.known.iter().map(bytes_of).sum();
        while total > self.limit
            && let Some(oldest) = self.known.first()
        {
            total -= bytes_of(oldest);
            let mut corpus = oldest.locked();
            corpus.forget();
            let empty = corpus.is_empty();
            drop(corpus);
            match empty {
                true => drop(self.known.remove(0)),
                false => total += bytes_of(oldest),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vocab_align::TargetId;

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
            let bytes: usize = corpora.texts().iter().map(bytes_of).sum();
            assert!(bytes <= limit, "{bytes}");
        }
        assert!(knows(&mut corpora, "always", 1) && knows(&mut corpora, "user 39", 39));
        assert!(!knows(&mut corpora, "user 0", 0));
        let saved = corpora.texts();
        let mut again = Corpora::new(LookupScope::User, limit, saved);
        assert!(knows(&mut again, "user 39", 39));
    }
}
