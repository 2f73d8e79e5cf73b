//! Labels of drafted tokens, from their verification.

use spec_decode::RoundOutcome;

/// Label of one draft token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    /// Product of the acceptance probabilities, by the rule of the verification, of the target
    /// tokens that end with this draft token; 1 if none does.
    pub accepted: f64,
    /// Number of target tokens that end with it.
    pub ends: u32,
}

/// Labels of the draft tokens of a round, in order; `None` for tokens that were not verified.
///
/// Across vocabularies a merged n-gram `d_1..d_n` is verified as one target token t. The label of
/// its last piece is the probability that t is accepted
/// ([`Score::acceptance`](spec_decode::Score::acceptance): min(1, p(t) / q'(t)), in mode `exact`
/// that of the group rule). Earlier pieces have the label 1, because nothing is verified with them.
/// The product of the labels over any run of whole proposals is therefore the product of their
/// acceptances, and the product of calibrated predictions (each given the draft before it) is the
/// predicted acceptance of the merged token. Labelling every piece with a root of the acceptance
/// would not have this property: of a token accepted in half of all cases each of two pieces would
/// be predicted 1/2, and their product would be 1/4.
///
/// Labels exist for the accepted proposals and the first rejected one. These are the factors of Eq.
/// 6: acceptance given that all before was accepted.
pub fn labels(outcome: &RoundOutcome) -> Vec<Option<Label>> {
    let mut labels = vec![None; outcome.draft.len()];
    // Judged as a block, later proposals may have scores as well.
    let judged = outcome.scores.len().min(outcome.accepted + 1);
    for (proposal, score) in outcome.proposals.iter().zip(&outcome.scores[..judged]) {
        let Some(last) = proposal.span.end.checked_sub(1) else {
            continue;
        };
        for piece in proposal.span.clone() {
            let Some(label) = labels.get_mut(piece) else {
                continue;
            };
            let label = label.get_or_insert(Label {
                accepted: 1.0,
                ends: 0,
            });
            if piece == last {
                label.accepted *= score.acceptance();
                label.ends += 1;
            }
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use ngram_cache::Kind;
    use spec_decode::{Proposal, Score};
    use vocab_align::{DraftId, TargetId};

    fn outcome(spans: &[std::ops::Range<usize>], ratios: &[f64], accepted: usize) -> RoundOutcome {
        let drafted = spans.last().map_or(0, |span| span.end) + 1;
        RoundOutcome {
            draft: vec![DraftId(0); drafted],
            proposals: spans
                .iter()
                .map(|span| Proposal {
                    target: TargetId(0),
                    span: span.clone(),
                    kind: if span.len() > 1 {
                        Kind::Ngram
                    } else {
                        Kind::Direct
                    },
                })
                .collect(),
            accepted,
            scores: ratios
                .iter()
                .map(|&target| Score::new(target, 1.0))
                .collect(),
            ..RoundOutcome::default()
        }
    }

    #[test]
    fn pieces_multiply_to_the_acceptance_of_what_they_merge_to() {
        let spans = [0..1, 1..4, 4..6, 6..7];
        let ratios = [0.9, 0.6, 0.25, 0.5];
        let seen = labels(&outcome(&spans, &ratios, 2));
        // The first rejected proposal is verified; the one after it and the incomplete end are not.
        assert!(seen[6].is_none() && seen[7].is_none());
        for (span, ratio) in spans.iter().zip(ratios).take(3) {
            let pieces = || seen[span.clone()].iter().flatten();
            let product: f64 = pieces().map(|label| label.accepted).product();
            assert_eq!((product, pieces().map(|l| l.ends).sum()), (ratio, 1u32));
        }
    }

    #[test]
    fn retokenised_drafts_share_pieces() {
        // Two target tokens end inside the second draft token.
        let seen = labels(&outcome(&[0..2, 1..2], &[0.5, 0.4], 2));
        assert_eq!(
            seen[1],
            Some(Label {
                accepted: 0.2,
                ends: 2
            })
        );
    }
}
