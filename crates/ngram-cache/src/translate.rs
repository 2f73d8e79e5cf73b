//! Translation of a draft to target tokens: the scan of section 3.1 (Eq. 1) and the translation
//! step of Algorithm 1.

use std::ops::Range;

use vocab_align::{DraftId, TargetId};

use crate::cache::NgramCache;

/// Origin of a target token in the draft.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// One draft token with a direct mapping: q'(t) = q(d).
    Direct,
    /// A cached n-gram: q'(t) = prod_j q(d_j).
    Ngram,
}

/// One target token of a translated draft.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Translated {
    /// The target token.
    pub target: TargetId,
    /// The draft positions that it stands for.
    pub span: Range<usize>,
    /// Origin: a direct token or a merged n-gram.
    pub kind: Kind,
}

/// Translates a draft from left to right. At each position the longest cached n-gram is merged;
/// without one the direct mapping is used. The translation stops at the first draft token that has
/// neither.
///
/// The spans of the result are adjacent and start at 0, so the draft tokens after the last span are
/// the untranslatable rest. Without a cache only the direct mapping is used: the baseline SpD_DM.
///
/// ```
/// use ngram_cache::{CacheConfig, Kind, NgramCache, translate};
/// use vocab_align::{DraftId, TargetId};
///
/// let mut cache = NgramCache::new(CacheConfig::default());
/// cache.insert(&[DraftId(1), DraftId(2)], TargetId(50));
/// // Only token 7 has a direct mapping.
/// let direct = |d: DraftId| (d == DraftId(7)).then_some(TargetId(70));
/// let draft = [DraftId(7), DraftId(1), DraftId(2), DraftId(1)];
/// let out = translate(&draft, direct, Some(&cache));
/// let tokens: Vec<_> = out.iter().map(|t| (t.target.0, t.span.clone(), t.kind)).collect();
/// assert_eq!(tokens, [(70, 0..1, Kind::Direct), (50, 1..3, Kind::Ngram)]);
/// ```
pub fn translate(
    draft: &[DraftId],
    direct: impl Fn(DraftId) -> Option<TargetId>,
    cache: Option<&NgramCache>,
) -> Vec<Translated> {
    let mut translated = Vec::with_capacity(draft.len());
    let mut at = 0;
    while at < draft.len() {
        let rest = &draft[at..];
        let (target, len, kind) = match cache.and_then(|c| c.longest_match(rest)) {
            Some(found) => (found.target, found.len, Kind::Ngram),
            None => match direct(rest[0]) {
                Some(target) => (target, 1, Kind::Direct),
                None => break,
            },
        };
        let span = at..at + len;
        at = span.end;
        translated.push(Translated { target, span, kind });
    }
    translated
}
