//! Prompt lookup of an arm, with the acceptance record of copies.

use std::sync::Arc;

use adaptive_draft::{CopyOrDraft, CopyRecord, Costs, Way};
use experiment::{DecodeConfig, DraftSource, EXPLORE, Lookup};
use spec_decode::{CopySource, DraftPolicy, History, SuffixLookup};

use super::state::{ArmState, Texts};

/// Least number of last tokens of earlier prompts and answers that [`Lookup::Stream`] keeps; twice
/// as many are the most.
const KEPT: usize = 1 << 14;

impl ArmState {
    /// The texts in which a response looks up copies; `None` if the arm does not use lookup.
    pub(super) fn source(&mut self, decode: &DecodeConfig, vocabulary: u64) -> Option<CopySource> {
        match decode.lookup {
            Lookup::Off => None,
            Lookup::Prompt => Some(History::new(0).into()),
            Lookup::Stream => Some(match self.histories.get(&vocabulary) {
                Some(history) => history.clone().into(),
                None => History::new(KEPT).into(),
            }),
            Lookup::Automaton => {
                let own = |texts: &Texts| texts.vocabulary == vocabulary && texts.user.is_none();
                let index = self.texts.iter().position(own).unwrap_or_else(|| {
                    let bytes = decode.lookup_mb << 20;
                    self.texts.push(Texts::new(vocabulary, None, bytes));
                    self.texts.len() - 1
                });
                let corpus = Arc::clone(&self.texts[index].corpus);
                Some(SuffixLookup::new(Some(corpus)).into())
            }
        }
    }

    /// Keeps the text of a streamed answer.
    pub(super) fn keep(&mut self, lookup: Lookup, vocabulary: u64, source: Option<CopySource>) {
        match source {
            Some(CopySource::Latest(history)) if lookup == Lookup::Stream => {
                self.histories.insert(vocabulary, history);
            }
            Some(CopySource::Frequent(lookup)) => lookup.absorb(),
            _ => {}
        }
    }
}

/// `policy` with looked-up text before its drafts or in their place. For an arm without a drafter,
/// or an answer made without it, there is looked-up text alone. `record` is the target's record of
/// copies.
pub(super) fn with_copies<'a>(
    record: &'a mut CopyRecord,
    decode: &DecodeConfig,
    costs: Costs,
    way: Option<Way>,
    streamed: bool,
    policy: Box<dyn DraftPolicy + 'a>,
) -> Box<dyn DraftPolicy + 'a> {
    if decode.lookup == Lookup::Off {
        return policy;
    }
    // A draft that is not made must not be preferred to a copy.
    let drafts = decode.draft == DraftSource::Model && way.is_none_or(Way::drafts);
    let longest = if drafts { decode.longest() } else { 0 };
    Box::new(CopyOrDraft::new(
        policy,
        record,
        costs,
        longest,
        streamed,
        Some(EXPLORE),
    ))
}

#[cfg(test)]
mod tests {
    use spec_decode::{ConstantLength, CopyPlan, Found};
    use vocab_align::TargetId;

    use super::*;

    /// The plan of a record without rounds, in an answer that is made this way.
    fn planned(way: Option<Way>) -> CopyPlan {
        let mut record = CopyRecord::default();
        let decode = DecodeConfig {
            lookup: Lookup::Stream,
            ..DecodeConfig::default()
        };
        let inner = Box::new(ConstantLength(4));
        let mut policy = with_copies(&mut record, &decode, Costs::default(), way, true, inner);
        policy.plan_copy(&Found {
            matched: 1,
            tokens: vec![TargetId(3)],
        })
    }

    #[test]
    fn an_answer_without_the_drafter_copies_where_drafts_would_be_better() {
        for way in [None, Some(Way::Learner), Some(Way::Frozen)] {
            let CopyPlan { copy, draft } = planned(way);
            assert_eq!((copy, draft), (0, true));
        }
        let CopyPlan { copy, draft } = planned(Some(Way::Copies));
        assert_eq!((copy, draft), (1, false));
    }

    #[test]
    fn texts_are_found_by_the_kind_of_lookup() {
        let decode = |lookup| DecodeConfig {
            lookup,
            ..DecodeConfig::default()
        };
        let mut state = ArmState::default();
        for lookup in [Lookup::Stream, Lookup::Automaton] {
            let mut source = state.source(&decode(lookup), 7).unwrap();
            source.start(&[1, 2, 3].map(TargetId));
            state.keep(lookup, 7, Some(source));
        }
        let mut found = |lookup, vocabulary| {
            let mut source = state.source(&decode(lookup), vocabulary)?;
            source.start(&[9, 1].map(TargetId));
            Some(source.find(5)?.tokens)
        };
        for lookup in [Lookup::Stream, Lookup::Automaton] {
            assert_eq!(found(lookup, 7), Some([2, 3].map(TargetId).to_vec()));
            assert_eq!(found(lookup, 8), None);
        }
        assert_eq!(found(Lookup::Prompt, 7), None);
        assert_eq!(found(Lookup::Off, 7), None);
    }
}
