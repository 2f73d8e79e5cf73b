//! Earlier texts, within a limit of memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use vocab_align::TokenId;

use super::automaton::SuffixAutomaton;

/// Largest limit of memory, in bytes, for which states and edges can be numbered in 32 bits.
const MOST_BYTES: usize = 32 << 30;

/// Texts with their automaton.
#[derive(Clone, Debug)]
pub(super) struct Generation<I> {
    pub(super) automaton: SuffixAutomaton<I>,
    /// All tokens, for saving.
    pub(super) tokens: Vec<I>,
    /// Number of tokens of each text.
    pub(super) lengths: Vec<u32>,
}

impl<I: TokenId> Default for Generation<I> {
    fn default() -> Self {
        Self {
            automaton: SuffixAutomaton::default(),
            tokens: Vec::new(),
            lengths: Vec::new(),
        }
    }
}

impl<I: TokenId> Generation<I> {
    /// Adds a text, or the rest of one that begins with the whole last text.
    fn add(&mut self, text: &[I]) {
        let rest = self.rest(text);
        match self.lengths.last_mut() {
            Some(length) if rest.len() < text.len() => *length += rest.len() as u32,
            _ => {
                self.automaton.start();
                self.lengths.push(rest.len() as u32);
            }
        }
        rest.iter().for_each(|token| self.automaton.push(*token));
        self.tokens.extend_from_slice(rest);
    }

    /// The part of a text that is new, if it begins with the whole last text, as the next turn of a
    /// chat does; otherwise all of it.
    fn rest<'a>(&self, text: &'a [I]) -> &'a [I] {
        let last = self.lengths.last().map_or(0, |length| *length as usize);
        let last = &self.tokens[self.tokens.len() - last..];
        text.strip_prefix(last).unwrap_or(text)
    }

    pub(super) fn bytes(&self) -> usize {
        // A list doubles as it grows.
        let lists = self.tokens.len() * size_of::<I>() + self.lengths.len() * size_of::<u32>();
        self.automaton.bytes() + 2 * lists
    }

    fn most_bytes(tokens: usize) -> usize {
        let lists = tokens * size_of::<I>() + size_of::<u32>();
        SuffixAutomaton::<I>::most_bytes(tokens + 1) + 2 * lists
    }
}

/// The latest of the earlier texts, as many as a limit of memory allows.
///
/// They are in two generations. Texts are added to the new one until it has half of the limit. Then
/// the old one is dropped, and the new one takes its place. Once filled, a corpus therefore uses
/// between half of the limit and all of it.
#[derive(Debug)]
pub struct SuffixCorpus<I> {
    pub(super) old: Option<Generation<I>>,
    pub(super) new: Generation<I>,
    /// Limit of the size of both, in bytes.
    pub(super) limit: usize,
    /// A number that no other corpus has had, nor this one before its last change. Matches that
    /// were found under another one are void.
    pub(super) version: u64,
}

/// A version that no corpus has had. It is never 0, with which a lookup begins.
fn next_version() -> u64 {
    static VERSIONS: AtomicU64 = AtomicU64::new(1);
    VERSIONS.fetch_add(1, Relaxed)
}

impl<I: Clone> Clone for SuffixCorpus<I> {
    /// A corpus with the same texts and a version of its own: the two may change differently.
    fn clone(&self) -> Self {
        Self {
            old: self.old.clone(),
            new: self.new.clone(),
            limit: self.limit,
            version: next_version(),
        }
    }
}

impl<I: TokenId> SuffixCorpus<I> {
    /// An empty corpus of at most `limit` bytes, and at most 32 GiB. One that has no room for a
    /// text stays empty.
    pub fn new(limit: usize) -> Self {
        Self {
            old: None,
            new: Generation::default(),
            limit: limit.min(MOST_BYTES),
            version: next_version(),
        }
    }

    /// Adds a text, in amortised constant time per token; of one that is too long, the last part. A
    /// text that begins with the whole text before it, as the next turn of a chat does, continues
    /// that one.
    pub fn absorb(&mut self, text: &[I]) {
        let half = self.limit / 2;
        let room = half.saturating_sub(Generation::<I>::most_bytes(0));
        let each = Generation::<I>::most_bytes(1) - Generation::<I>::most_bytes(0);
        let text = &text[text.len().saturating_sub(room / each)..];
        let rest = self.new.rest(text);
        if rest.is_empty() {
            return;
        }
        self.version = next_version();
        if self.new.bytes() + Generation::<I>::most_bytes(rest.len()) > half {
            // The old generation's half of the room is needed.
            self.old = None;
            self.old = Some(std::mem::take(&mut self.new));
            self.new.add(rest);
        } else {
            self.new.add(text);
        }
    }

    /// Drops the older half, or all if there is only one. Returns the number of bytes that were
    /// freed.
    pub fn forget(&mut self) -> usize {
        self.version = next_version();
        match self.old.take() {
            Some(old) => old.bytes(),
            None => std::mem::take(&mut self.new).bytes(),
        }
    }

    /// The texts, from the oldest.
    pub fn texts(&self) -> impl Iterator<Item = &[I]> {
        let generations = self.old.iter().chain([&self.new]);
        generations.flat_map(|generation| {
            generation.lengths.iter().scan(0, |end, length| {
                let start = *end;
                *end += *length as usize;
                generation.tokens.get(start..*end)
            })
        })
    }

    /// Number of tokens stored.
    pub fn len(&self) -> usize {
        let generations = self.generations();
        generations.map(|generation| generation.tokens.len()).sum()
    }

    /// True if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Upper bound of its size in bytes.
    pub fn bytes(&self) -> usize {
        self.generations().map(Generation::bytes).sum()
    }

    /// Both generations, the newer one first.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation<I>> {
        std::iter::once(&self.new).chain(&self.old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab_align::TargetId;

    fn text(seed: u32, length: u32) -> Vec<TargetId> {
        let token = |i: u32| seed.wrapping_mul(7919).wrapping_add(i * i * 31) % 997;
        (0..length).map(|i| TargetId(token(i))).collect()
    }

    #[test]
    fn the_bound_holds_and_the_latest_half_stays() {
        let limit = 200_000;
        let mut corpus = SuffixCorpus::new(limit);
        let (mut most, mut least) = (0, usize::MAX);
        for seed in 0..400 {
            corpus.absorb(&text(seed, 20 + seed % 60));
            most = most.max(corpus.bytes());
            assert!(corpus.bytes() <= limit, "{} bytes", corpus.bytes());
            if corpus.old.is_some() {
                least = least.min(corpus.bytes());
            }
        }
        assert!(
            most > limit * 4 / 5 && least > limit * 2 / 5,
            "{least} to {most}"
        );
        let last = text(399, 20 + 399 % 60);
        assert!(corpus.new.tokens.ends_with(&last));
        // Of a text that is too long, the last part is kept.
        corpus.absorb(&text(1, 100_000));
        assert!(
            corpus.bytes() <= limit && corpus.new.tokens.ends_with(&text(1, 100_000)[99_900..])
        );
        let mut none = SuffixCorpus::new(10);
        none.absorb(&text(1, 10));
        assert!(none.is_empty());
    }

    #[test]
    fn the_next_turn_of_a_chat_is_no_text_of_its_own() {
        let mut corpus = SuffixCorpus::new(1 << 20);
        let whole = text(3, 50);
        corpus.absorb(&whole[..20]);
        corpus.absorb(&whole[..35]);
        corpus.absorb(&whole);
        assert_eq!((corpus.len(), corpus.new.lengths.len()), (50, 1));
        corpus.absorb(&text(4, 10));
        corpus.absorb(&whole);
        assert_eq!((corpus.len(), corpus.new.lengths.len()), (110, 3));
        let texts: Vec<&[TargetId]> = corpus.texts().collect();
        assert_eq!(texts, [&whole[..], &text(4, 10), &whole]);
    }

    #[test]
    fn no_two_corpora_have_a_version_in_common() {
        let mut corpus = SuffixCorpus::<TargetId>::new(1 << 20);
        let another = SuffixCorpus::<TargetId>::new(1 << 20);
        let mut versions = vec![0, corpus.version, another.version];
        corpus.absorb(&text(1, 10));
        let mut copy = corpus.clone();
        versions.extend([corpus.version, copy.version]);
        corpus.absorb(&text(2, 10));
        copy.absorb(&text(3, 10));
        versions.extend([corpus.version, copy.version]);
        let bytes = corpus.to_bytes(7);
        let loaded = SuffixCorpus::<TargetId>::from_bytes(&bytes, 1 << 20, 7).unwrap();
        corpus.forget();
        versions.extend([corpus.version, loaded.version]);
        let all = versions.len();
        versions.sort_unstable();
        versions.dedup();
        assert_eq!(versions.len(), all, "{versions:?}");
    }
}
