//! Masked drafting: the draft tokens that keep the draft translatable.
//!
//! A [`Walk`] reads the drafted tokens as the greedy longest-match translation will. Its pending
//! path may still grow into an n-gram. If it does not, its longest prefix that stands for a target
//! token is cut off and the rest is read again from the root. The mask contains every token with
//! which one of these readings continues. No token in the middle of a draft is therefore
//! untranslatable; at worst the last few form a path that no n-gram has completed yet.

use vocab_align::{DraftId, TokenId};

use crate::lexicon::{Lexicon, Place};

/// Drafted tokens whose translation is not decided yet.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Every prefix of the pending path: `path[i]` has depth `i + 1`.
    path: Vec<(DraftId, Place)>,
}

impl Walk {
    /// The walk after one more drafted token; `None` if that makes the draft untranslatable.
    pub fn advance(&self, lexicon: &Lexicon<'_>, draft: DraftId) -> Option<Self> {
        let next = match self.path.last() {
            None => lexicon.enter(draft),
            Some(&(_, place)) => lexicon.step(place, draft),
        };
        match next {
            Some(place) => {
                let mut path = self.path.clone();
                path.push((draft, place));
                Some(Self { path })
            }
            None => self.fall_back(lexicon)?.advance(lexicon, draft),
        }
    }

    /// The reading in which the pending path does not grow: cuts its longest prefix with a token
    /// and reads the rest from the root. `None` at the root, and if the rest cannot be read.
    fn fall_back(&self, lexicon: &Lexicon<'_>) -> Option<Self> {
        let cut = self.longest_token(lexicon)?;
        self.path[cut..]
            .iter()
            .try_fold(Self::default(), |walk, &(draft, _)| {
                walk.advance(lexicon, draft)
            })
    }

    fn longest_token(&self, lexicon: &Lexicon<'_>) -> Option<usize> {
        let carries = |&(_, place): &(DraftId, Place)| lexicon.token(place).is_some();
        self.path.iter().rposition(carries).map(|last| last + 1)
    }

    /// Number of draft tokens at the end that no translation covers if the draft stops here.
    pub fn dangling(&self, lexicon: &Lexicon<'_>) -> usize {
        let mut rest: Vec<DraftId> = self.path.iter().map(|&(draft, _)| draft).collect();
        while !rest.is_empty() {
            let walk = Self::read(lexicon, &rest);
            match walk.longest_token(lexicon) {
                Some(cut) => drop(rest.drain(..cut)),
                None => return rest.len(),
            }
        }
        0
    }

    /// True if further tokens could still complete an n-gram that has begun.
    pub fn open(&self, lexicon: &Lexicon<'_>) -> bool {
        let last = self.path.last();
        last.is_some_and(|&(_, place)| lexicon.children(place).next().is_some())
    }

    /// The longest path from the root with which `drafts` starts.
    fn read(lexicon: &Lexicon<'_>, drafts: &[DraftId]) -> Self {
        let mut path: Vec<(DraftId, Place)> = Vec::new();
        for &draft in drafts {
            let next = match path.last() {
                None => lexicon.enter(draft),
                Some(&(_, place)) => lexicon.step(place, draft),
            };
            match next {
                Some(place) => path.push((draft, place)),
                None => break,
            }
        }
        Self { path }
    }

    /// Every token that [`advance`](Self::advance) can read. `roots` are the lexicon's
    /// [`root_children`](Lexicon::root_children).
    pub fn mask<'a>(&self, lexicon: &Lexicon<'_>, roots: &'a [u32]) -> Mask<'a> {
        let mut extra = Vec::new();
        let mut reading = Some(self.clone());
        while let Some(walk) = reading {
            let Some(&(_, place)) = walk.path.last() else {
                extra.retain(|raw| roots.binary_search(raw).is_err());
                return Mask::new(roots, extra);
            };
            extra.extend(lexicon.children(place).map(|(draft, _)| draft.get()));
            reading = walk.fall_back(lexicon);
        }
        Mask::new(&[], extra)
    }
}

/// The draft tokens that may come next, as raw ids without repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask<'a> {
    /// All tokens with which a translation can start, or none of them; ascending.
    roots: &'a [u32],
    /// Tokens that only continue an n-gram; ascending.
    extra: Vec<u32>,
}

impl<'a> Mask<'a> {
    fn new(roots: &'a [u32], mut extra: Vec<u32>) -> Self {
        extra.sort_unstable();
        extra.dedup();
        Self { roots, extra }
    }

    /// A mask that does not depend on the draft so far.
    pub fn fixed(roots: &'a [u32]) -> Self {
        Self::new(roots, Vec::new())
    }

    /// True if a token may come next.
    pub fn contains(&self, token: u32) -> bool {
        let within = |ids: &[u32]| ids.binary_search(&token).is_ok();
        within(self.roots) || within(&self.extra)
    }

    /// The raw ids, ascending only within each of the two parts.
    pub fn ids(&self) -> impl Iterator<Item = u32> + Clone {
        self.roots.iter().chain(&self.extra).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexicon::DirectMap;
    use ngram_cache::{CacheConfig, NgramCache};
    use proptest::prelude::*;
    use vocab_align::TargetId;

    /// Draft tokens 0..=3 are direct (to 10..=13), 4..=7 are not.
    fn direct() -> DirectMap {
        let pairs: Vec<_> = (0..4).map(|i| (DraftId(i), TargetId(10 + i))).collect();
        DirectMap::from_pairs(&pairs, 8, 64)
    }

    fn cache(ngrams: &[&[u32]]) -> NgramCache {
        let mut cache = NgramCache::new(CacheConfig::default());
        for (index, ngram) in ngrams.iter().enumerate() {
            let draft: Vec<DraftId> = ngram.iter().map(|&raw| DraftId(raw)).collect();
            cache.insert(&draft, TargetId(20 + index as u32));
        }
        cache
    }

    fn walk(lexicon: &Lexicon<'_>, drafts: &[u32]) -> Option<Walk> {
        drafts.iter().try_fold(Walk::default(), |walk, &raw| {
            walk.advance(lexicon, DraftId(raw))
        })
    }

    fn mask(lexicon: &Lexicon<'_>, drafts: &[u32]) -> Vec<u32> {
        let roots = lexicon.root_children();
        let walk = walk(lexicon, drafts).expect("a readable draft");
        let mut ids: Vec<u32> = walk.mask(lexicon, &roots).ids().collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn masks_by_hand() {
        let (direct, cache) = (direct(), cache(&[&[0, 1], &[0, 4, 5], &[6, 2], &[3, 6, 7]]));
        let lexicon = Lexicon::new(&direct, Some(&cache));
        // Direct tokens and the first token of the n-gram 6 2.
        assert_eq!(mask(&lexicon, &[]), [0, 1, 2, 3, 6]);
        // After 0 also its n-grams; 4 only continues one.
        assert_eq!(mask(&lexicon, &[0]), [0, 1, 2, 3, 4, 6]);
        // 0 4 must become 0 4 5: read as 0 and 4, the 4 has no translation.
        assert_eq!(mask(&lexicon, &[0, 4]), [5]);
        // 6 carries no token: only its child.
        assert_eq!(mask(&lexicon, &[6]), [2]);
        // 3 6 may become 3 6 7, or 3 and 6 2.
        assert_eq!(mask(&lexicon, &[3, 6]), [2, 7]);
        // A complete n-gram without children leads back to the root.
        assert_eq!(mask(&lexicon, &[0, 1]), [0, 1, 2, 3, 6]);
        assert!(walk(&lexicon, &[6, 3]).is_none() && walk(&lexicon, &[5]).is_none());
    }

    #[test]
    fn dangling_by_hand() {
        let (direct, cache) = (direct(), cache(&[&[0, 4, 5], &[6, 2, 3], &[1, 2, 6]]));
        let lexicon = Lexicon::new(&direct, Some(&cache));
        let dangling =
            |drafts: &[u32]| walk(&lexicon, drafts).expect("readable").dangling(&lexicon);
        assert_eq!(
            [dangling(&[]), dangling(&[0]), dangling(&[0, 4, 5])],
            [0, 0, 0]
        );
        assert_eq!(
            [dangling(&[0, 4]), dangling(&[6]), dangling(&[6, 2])],
            [1, 1, 2]
        );
        // 1 2 may become 1 2 6, but both have a translation alone.
        assert_eq!(dangling(&[1, 2]), 0);
    }

    #[test]
    fn without_a_cache_the_mask_is_the_intersection() {
        let direct = direct();
        let lexicon = Lexicon::new(&direct, None);
        assert_eq!(mask(&lexicon, &[]), [0, 1, 2, 3]);
        assert_eq!(mask(&lexicon, &[2, 0]), [0, 1, 2, 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// With any token of the mask at each step, everything but the dangling end translates, and
        /// the mask contains exactly the tokens that the walk can read.
        #[test]
        fn masked_drafts_translate(
            ngrams in prop::collection::vec(prop::collection::vec(0u32..8, 2..5), 0..8),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 1..10),
        ) {
            let ngrams: Vec<&[u32]> = ngrams.iter().map(Vec::as_slice).collect();
            let (direct, cache) = (direct(), cache(&ngrams));
            let lexicon = Lexicon::new(&direct, Some(&cache));
            let roots = lexicon.root_children();
            let (mut walk, mut draft) = (Walk::default(), Vec::new());
            for choice in choices {
                let ids: Vec<u32> = walk.mask(&lexicon, &roots).ids().collect();
                for raw in 0..8 {
                    let reads = walk.advance(&lexicon, DraftId(raw)).is_some();
                    prop_assert_eq!(reads, ids.contains(&raw), "{:?} then {}", &draft, raw);
                }
                prop_assert!(!ids.is_empty());
                let token = DraftId(ids[choice.index(ids.len())]);
                draft.push(token);
                walk = walk.advance(&lexicon, token).expect("the mask admits it");
                let covered = crate::translate(&draft, &lexicon).last().map_or(0, |p| p.span.end);
                prop_assert_eq!(draft.len() - covered, walk.dangling(&lexicon), "{:?}", &draft);
            }
        }
    }
}
