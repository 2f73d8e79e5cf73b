//! Filling a cache from texts alone, without any model: Table 4 and Figures 7 and 9 of the paper.
//!
//! # Counting
//! Each text is tokenised by both tokenizers with a space before it. The two tokenisations are
//! aligned by byte offset, and every span of one target token and n >= 2 draft tokens with the same
//! bytes is an n-gram ([`mine`]). Distinct draft-token sequences are counted.
//!
//! The space is there because a SentencePiece tokenizer reads `The` at the start of its input as
//! `▁The`, which elsewhere stands for a space and `The`. N-grams of `▁The` for the text `The` would
//! have wrong bytes. Text without any space, not even the tokenizer's own, would give n-grams of
//! the rare tokens of a word without a space before it (on XSum, with its short summaries, 5% more
//! n-grams). With the space, the first word is tokenised as elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;
use vocab_align::{AlignError, DraftId, TargetId, Vocabulary, align_offsets};

use crate::cache::{CacheConfig, Insertion, NgramCache};
use crate::error::CacheError;
use crate::mine::mine;

/// Number of steps of the growth curve.
const GROWTH_POINTS: usize = 200;

/// Results of a replay.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReplayReport {
    /// Number of texts read.
    pub texts: usize,
    /// Number of target tokens of all texts.
    pub target_tokens: usize,
    /// Number of draft tokens of all texts.
    pub draft_tokens: usize,
    /// Number of n-grams found, repetitions included.
    pub occurrences: usize,
    /// Number of n-grams in the cache at the end: all distinct ones, unless there is a size limit.
    pub unique_ngrams: usize,
    /// Number of sightings of n-grams that stood for another target token and kept it.
    pub conflicts: usize,
    /// Number of n-grams evicted.
    pub evictions: u64,
    /// Size of the cache in bytes ([`NgramCache::memory_bytes`]).
    pub bytes: usize,
    /// `bytes / unique_ngrams`.
    pub bytes_per_ngram: f64,
    /// Number of n-grams by length n.
    pub lengths: BTreeMap<usize, usize>,
    /// Number of n-grams by number of times seen (Figure 7).
    pub frequencies: BTreeMap<u32, usize>,
    /// Cache size along the stream: (target tokens read, n-grams held). Figure 9 plots the
    /// quotient.
    pub growth: Vec<(usize, usize)>,
}

/// The results of a replay and the cache that it filled.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The results.
    pub report: ReplayReport,
    /// The cache, ready to be saved.
    pub cache: NgramCache,
}

/// Tokenises each text with both vocabularies and inserts the mined n-grams into a cache with this
/// limit and policy.
///
/// # Errors
/// [`CacheError::Tokenise`] with the number of the text that a tokenizer refuses.
pub fn replay<T: AsRef<str>>(
    texts: impl IntoIterator<Item = T>,
    draft: &Vocabulary<DraftId>,
    target: &Vocabulary<TargetId>,
    config: CacheConfig,
) -> Result<Replay, CacheError> {
    let mut cache = NgramCache::new(config);
    let mut report = ReplayReport::default();
    for text in texts {
        let text = text.as_ref();
        let refused = |source: AlignError| CacheError::Tokenise {
            text: report.texts,
            source,
        };
        let text = match text {
            "" => "",
            text => &format!(" {text}"),
        };
        let (draft_ids, draft_lengths) = draft
            .encode_with_lengths(text.as_bytes())
            .map_err(refused)?;
        let (target_ids, target_lengths) = target
            .encode_with_lengths(text.as_bytes())
            .map_err(refused)?;
        report.texts += 1;
        report.draft_tokens += draft_ids.len();
        report.target_tokens += target_ids.len();
        let spans = align_offsets(&draft_lengths, &target_lengths);
        for (ngram, token) in mine(&spans, &draft_ids, &target_ids) {
            if target.bytes(token) != Some(&draft.decode_bytes(ngram)[..]) {
                continue;
            }
            report.occurrences += 1;
            if let Insertion::Conflict { .. } = cache.insert(ngram, token) {
                report.conflicts += 1;
            }
        }
        report.growth.push((report.target_tokens, cache.len()));
    }
    let stats = cache.stats();
    let report = ReplayReport {
        unique_ngrams: stats.ngrams,
        evictions: stats.evictions,
        bytes: stats.bytes,
        bytes_per_ngram: stats.bytes_per_ngram,
        lengths: stats.lengths,
        frequencies: stats.frequencies,
        growth: thinned(report.growth),
        ..report
    };
    Ok(Replay { report, cache })
}

/// Reduces the points to about [`GROWTH_POINTS`], at equal steps of target tokens. The last one is
/// always kept.
fn thinned(points: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let Some(&last) = points.last() else {
        return points;
    };
    let step = last.0.div_ceil(GROWTH_POINTS).max(1);
    let mut next = step;
    points
        .into_iter()
        .filter(|&point| {
            let keep = point.0 >= next || point == last;
            if keep {
                next = (point.0 / step + 1) * step;
            }
            keep
        })
        .collect()
}
