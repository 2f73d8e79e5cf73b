//! Labels and features of judged drafts by the drafter as it is now (Algorithms 3 and 4).
//!
//! A label, min(1, p / q') or what the group rule makes of its choices, has the drafter's own
//! probability in it, and a feature its hidden state: both go stale with every update. What stays is
//! the context, the drafted tokens and the target's half of the score, so the drafter reads them
//! again whenever the head is to learn from them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use adaptive_draft::{DraftSignal, Example, write_features};
use anyhow::{Result, anyhow};
use models::Engine;
use spec_decode::{
    DraftLaw, LanguageModel, Lexicon, Purpose, RoundOutcome, Sampling, Score, StreamName, Walk,
    is_looked_up,
};
use vocab_align::{DraftId, TokenId, Vocabulary, raw_ids};

/// A draft and what the target said to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JudgedDraft {
    /// Prompt and response so far, in draft tokens.
    context: Vec<DraftId>,
    tokens: Vec<DraftId>,
    /// The draft tokens of each judged proposal, and its score.
    judged: Vec<(Range<usize>, Score)>,
}

impl JudgedDraft {
    /// What a round leaves to learn from; `None` where nothing was judged. With `unjudged`, all
    /// scored proposals, as for [`labels`](adaptive_draft::labels).
    pub(super) fn new(context: &[DraftId], outcome: &RoundOutcome, unjudged: bool) -> Option<Self> {
        let judged = match unjudged {
            true => outcome.scores.len(),
            false => outcome.scores.len().min(outcome.accepted + 1),
        };
        // Behind looked-up tokens the context is not the one before the round.
        if outcome.proposals.first().is_some_and(is_looked_up) {
            return None;
        }
        let scored = outcome.proposals.iter().zip(&outcome.scores[..judged]);
        let judged: Vec<_> = scored
            .map(|(p, score)| (p.span.clone(), score.clone()))
            .collect();
        // The group rule looks at the token behind a proposal that an n-gram could have replaced.
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

/// What a label follows from beside the drafter and p.
pub(super) struct Rules<'a> {
    /// What drafts are masked by.
    pub(super) lexicon: Lexicon<'a>,
    /// How laws follow from logits.
    pub(super) sampling: Sampling,
    /// The drafter's tokens.
    pub(super) vocabulary: &'a Vocabulary<DraftId>,
}

impl Rules<'_> {
    /// The examples of some drafts, each judged token once, by `drafter` as it is now. A draft that
    /// it could no longer make, because an n-gram has left the cache, teaches nothing.
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
        // Of a text too long for the drafter, its end, as when it was drafted.
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

    /// The law that drafting would sample from.
    fn law(
        &self,
        row: &[f32],
        text: &[DraftId],
        support: impl Iterator<Item = u32> + Clone,
    ) -> Result<DraftLaw> {
        let mut law = Vec::new();
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
        law.resize(row.len(), 0.0);
        let made = self.sampling.masked_law(row, support, &mut law);
        made.map_err(|error| anyhow!("a draft read again: {error}"))?;
        Ok(DraftLaw::new(law))
    }
}

impl JudgedDraft {
    /// Labels by the rule of [`labels`](adaptive_draft::labels): the last token of a proposal has
    /// its acceptance, those before it 1. `drafted`: features and law of every token.
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

    /// The chance of acceptance of a proposal, by what `probability` says of draft tokens.
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
        // What the drafter would not propose any more is accepted if it can be at all.
        match score.target > 0.0 {
            true => Score::new(score.target, own.product()).acceptance(),
            false => 0.0,
        }
    }
}

/// The first `head` tokens of a text and as much of its end as leaves room for `more` in `positions`
/// positions. The end moves in strides, so that texts that follow each other begin alike.
fn end_of(text: &[DraftId], head: usize, positions: usize, more: usize) -> Vec<DraftId> {
    let surplus = (text.len() + more).saturating_sub(positions);
    let stride = (positions / 4).max(1);
    // At least the last token stays.
    let behind = text.len().saturating_sub(head + 1);
    let cut = surplus.next_multiple_of(stride).min(behind);
    let (head, rest) = text.split_at(head.min(text.len()));
    [head, &rest[cut..]].concat()
}

/// Reads texts that mostly begin alike.
struct Reader<'a> {
    drafter: &'a mut Engine,
    fed: Vec<DraftId>,
    logits: Vec<f32>,
}

impl Reader<'_> {
    /// Leaves the logits behind `text`, and the state they come from.
    fn read(&mut self, text: &[DraftId]) -> Result<()> {
        let [before @ .., last] = text else {
            return Err(anyhow!("a draft without a context"));
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
    /// How many at its end came in since the last turn.
    fresh: usize,
}

impl Drafts {
    /// Takes in drafts; the oldest leave while there are more than `most` tokens.
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

    /// Those since the last turn.
    pub(super) fn fresh(&mut self) -> impl Iterator<Item = &JudgedDraft> {
        let start = self.kept.len() - std::mem::take(&mut self.fresh);
        self.kept.range(start..)
    }

    /// As many as have `tokens` tokens, drawn with replacement by the stream of this `step`, those of
    /// one answer together.
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
        // In order of age, so that texts read one after the other begin alike.
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
