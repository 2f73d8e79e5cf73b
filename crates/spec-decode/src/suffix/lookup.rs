//! Look-up in the present text and in a corpus of earlier ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vocab_align::TokenId;

use super::SuffixCorpus;
use super::automaton::{Match, SuffixAutomaton};

/// A corpus that several sessions share.
pub type SharedCorpus<I> = Arc<Mutex<SuffixCorpus<I>>>;

/// Least share of the matching texts that continue as a copy does. The copy ends where the share
/// falls below it.
const LEAST_SHARE: f64 = 0.1;
/// Longest match, in tokens, that is found again after a change of the corpus.
const REMATCHED: usize = 64;

/// Look-up of the continuation of the present text's end, at its longest match with the text itself
/// or with a corpus.
///
/// A copy takes the token that followed most often (among equals, the latest), as long as the texts
/// that continue so are a sufficient share of those that match. The more of them agree, the longer
/// it is. It is a function of the text so far and of the corpus, so as a proposal it has
/// probability 1.
#[derive(Clone, Debug)]
pub struct SuffixLookup<I> {
    own: SuffixAutomaton<I>,
    text: Vec<I>,
    corpus: Option<SharedCorpus<I>>,
    /// Matches with the generations of the corpus; the number of tokens of the text that they have
    /// read, and the version of the corpus, 0 at first.
    matches: [Match; 2],
    read: usize,
    version: u64,
}

/// Texts with a continuation of the present one.
struct Branch<'a, I> {
    automaton: &'a SuffixAutomaton<I>,
    at: Match,
    /// True for the present text, whose copies may reach its end and continue after it.
    own: bool,
}

impl<I: TokenId> SuffixLookup<I> {
    /// A look-up in a corpus and in the present text, or in the latter alone.
    pub fn new(corpus: Option<SharedCorpus<I>>) -> Self {
        Self {
            own: SuffixAutomaton::default(),
            text: Vec::new(),
            corpus,
            matches: [Match::default(); 2],
            read: 0,
            version: 0,
        }
    }

    /// Begins another text. The present one is dropped; [`absorb`](Self::absorb) keeps it.
    pub fn start(&mut self, prompt: &[I]) {
        self.own = SuffixAutomaton::default();
        self.text.clear();
        (self.matches, self.read) = ([Match::default(); 2], 0);
        self.extend(prompt);
    }

    /// Appends tokens to the present text.
    pub fn extend(&mut self, tokens: &[I]) {
        tokens.iter().for_each(|token| self.own.push(*token));
        self.text.extend_from_slice(tokens);
    }

    /// Adds the present text to the corpus, if there is one.
    pub fn absorb(&self) {
        if let Some(corpus) = &self.corpus {
            locked(corpus).absorb(&self.text);
        }
    }

    /// Length of the longest suffix of the text that occurs elsewhere with a continuation, and at
    /// most `most` tokens of its most frequent continuation.
    pub fn find(&mut self, most: usize) -> Option<(usize, Vec<I>)> {
        self.find_after(&[], most)
    }

    /// As [`find`](Self::find) if `ahead` stood at the end of the text. Copies are those of the text
    /// without it.
    pub fn find_after(&mut self, ahead: &[I], most: usize) -> Option<(usize, Vec<I>)> {
        let corpus = self.corpus.clone();
        let corpus = corpus.as_ref().map(locked);
        if let Some(corpus) = &corpus {
            self.follow(corpus);
        }
        let end = |automaton: &SuffixAutomaton<I>, at| {
            let read = ahead
                .iter()
                .fold(at, |at, token| automaton.step(at, *token));
            automaton.continued(read)
        };
        let mut branches = vec![Branch {
            automaton: &self.own,
            at: end(&self.own, self.own.repeated()),
            own: true,
        }];
        if let Some(corpus) = &corpus {
            for (generation, at) in corpus.generations().zip(self.matches) {
                let automaton = &generation.automaton;
                branches.push(Branch {
                    automaton,
                    at: end(automaton, at),
                    own: false,
                });
            }
        }
        let matched = branches.iter().map(|branch| branch.at.len).max()?;
        branches.retain(|branch| matched > 0 && branch.at.len == matched);
        let tokens = copy(branches, most);
        (!tokens.is_empty()).then_some((matched, tokens))
    }

    /// Extends the matches in the corpus by the tokens added since.
    fn follow(&mut self, corpus: &SuffixCorpus<I>) {
        if self.version != corpus.version {
            self.version = corpus.version;
            self.matches = [Match::default(); 2];
            self.read = self.text.len().saturating_sub(REMATCHED);
        }
        let generations = corpus.generations();
        for (generation, at) in generations.zip(&mut self.matches) {
            for token in &self.text[self.read..] {
                *at = generation.automaton.step(*at, *token);
            }
        }
        self.read = self.text.len();
    }
}

/// Continues matches of one length, with the token that followed most often in all of them
/// together.
fn copy<I: TokenId>(mut branches: Vec<Branch<'_, I>>, most: usize) -> Vec<I> {
    let (mut tokens, mut share) = (Vec::new(), 1.0);
    while tokens.len() < most {
        let next = branches
            .iter()
            .filter_map(|b| b.automaton.continuation(b.at));
        let counts = next.map(|token| {
            let count = |b: &Branch<'_, I>| u64::from(b.automaton.count_of(b.at, token));
            (token, branches.iter().map(count).sum::<u64>())
        });
        // Among equals the first counts: the present text's, then that of newer texts.
        let best = counts.reduce(|best, other| if other.1 > best.1 { other } else { best });
        let Some((token, count)) = best else {
            break;
        };
        let all: u64 = branches
            .iter()
            .map(|b| u64::from(b.automaton.followed(b.at)))
            .sum();
        share *= count as f64 / all.max(1) as f64;
        if share < LEAST_SHARE {
            break;
        }
        tokens.push(token);
        branches.retain(|b| b.automaton.count_of(b.at, token) > 0);
        for branch in &mut branches {
            branch.at = branch.automaton.step(branch.at, token);
        }
        let ended = |b: &Branch<'_, I>| b.automaton.continuation(b.at).is_none();
        if branches.iter().all(ended) {
            // A copy that has reached the end of the present text continues with its own tokens.
            branches.retain(|branch| branch.own);
            for branch in &mut branches {
                branch.at = branch.automaton.continued(branch.at);
            }
            branches.retain(|branch| branch.at.len > 0);
        }
    }
    tokens
}

/// The corpus, even after a panic of another holder: a text is added as a whole or not at all.
fn locked<I>(corpus: &SharedCorpus<I>) -> MutexGuard<'_, SuffixCorpus<I>> {
    corpus.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vocab_align::TargetId;

    fn ids(raw: &[u32]) -> Vec<TargetId> {
        raw.iter().copied().map(TargetId).collect()
    }

    fn found(past: &[&[u32]], text: &[u32], most: usize) -> Option<(usize, Vec<u32>)> {
        let mut corpus = SuffixCorpus::new(1 << 20);
        past.iter().for_each(|text| corpus.absorb(&ids(text)));
        let mut lookup = SuffixLookup::new(Some(Arc::new(Mutex::new(corpus))));
        lookup.start(&ids(text));
        let (matched, tokens) = lookup.find(most)?;
        Some((matched, tokens.iter().map(|token| token.0).collect()))
    }

    #[test]
    fn the_longest_match_goes_on_as_it_did_most_often() {
        let past: [&[u32]; 3] = [&[1, 2, 7, 3], &[1, 2, 8, 4], &[1, 2, 7, 5]];
        assert_eq!(found(&past, &[9, 1, 2], 2), Some((2, vec![7, 5])));
        // The longer match was seen once.
        let past: [&[u32]; 3] = [&[1, 2, 7], &[6, 1, 2, 8], &[1, 2, 7]];
        assert_eq!(found(&past, &[6, 1, 2], 1), Some((3, vec![8])));
        assert_eq!(found(&[], &[1, 2, 3], 4), None);
        assert_eq!(found(&past, &[7], 4), None);
        assert_eq!(found(&past, &[1], 0), None);
    }

    #[test]
    fn a_copy_ends_where_too_few_agree() {
        let other: Vec<[u32; 3]> = (0..20).map(|i| [1, 2, 100 + i]).collect();
        let past: Vec<&[u32]> = other.iter().map(|text| &text[..]).collect();
        assert_eq!(found(&past, &[1], 8), Some((1, vec![2])));
        assert_eq!(found(&past, &[1, 2], 8), None);
    }

    #[test]
    fn the_present_text_counts_with_those_of_the_past() {
        let past: [&[u32]; 2] = [&[1, 2, 7], &[1, 2, 8]];
        assert_eq!(found(&past, &[1, 2, 8, 5, 1, 2], 2), Some((2, vec![8, 5])));
        // A match that overlaps the end is copied on.
        assert_eq!(found(&[], &[4, 4], 3), Some((1, vec![4, 4, 4])));
        let repeated = found(&[], &[9, 1, 2, 1, 2], 5);
        assert_eq!(repeated, Some((2, vec![1, 2, 1, 2, 1])));
        // Texts of the past end where they end.
        assert_eq!(found(&[&[1, 2, 3, 4]], &[9, 2], 8), Some((1, vec![3, 4])));
    }

    #[test]
    fn a_corpus_that_changes_is_matched_again() {
        let corpus = Arc::new(Mutex::new(SuffixCorpus::new(1 << 20)));
        let mut lookup = SuffixLookup::new(Some(Arc::clone(&corpus)));
        lookup.start(&ids(&[1, 2]));
        assert_eq!(lookup.find(4), None);
        let mut other = SuffixLookup::new(Some(corpus));
        other.start(&ids(&[1, 2, 3, 4]));
        other.absorb();
        assert_eq!(lookup.find(4), Some((2, ids(&[3, 4]))));
        lookup.extend(&ids(&[3]));
        assert_eq!(lookup.find(4), Some((3, ids(&[4]))));
        lookup.absorb();
        lookup.extend(&ids(&[5]));
        assert_eq!(lookup.find(4), None);
    }

    #[test]
    fn another_corpus_in_the_same_place_is_matched_anew() {
        let of = |past: &[u32]| {
            let mut corpus = SuffixCorpus::new(1 << 20);
            corpus.absorb(&ids(past));
            corpus
        };
        let shared = Arc::new(Mutex::new(of(&[1, 2, 3, 4, 5, 6, 7, 8])));
        let mut lookup = SuffixLookup::new(Some(Arc::clone(&shared)));
        lookup.start(&ids(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(lookup.find(4), Some((6, ids(&[7, 8]))));
        // As many changes, and fewer states than the number of the one that matched.
        *locked(&shared) = of(&[6, 9]);
        assert_eq!(lookup.find(4), Some((1, ids(&[9]))));
        *locked(&shared) = of(&[10]);
        assert_eq!(lookup.find(4), None);
    }

    #[test]
    fn what_is_ahead_counts() {
        let past: [&[u32]; 2] = [&[1, 2, 7, 3, 4], &[1, 2, 8, 4, 9]];
        let mut corpus = SuffixCorpus::new(1 << 20);
        past.iter().for_each(|text| corpus.absorb(&ids(text)));
        let mut lookup = SuffixLookup::new(Some(Arc::new(Mutex::new(corpus))));
        lookup.start(&ids(&[5, 1, 6, 6, 5, 1]));
        assert_eq!(lookup.find(1), Some((2, ids(&[6]))));
        assert_eq!(lookup.find_after(&ids(&[2, 7]), 4), Some((3, ids(&[3, 4]))));
        assert_eq!(lookup.find_after(&ids(&[6]), 2), Some((3, ids(&[6, 5]))));
        assert_eq!(lookup.find_after(&ids(&[77]), 2), None);
        assert_eq!(lookup.find(1), Some((2, ids(&[6]))));
    }

    proptest! {
        /// The continuation is the same whether a text is read token by token or at once.
        #[test]
        fn is_a_function_of_the_text(
            past in prop::collection::vec(prop::collection::vec(0u32..4, 1..30), 0..4),
            text in prop::collection::vec(0u32..4, 2..40),
            most in 1usize..9,
        ) {
            let mut corpus = SuffixCorpus::new(1 << 20);
            past.iter().for_each(|text| corpus.absorb(&ids(text)));
            let corpus = Arc::new(Mutex::new(corpus));
            let (mut once, mut steps) = (
                SuffixLookup::new(Some(Arc::clone(&corpus))),
                SuffixLookup::new(Some(corpus)),
            );
            once.start(&ids(&text));
            steps.start(&ids(&text[..1]));
            for token in &text[1..] {
                let _ = steps.find(most);
                steps.extend(&ids(&[*token]));
            }
            prop_assert_eq!(once.find(most), steps.find(most));
        }
    }
}
