//! Alignment of two tokenisations of one text by byte offsets.

use std::ops::Range;

/// A minimal run of draft and target tokens that cover the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlignedSpan {
    /// Indices in the draft tokenisation.
    pub draft: Range<usize>,
    /// Indices in the target tokenisation.
    pub target: Range<usize>,
}

/// Splits two tokenisations of the same bytes into minimal chunks that end at a common offset.
///
/// `draft` and `target` are token lengths in bytes, as from
/// [`Vocabulary::byte_lengths`](crate::Vocabulary::byte_lengths). A token of length 0 (a special
/// token) at a common offset is a chunk of its own with nothing on the other side; elsewhere it
/// belongs to the chunk around it. If one text is longer, tokens after the last common offset are
/// in no chunk. N-grams are mined from these chunks (one target token, several draft tokens), and
/// approximate likelihood matching compares them.
///
/// ```
/// use vocab_align::align_offsets;
/// // draft: "un|do|ing", target: "undo|in|g"
/// let spans = align_offsets(&[2, 2, 3], &[4, 2, 1]);
/// assert_eq!((spans[0].draft.clone(), spans[0].target.clone()), (0..2, 0..1));
/// assert_eq!((spans[1].draft.clone(), spans[1].target.clone()), (2..3, 1..3));
/// ```
pub fn align_offsets(draft: &[usize], target: &[usize]) -> Vec<AlignedSpan> {
    let mut spans = Vec::with_capacity(draft.len().min(target.len()));
    // The chunk being built starts at (i, j) and ends before (di, tj), at these byte offsets.
    let (mut i, mut j) = (0, 0);
    let (mut di, mut tj) = (0, 0);
    let (mut draft_end, mut target_end) = (0, 0);
    loop {
        if draft_end == target_end {
            if di > i || tj > j {
                spans.push(AlignedSpan {
                    draft: i..di,
                    target: j..tj,
                });
                (i, j) = (di, tj);
            }
            if draft.get(di) == Some(&0) {
                di += 1;
            } else if target.get(tj) == Some(&0) {
                tj += 1;
            } else {
                match (draft.get(di), target.get(tj)) {
                    (Some(d), Some(t)) => (draft_end, target_end) = (draft_end + d, target_end + t),
                    _ => return spans,
                }
                (di, tj) = (di + 1, tj + 1);
            }
        } else if draft_end < target_end {
            let Some(len) = draft.get(di) else {
                return spans;
            };
            draft_end += len;
            di += 1;
        } else {
            let Some(len) = target.get(tj) else {
                return spans;
            };
            target_end += len;
            tj += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans(draft: &[usize], target: &[usize]) -> Vec<(Range<usize>, Range<usize>)> {
        align_offsets(draft, target)
            .into_iter()
            .map(|s| (s.draft, s.target))
            .collect()
    }

    #[test]
    fn chunks_are_minimal() {
        assert_eq!(spans(&[1, 1, 3], &[2, 3]), [(0..2, 0..1), (2..3, 1..2)]);
        assert_eq!(spans(&[2, 2], &[1, 2, 1]), [(0..2, 0..3)]);
        assert_eq!(spans(&[], &[]), []);
    }

    #[test]
    fn specials_stand_alone_at_common_offsets() {
        assert_eq!(
            spans(&[0, 2, 0, 1], &[1, 1, 0, 1]),
            [
                (0..1, 0..0),
                (1..2, 0..2),
                (2..3, 2..2),
                (3..3, 2..3),
                (3..4, 3..4)
            ]
        );
        assert_eq!(
            spans(&[1, 0, 1], &[2]),
            [(0..3, 0..1)],
            "inside a chunk they stay inside"
        );
        assert_eq!(spans(&[1], &[1, 0]), [(0..1, 0..1), (1..1, 1..2)]);
    }

    #[test]
    fn a_longer_tail_is_left_out() {
        assert_eq!(spans(&[1, 2], &[1, 1]), [(0..1, 0..1)]);
        assert_eq!(spans(&[1], &[1, 1]), [(0..1, 0..1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn chunks_cover_equal_bytes_in_order(
            draft in prop::collection::vec(0usize..4, 0..20),
            cuts in prop::collection::vec(1usize..4, 0..40),
        ) {
            // The target cuts the same total length differently.
            let total: usize = draft.iter().sum();
            let mut rest = total;
            let mut target: Vec<usize> = Vec::new();
            for cut in cuts {
                target.push(cut.min(rest));
                rest -= cut.min(rest);
            }
            if rest > 0 {
                target.push(rest);
            }
            let (mut i, mut j) = (0, 0);
            for span in align_offsets(&draft, &target) {
                prop_assert_eq!((span.draft.start, span.target.start), (i, j));
                let d: usize = draft[span.draft.clone()].iter().sum();
                let t: usize = target[span.target.clone()].iter().sum();
                prop_assert_eq!(d, t);
                // A chunk is minimal if no inner offset is common.
                let ends = |lens: &[usize]| -> Vec<usize> {
                    lens.iter().scan(0, |at, len| { *at += len; Some(*at) })
                        .filter(|at| *at > 0 && *at < d).collect()
                };
                let inner = ends(&draft[span.draft.clone()]);
                prop_assert!(ends(&target[span.target.clone()]).iter().all(|at| !inner.contains(at)));
                (i, j) = (span.draft.end, span.target.end);
            }
            prop_assert_eq!((i, j), (draft.len(), target.len()));
        }
    }
}
