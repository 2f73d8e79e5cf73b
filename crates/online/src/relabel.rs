//! Labels and features of verified drafts, recomputed with the present drafter (Algorithms 3 and
//! 4).
//!
//! A label is min(1, p / q') or, in mode `exact`, the acceptance by the group rule
//! ([`ChoiceScores`](spec_decode::ChoiceScores)). It depends on the drafter's own probability, and
//! a feature on its hidden state. Both are out of date after every update. The context, the drafted
//! tokens and the target's part of the score stay valid, so the drafter reads them again whenever
//! the head is trained on them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use adaptive_draft::{DraftSignal, Example, write_features};
use models::Engine;
use spec_decode::{
    DraftLaw, LanguageModel, Lexicon, Purpose, RoundOutcome, Sampling, Score, StreamName, Walk,
    is_looked_up,
};
use vocab_align::{DraftId, TokenId, Vocabulary, raw_ids};

use super::error::{OnlineError, Result};

/// A draft with its verification by the target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JudgedDraft {
    /// Prompt and response so far, in draft tokens.
    context: Vec<DraftId>,
    tokens: Vec<DraftId>,
    /// The draft tokens of each verified proposal, and its score.
    judged: Vec<(Range<usize>, Score)>,
}

impl JudgedDraft {
    /// The draft of a round; `None` if nothing was verified.
    pub(super) fn new(context: &[DraftId], outcome: &RoundOutcome) -> Option<Self> {
        let judged = outcome.scores.len().min(outcome.accepted + 1);
        // After looked-up tokens the context is not the one before the round.
        if outcome.proposals.first().is_some_and(is_looked_up) {
            return None;
        }
        let scored = outcome.proposals.iter().zip(&outcome.scores[..judged]);
        let judged: Vec<_> = scored
            .map(|(p, score)| (p.span.clone(), score.clone()))
            .collect();
        // The group rule may also read the draft token after a proposal, for a longer n-gram.
        let choices = judged
            .iter()
            .filter_map(|(_, score)| score.choices.as_ref());
        let looked_at = choices.flat_map(|c| &c.path).map(|choice| choice.at + 1);
        let last = looked_at.chain([judged.last()?.0.end]).max()?;
        Some(Self {
            context: context.to_vec(),
            tokens: outcome.draft.get(..last)?.to_vec(),
            judged,
        })
    }
}

/// Inputs of a label beside the drafter and p.
pub(super) struct Rules<'a> {
    /// The draft tokens that may follow each other.
    pub(super) lexicon: Lexicon<'a>,
    /// Conversion of logits to probabilities.
    pub(super) sampling: Sampling,
    /// The drafter's tokens.
    pub(super) vocabulary: &'a Vocabulary<DraftId>,
}

impl Rules<'_> {
    /// Examples of some drafts with the present drafter, one for each verified token. A draft that
    /// is no longer possible, because an n-gram has left the cache, gives no example.
    pub(super) fn examples<'d>(
        &self,
        drafter: &mut Engine,
        drafts: impl Iterator<Item = &'d JudgedDraft>,
    ) -> Result<Vec<Example>> {
        let roots = self.lexicon.root_children();
        let mut reader = Reader {
            drafter,
            fed: Vec::new(),
            logits: Vec::new(),
        };
        reader.drafter.truncate(0);
        let mut examples = Vec::new();
        for draft in drafts {
            if let Some(own) = self.read(draft, &roots, &mut reader)? {
                examples.extend(own);
            }
        }
        Ok(examples)
    }

    fn read(
        &self,
        draft: &JudgedDraft,
        roots: &[u32],
        reader: &mut Reader<'_>,
    ) -> Result<Option<Vec<Example>>> {
        let mut walk = Walk::default();
        let mut text = draft.context.clone();
        // If a text is too long for the drafter, its end is used, as in drafting.
        let room = reader.drafter.max_len();
        let first = text.first();
        let special = first.is_some_and(|id| self.vocabulary.bytes(*id).is_none());
        let mut view = end_of(&text, usize::from(special), room, draft.tokens.len());
        let mut drafted = Vec::with_capacity(draft.tokens.len());
        for &token in &draft.tokens {
            let Some(next) = walk.advance(&self.lexicon, token) else {
                return Ok(None);
            };
            reader.read(&view)?;
            let row = &reader.logits;
            let mut features = Vec::new();
            let state = reader.drafter.state();
            write_features(DraftSignal::of(token, row), state, &mut features);
            let law = match self.sampling.is_greedy() {
                true => None,
                false => Some(self.law(row, &text, walk.mask(&self.lexicon, roots).ids())?),
            };
            drafted.push((features, law));
            text.push(token);
            view.push(token);
            walk = next;
        }
        Ok(Some(draft.label(drafted)))
    }

    /// The distribution that drafting would sample from.
    fn law(
        &self,
        row: &[f32],
        text: &[DraftId],
        support: impl Iterator<Item = u32> + Clone,
    ) -> Result<DraftLaw> {
        let mut penalised = Vec::new();
        let row = match self.sampling.penalises() {
            false => row,
            true => {
                let seen: BTreeSet<DraftId> = text.iter().copied().collect();
                penalised.extend_from_slice(row);
                self.sampling.penalise(&mut penalised, &seen);
                &penalised
            }
        };
        let mut law = vec![0.0; row.len()];
        let made = self.sampling.masked_law(row, support, &mut law);
        made.map_err(OnlineError::at("a draft read again"))?;
        Ok(DraftLaw::new(law))
    }
}

impl JudgedDraft {
    /// Labels by the rule of [`labels`](adaptive_draft::labels): the last token of a proposal has
    /// its acceptance, those before it 1. `drafted`: features and distribution of every token.
    fn label(&self, drafted: Vec<(Vec<f32>, Option<DraftLaw>)>) -> Vec<Example> {
        let mut labels: Vec<Option<f64>> = vec![None; drafted.len()];
        let probability = |at: usize, token: DraftId| match &drafted[at].1 {
            Some(law) => law.probability(token),
            None => 1.0,
        };
        for (span, score) in &self.judged {
            for piece in span.clone() {
                let label = labels[piece].get_or_insert(1.0);
                if piece + 1 == span.end {
                    *label *= self.acceptance(span, score, probability);
                }
            }
        }
        let labelled = drafted.into_iter().zip(labels);
        labelled
            .filter_map(|((features, _), label)| {
                let label = label? as f32;
                Some(Example { features, label })
            })
            .collect()
    }

    /// Acceptance probability of a proposal, with `probability` giving those of draft tokens.
    fn acceptance(
        &self,
        span: &Range<usize>,
        score: &Score,
        probability: impl Fn(usize, DraftId) -> f64,
    ) -> f64 {
        if let Some(choices) = &score.choices {
            return choices.acceptance(|choice| {
                let law = |token| probability(choice.at, token);
                choice.proposal_by(law, self.tokens[choice.at])
            });
        }
        let own = span.clone().map(|at| probability(at, self.tokens[at]));
        // A proposal that the drafter would not make any more is accepted if the target can emit
        // it.
        match score.target > 0.0 {
            true => Score::new(score.target, own.product()).acceptance(),
            false => 0.0,
        }
    }
}

/// The first `head` tokens of a text and as much of its end as leaves `more` of the `positions`
/// positions free. The end moves in strides, so that successive texts have a common beginning.
fn end_of(text: &[DraftId], head: usize, positions: usize, more: usize) -> Vec<DraftId> {
    let surplus = (text.len() + more).saturating_sub(positions);
    let stride = (positions / 4).max(1);
    // At least the last token stays.
    let behind = text.len().saturating_sub(head + 1);
    let cut = surplus.next_multiple_of(stride).min(behind);
    let (head, rest) = text.split_at(head.min(text.len()));
    [head, &rest[cut..]].concat()
}

/// Reads texts that mostly have a common beginning.
struct Reader<'a> {
    drafter: &'a mut Engine,
    fed: Vec<DraftId>,
    logits: Vec<f32>,
}

impl Reader<'_> {
    /// Computes the logits after `text`, and the hidden state that they come from.
    fn read(&mut self, text: &[DraftId]) -> Result<()> {
        let [before @ .., last] = text else {
            return Err(OnlineError::Internal("a draft without a context"));
        };
        let common = self
            .fed
            .iter()
            .zip(before)
            .take_while(|(a, b)| a == b)
            .count();
        self.drafter.truncate(common);
        if common < before.len() {
            self.drafter.prefill(&raw_ids(&before[common..]))?;
        }
        self.drafter.forward(&[last.get()], &mut self.logits)?;
        self.fed = text.to_vec();
        Ok(())
    }
}

/// The buffer R of drafts (Algorithm 4).
#[derive(Debug, Clone, Default)]
pub(super) struct Drafts {
    kept: VecDeque<JudgedDraft>,
    tokens: usize,
    /// Number of drafts at its end that were added since the last training step.
    fresh: usize,
}

impl Drafts {
    /// Adds drafts; the oldest are dropped while there are more than `most` tokens.
    pub(super) fn extend(&mut self, drafts: Vec<JudgedDraft>, most: usize) {
        self.fresh += drafts.len();
        self.tokens += drafts.iter().map(|draft| draft.tokens.len()).sum::<usize>();
        self.kept.extend(drafts);
        while self.tokens > most
            && let Some(oldest) = self.kept.pop_front()
        {
            self.tokens -= oldest.tokens.len();
        }
        self.fresh = self.fresh.min(self.kept.len());
    }

    /// The drafts added since the last training step.
    pub(super) fn fresh(&mut self) -> impl Iterator<Item = &JudgedDraft> {
        let start = self.kept.len() - std::mem::take(&mut self.fresh);
        self.kept.range(start..)
    }

    /// Drafts with at least `tokens` tokens in total, drawn with replacement from the random stream
    /// of this `step`, the oldest first; empty if there are none.
    pub(super) fn draw(
        &mut self,
        tokens: usize,
        seed: u64,
        step: u64,
    ) -> impl Iterator<Item = &JudgedDraft> {
        self.fresh = 0;
        let mut dice = StreamName::new(seed, step).dice(Purpose::Head);
        let (n, mut drawn, mut picked) = (self.kept.len(), 0, Vec::new());
        while n > 0 && drawn < tokens {
            let index = ((dice.uniform() * n as f64) as usize).min(n - 1);
            drawn += self.kept[index].tokens.len().max(1);
            picked.push(index);
        }
        // In order of age, so that texts read one after the other have a common beginning.
        picked.sort_unstable();
        picked.into_iter().map(|index| &self.kept[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_read_from_its_end() {
        let text = |n: u32| (0..n).map(DraftId).collect::<Vec<_>>();
        assert_eq!(end_of(&text(12), 1, 16, 4), text(12));
        let mut beginnings = BTreeSet::new();
        for len in 13..100 {
            let view = end_of(&text(len), 1, 16, 4);
            assert!(view.len() + 4 <= 16 && view.len() >= 8, "{len}: {view:?}");
            assert_eq!((view[0], view.last()), (DraftId(0), text(len).last()));
            beginnings.insert(view[1]);
        }
        assert_eq!(beginnings.len(), 87_usize.div_ceil(4));
        assert_eq!(end_of(&text(3), 1, 2, 8), [DraftId(0), DraftId(2)]);
    }
}
