//! Prompt lookup (Saxena, "Prompt Lookup Decoding", 2023): a drafter without a model.

use engine::{LanguageModel, ModelError, check_call};

/// Largest length of the run of tokens that is looked up.
const LONGEST_MATCH: usize = 3;

/// Drafter that proposes the continuation of the latest earlier occurrence of the context's end.
///
/// The last n tokens, n as large as possible, are looked up earlier in the context. The token after
/// their latest occurrence is the prediction, with probability 1. If even the last token alone is
/// new, the drafter [abstains](LanguageModel::abstains) and the draft ends. Drafted tokens are
/// context too, so a draft continues to copy from the occurrence with which it began.
///
/// It drafts tokens of the target's own vocabulary (a pair of one vocabulary in both roles, see
/// [`Pair::shared`](crate::Pair::shared)), verified in mode `tli`: with a one-hot proposal
/// distribution, ordinary rejection sampling accepts a drafted token with its probability p and
/// otherwise draws from p without it, so the output has the target's distribution.
#[derive(Clone, Debug)]
pub struct PromptLookup {
    vocab: usize,
    ids: Vec<u32>,
    prediction: Option<u32>,
}

impl PromptLookup {
    /// A drafter for a target with rows of `vocab` logits.
    pub fn new(vocab: usize) -> Self {
        Self {
            vocab,
            ids: Vec::new(),
            prediction: None,
        }
    }

    /// The token after the latest earlier occurrence of the longest suffix. It costs O(context).
    fn predict(&self) -> Option<u32> {
        let ids = &self.ids;
        (1..=LONGEST_MATCH.min(ids.len().saturating_sub(1)))
            .rev()
            .find_map(|n| {
                let suffix = &ids[ids.len() - n..];
                let earlier = ids[..ids.len() - 1].windows(n);
                let at = earlier.rev().position(|window| window == suffix)?;
                // Windows from the right: the one at distance 0 ends right before the last token.
                Some(ids[ids.len() - 1 - at])
            })
    }
}

impl LanguageModel for PromptLookup {
    fn vocab_size(&self) -> usize {
        self.vocab
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn max_len(&self) -> usize {
        u32::MAX as usize
    }

    fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        check_call(ids, self.len(), self.max_len(), self.vocab)?;
        logits.clear();
        for &id in ids {
            self.ids.push(id);
            self.prediction = self.predict();
            let start = logits.len();
            // Without a prediction all tokens are equally likely, but the loop does not sample from
            // such a row.
            let rest = self.prediction.map_or(0.0, |_| f32::NEG_INFINITY);
            logits.resize(start + self.vocab, rest);
            if let Some(next) = self.prediction {
                logits[start + next as usize] = 0.0;
            }
        }
        Ok(())
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.len(), self.max_len(), self.vocab)?;
        self.ids.extend_from_slice(ids);
        Ok(())
    }

    fn abstains(&self) -> bool {
        self.prediction.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(ids: &[u32]) -> Option<u32> {
        let mut lookup = PromptLookup::new(10);
        let mut logits = Vec::new();
        lookup.forward(ids, &mut logits).expect("never fails");
        assert_eq!(logits.len(), 10 * ids.len());
        assert_eq!(lookup.abstains(), lookup.prediction.is_none());
        lookup.prediction
    }

    #[test]
    fn the_longest_suffix_wins_then_its_latest_occurrence() {
        // "1 2" occurs twice, "5 1 2" once: the continuation of the longer one counts.
        assert_eq!(prediction(&[5, 1, 2, 7, 3, 1, 2, 8, 5, 1, 2]), Some(7));
        assert_eq!(prediction(&[1, 2, 7, 3, 1, 2, 8, 4, 1, 2]), Some(8));
        assert_eq!(prediction(&[4, 4]), Some(4));
        assert_eq!(prediction(&[4, 4, 4]), Some(4));
        assert_eq!(prediction(&[1, 2, 3]), None);
        assert_eq!(prediction(&[1]), None);
    }

    #[test]
    fn it_copies_on_behind_its_own_drafts() {
        let mut lookup = PromptLookup::new(10);
        let mut logits = Vec::new();
        lookup.prefill(&[1, 2, 3, 4]).expect("never fails");
        let mut last = 1;
        for expected in [2, 3, 4] {
            lookup.forward(&[last], &mut logits).expect("never fails");
            let next = crate::argmax(&logits).expect("one token");
            assert_eq!(next, expected);
            last = next as u32;
        }
    }
}
