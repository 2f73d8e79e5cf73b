//! Drafting: the k masked steps of a round, with the distribution of each.

use std::collections::BTreeSet;

use vocab_align::{DraftId, TargetId, TokenId};

use crate::alternative::Seconds;
use crate::buffer::Row;
use crate::error::LawError;
use crate::lexicon::{DirectMap, Lexicon};
use crate::mask::{Mask, Walk};
use crate::sampling::{Sampling, argmax, masked_argmax};
use crate::{Chance, DraftPolicy, DraftStep};

/// Largest number of steps beyond the draft length that complete an n-gram.
///
/// Cached n-grams are mostly two or three tokens long, so two more steps complete nearly all of
/// them. An n-gram that is still incomplete is not proposed. Mode `exact` still verifies its first
/// token; mode `paper` draws the bonus token instead.
pub(crate) const MAX_COMPLETION_STEPS: usize = 2;

/// The distribution that one draft token was sampled from: masked and renormalised, dense over V_q.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftLaw(Row<f64>);

impl DraftLaw {
    /// From probabilities by raw draft id.
    pub fn new(probabilities: Vec<f64>) -> Self {
        Self(Row(probabilities))
    }

    /// Probability of a token; 0 for one outside the vocabulary.
    pub fn probability(&self, draft: DraftId) -> f64 {
        self.0.get(draft.index()).copied().unwrap_or(0.0)
    }

    /// Probabilities by raw draft id.
    pub fn probabilities(&self) -> &[f64] {
        &self.0
    }
}

/// The drafted tokens of one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// Tokens in order.
    pub ids: Vec<DraftId>,
    /// Distribution of every token, given those before it; empty at temperature 0.
    pub laws: Vec<DraftLaw>,
}

impl Draft {
    /// The probability with which token `position` was drafted; 1 at temperature 0.
    ///
    /// # Errors
    /// [`LawError::DraftProbability`] if that is not in `(0, 1]`.
    ///
    /// # Panics
    /// If the draft has no token `position`.
    pub fn probability(&self, position: usize) -> Result<f64, LawError> {
        let token = self.ids[position];
        let Some(law) = self.laws.get(position) else {
            return Ok(1.0);
        };
        let probability = law.probability(token);
        // Written so that NaN fails too.
        if probability > 0.0 && probability <= 1.0 {
            Ok(probability)
        } else {
            Err(LawError::DraftProbability { token, probability })
        }
    }
}

/// Inputs of drafting other than the drafter.
pub(crate) struct DraftRules<'a> {
    /// The lexicon through which a draft must stay translatable; without one, any tokens with which
    /// a draft can begin may follow each other.
    pub(crate) lexicon: Option<Lexicon<'a>>,
    pub(crate) direct: &'a DirectMap,
    pub(crate) sampling: Sampling,
    pub(crate) stop: &'a BTreeSet<TargetId>,
    /// True if second choices are looked for.
    pub(crate) seconds: bool,
}

/// A draft in progress, between two forwards of the drafter. The default drafts nothing.
///
/// It takes one forward per drafted token. The first forward also reads the context tokens that the
/// drafter's cache does not hold yet. The last drafted token is not fed back.
#[derive(Default)]
pub(crate) struct Drafting {
    drafted: Draft,
    /// Input of the next forward; empty if there is none.
    input: Vec<DraftId>,
    /// Tokens of context and draft that the drafter was fed.
    fed: Vec<DraftId>,
    wanted: usize,
    /// Largest number of tokens, including those that complete an n-gram.
    most: usize,
    enough: bool,
    /// Distinct tokens of context and draft, if there is a repetition penalty.
    seen: Option<BTreeSet<DraftId>>,
    /// Raw ids of the tokens with which a draft can begin, ascending.
    roots: Vec<u32>,
    walk: Walk,
    seconds: Seconds,
}

impl Drafting {
    /// A draft of at most `wanted` tokens after `pending`, where both models have room for `room`.
    pub(crate) fn new(
        pending: Vec<DraftId>,
        roots: Vec<u32>,
        seen: Option<BTreeSet<DraftId>>,
        (wanted, room): (usize, usize),
    ) -> Self {
        let wanted = wanted.min(room);
        let begins = !roots.is_empty() && wanted > 0;
        Self {
            input: if begins { pending } else { Vec::new() },
            wanted,
            most: wanted.saturating_add(MAX_COMPLETION_STEPS).min(room),
            seen,
            roots,
            ..Self::default()
        }
    }

    /// Tokens that the drafter reads next; empty if the draft is finished.
    pub(crate) fn input(&self) -> &[DraftId] {
        &self.input
    }

    /// Draws the next token, given the last row of logits of [`input`](Self::input), the drafter's
    /// state, and true if the drafter abstains.
    pub(crate) fn take(
        &mut self,
        (row, state, abstains): (&[f32], &[f32], bool),
        rules: &DraftRules<'_>,
        policy: &mut dyn DraftPolicy,
        dice: &mut dyn Chance,
    ) -> Result<(), LawError> {
        self.fed.append(&mut self.input);
        if abstains {
            return Ok(());
        }
        let penalised = self.seen.as_ref().map(|seen| {
            let mut penalised = row.to_vec();
            rules.sampling.penalise(&mut penalised, seen);
            penalised
        });
        let processed = penalised.as_deref().unwrap_or(row);
        let (column, law) = choose(rules.sampling, processed, &self.mask(rules), dice)?;
        let token = DraftId::new(column as u32);
        if let Some(seen) = &mut self.seen {
            seen.insert(token);
        }
        if rules.seconds {
            self.seconds.note(token, row, rules.direct);
        }
        self.push((token, law), (row, state), rules, policy);
        Ok(())
    }

    /// Adds the most probable token of all, without logits or state. Returns false, and changes
    /// nothing, if the mask does not allow it. It applies only at temperature 0, without a
    /// repetition penalty, and with a policy that reads neither logits nor state.
    pub(crate) fn take_best(
        &mut self,
        best: u32,
        rules: &DraftRules<'_>,
        policy: &mut dyn DraftPolicy,
    ) -> bool {
        let may = self.mask(rules).contains(best);
        if may {
            self.fed.append(&mut self.input);
            if rules.seconds {
                self.seconds.note(DraftId::new(best), &[], rules.direct);
            }
            self.push((DraftId::new(best), None), (&[], &[]), rules, policy);
        }
        may
    }

    /// Tokens that the drafter may sample next.
    fn mask(&self, rules: &DraftRules<'_>) -> Mask<'_> {
        match &rules.lexicon {
            Some(lexicon) => self.walk.mask(lexicon, &self.roots),
            None => Mask::fixed(&self.roots),
        }
    }

    /// Adds a token of the mask.
    fn push(
        &mut self,
        (token, law): (DraftId, Option<DraftLaw>),
        (row, state): (&[f32], &[f32]),
        rules: &DraftRules<'_>,
        policy: &mut dyn DraftPolicy,
    ) {
        if let Some(lexicon) = &rules.lexicon {
            // The mask contains only tokens that the walk can read.
            self.walk = self.walk.advance(lexicon, token).unwrap_or_default();
        }
        let (walk, drafted) = (&self.walk, &mut self.drafted);
        let probability = law.as_ref().map_or(1.0, |law| law.probability(token));
        drafted.ids.push(token);
        drafted.laws.extend(law);
        self.enough |= drafted.ids.len() >= self.wanted;
        // A stop token is shown to the policy as well, although there is nothing to decide after
        // it.
        self.enough |= policy.stop_after(&DraftStep {
            position: drafted.ids.len() - 1,
            token,
            probability,
            logits: row,
            state,
            open: rules.lexicon.is_some_and(|lexicon| walk.open(&lexicon)),
        });
        let complete = |lexicon: Lexicon<'_>| walk.dangling(&lexicon) == 0;
        let finished = self.enough && rules.lexicon.is_none_or(complete);
        // Nothing sensible follows a stop token.
        let target = rules.direct.target_of(token);
        let ends = target.is_some_and(|target| rules.stop.contains(&target));
        if !ends && drafted.ids.len() < self.most && !finished {
            self.input.push(token);
        }
    }

    /// The draft, the tokens of context and draft that the drafter was fed, and its second choices.
    pub(crate) fn end(self) -> (Draft, Vec<DraftId>, Seconds) {
        (self.drafted, self.fed, self.seconds)
    }
}

fn choose(
    sampling: Sampling,
    row: &[f32],
    mask: &Mask<'_>,
    dice: &mut dyn Chance,
) -> Result<(usize, Option<DraftLaw>), LawError> {
    if sampling.is_greedy() {
        // Usually the best of all tokens is in the mask and therefore the best of the mask: one
        // pass over the row instead of three.
        let best = argmax(row).ok();
        let best = best.filter(|&column| mask.contains(column as u32));
        let best = best.map_or_else(|| masked_argmax(row, mask.ids()), Ok);
        return Ok((best?, None));
    }
    let mut law = Row::of(row.len());
    sampling.masked_law(row, mask.ids(), &mut law)?;
    Ok((dice.pick(&law)?, Some(DraftLaw(law))))
}
