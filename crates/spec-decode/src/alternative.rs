//! Alternatives: runs of tokens that the target scores along with a draft, in place of its tokens.
//!
//! A round ends with a token that the target draws in place of the first rejected proposal, or after
//! all of them. If the same forward has scored that very token there, the target's row after it is
//! known, and one more token is drawn from it; and so on, as long as the drawn tokens are those of
//! the alternative. Acceptance and draws depend on no alternative: one only spares the forward after
//! a token that is drawn already. So the output has the target's distribution in every mode that
//! keeps it; in mode `paper` it comes nearer to it.
//!
//! An alternative is the drafter's second choice, looked-up text that goes on in another way than
//! the draft, or the former followed by the latter.

use vocab_align::{DraftId, TargetId, TokenId};

use crate::lexicon::DirectMap;
use crate::sampling::{argmax_without, largest_possible, moments};

/// Number of the most probable other tokens of which one must stand for a target token.
const OTHERS: usize = 8;

/// A token that may stand in place of a drafted one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Second {
    pub(crate) target: TargetId,
    /// The drafter's probability of it at temperature 1 or, in [`Chances`], the target's.
    pub(crate) mass: f64,
}

/// An alternative with its place in the target's forward.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    /// Number of the forward's tokens before it.
    pub(crate) after: usize,
    pub(crate) tokens: Vec<TargetId>,
    /// Chance that the target says the alternative up to each token, whose row then gives a further
    /// token. It does not rise.
    pub(crate) chances: Vec<f64>,
}

impl Placed {
    /// The alternative of `chance` that goes on with looked-up tokens, each accepted with a
    /// probability.
    pub(crate) fn new(
        after: usize,
        (first, chance): (TargetId, f64),
        more: impl IntoIterator<Item = (TargetId, f64)>,
    ) -> Self {
        let mut placed = Self {
            after,
            tokens: vec![first],
            chances: vec![chance],
        };
        let mut stands = chance;
        for (token, acceptance) in more {
            stands *= acceptance.clamp(0.0, 1.0);
            placed.tokens.push(token);
            placed.chances.push(stands);
        }
        placed
    }
}

/// The likeliest beginnings of alternatives with at most `most` tokens together. `worth` says if a
/// token of a chance is worth a position beside so many other tokens of alternatives.
pub(crate) fn likeliest(
    mut all: Vec<Placed>,
    most: usize,
    worth: impl Fn(usize, f64) -> bool,
) -> Vec<Placed> {
    let mut kept = vec![0; all.len()];
    for used in 0..most {
        let next = all.iter().zip(&kept).enumerate();
        let next = next.filter_map(|(i, (own, kept))| Some((i, *own.chances.get(*kept)?)));
        match next.max_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((i, chance)) if chance > 0.0 && worth(used, chance) => kept[i] += 1,
            _ => break,
        }
    }
    for (own, kept) in all.iter_mut().zip(kept) {
        own.tokens.truncate(kept);
    }
    all.retain(|own| !own.tokens.is_empty());
    all
}

/// Chance that a looked-up token, which differs from a drafted one, is the target's and the drafted
/// one is not. They are right with these probabilities, independently, but not both.
pub(crate) fn instead(copied: f64, drafted: f64) -> f64 {
    copied * (1.0 - drafted) / (1.0 - copied * drafted).max(1e-9)
}

/// Second choices of a draft in progress, and the probabilities of its tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seconds {
    /// One a drafted token, if there is any.
    found: Vec<Option<Second>>,
    /// The drafter's probability of each drafted token, at temperature 1; 0 if it is not known.
    masses: Vec<f64>,
}

impl Seconds {
    /// Notes a drafted token, given the drafter's raw logits; without them there is no second choice
    /// in its place, and nothing is known of what comes after it.
    pub(crate) fn note(&mut self, first: DraftId, logits: &[f32], direct: &DirectMap) {
        let top = largest_possible(logits).filter(|top| *top > f32::NEG_INFINITY);
        let Some(top) = top else {
            self.found.push(None);
            self.masses.push(0.0);
            return;
        };
        let all = moments(logits, top).0;
        let mass = |logit: f32| (f64::from(logit) - f64::from(top)).exp() / all;
        let own = logits.get(first.index()).map_or(0.0, |own| mass(*own));
        let mut others = vec![first.index()];
        let second = std::iter::from_fn(|| {
            let column = argmax_without(logits, &others)?;
            let at = others.partition_point(|other| *other < column);
            others.insert(at, column);
            Some(column)
        });
        let second = second.take(OTHERS).find_map(|column| {
            let target = direct.target_of(DraftId::new(column as u32))?;
            let mass = mass(logits[column]);
            Some(Second { target, mass })
        });
        self.masses.push(own);
        self.found.push(second);
    }

    /// Chances of a draft and of its second choices, given the probability with which the target
    /// says a drafted token by its position and the drafter's probability.
    pub(crate) fn chances(&self, acceptance: impl Fn(usize, f64) -> f64) -> Chances {
        let mut stands = vec![1.0];
        let mut seconds = Vec::new();
        for (position, (mass, second)) in self.masses.iter().zip(&self.found).enumerate() {
            let own = match *mass > 0.0 {
                true => acceptance(position, *mass).clamp(0.0, 1.0),
                false => 0.0,
            };
            // A drafted token that is accepted more or less often than the drafter believes leaves
            // less or more for all others, and to each its share.
            let left = (1.0 - own) / (1.0 - mass).max(1e-9);
            stands.push(stands[position] * own);
            seconds.push(second.map(|second| Second {
                mass: (second.mass * left).min(1.0 - own),
                ..second
            }));
        }
        Chances { stands, seconds }
    }
}

/// The chances that the target says a draft, and its second choices.
#[derive(Clone, Debug)]
pub(crate) struct Chances {
    /// Chance of the whole draft up to a token, from before the first one.
    stands: Vec<f64>,
    /// Second choices by drafted token.
    seconds: Vec<Option<Second>>,
}

impl Chances {
    /// The second choice in place of a drafted token.
    pub(crate) fn second(&self, drafted: usize) -> Option<Second> {
        self.seconds.get(drafted).copied().flatten()
    }

    /// Chance that the target says the first `drafted` tokens; 0 if it is not known.
    pub(crate) fn stands(&self, drafted: usize) -> f64 {
        self.stands.get(drafted).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_are_kept_as_long_as_they_are_worth_it() {
        let placed = |after, chance, more: &[f64]| {
            let more = more.iter().map(|p| (TargetId(9), *p));
            Placed::new(after, (TargetId(after as u32), chance), more)
        };
        let all = || {
            vec![
                placed(1, 0.2, &[0.9, 0.9]),
                placed(2, 0.19, &[]),
                placed(3, 0.3, &[0.1]),
            ]
        };
        let lengths = |most: usize, least: f64| {
            let kept = likeliest(all(), most, |used, chance| used < 4 && chance > least);
            kept.iter()
                .map(|own| (own.after, own.tokens.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(lengths(1, 0.0), [(3, 1)]);
        assert_eq!(lengths(3, 0.0), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(lengths(9, 0.0), [(1, 2), (2, 1), (3, 1)]);
        assert_eq!(lengths(9, 0.195), [(1, 1), (3, 1)]);
        assert_eq!(lengths(9, 0.5), []);
    }

    #[test]
    fn the_second_choice_is_the_most_probable_other_token_that_the_target_has() {
        // Tokens 0, 3 and 4 stand for target tokens.
        let pairs = [(0, 10), (3, 13), (4, 14)].map(|(a, b)| (DraftId(a), TargetId(b)));
        let direct = DirectMap::from_pairs(&pairs, 6, 20);
        let second = |first: u32, logits: &[f32]| {
            let mut seconds = Seconds::default();
            seconds.note(DraftId(first), logits, &direct);
            let chances = seconds.chances(|_, probability| probability);
            let found = chances.second(0);
            let found = found.map(|second| (second.target.0, second.mass));
            (found, chances.stands(1))
        };
        let ln = |p: [f32; 6]| p.map(f32::ln);
        let (found, stands) = second(1, &ln([0.1, 0.4, 0.2, 0.2, 0.1, 0.0]));
        let (target, mass) = found.unwrap();
        assert_eq!(target, 13);
        assert!((mass - 0.2).abs() < 1e-6 && (stands - 0.4).abs() < 1e-6);
        // Of equal ones the first; the drafted one is no second choice.
        assert_eq!(
            second(3, &ln([0.2, 0.0, 0.0, 0.6, 0.2, 0.0])).0.unwrap().0,
            10
        );
        // No other token has a chance that the target has.
        assert_eq!(second(3, &ln([0.0, 0.3, 0.3, 0.4, 0.0, 0.0])).0, None);
        let (found, stands) = second(3, &[f32::NAN; 6]);
        assert!(found.is_none() && stands == 0.0);
    }

    #[test]
    fn what_is_accepted_less_often_leaves_more_to_the_others() {
        let direct = DirectMap::from_pairs(&[(DraftId(1), TargetId(11))], 3, 20);
        let mut seconds = Seconds::default();
        for p in [[0.6, 0.3, 0.1], [1.0, 0.0, 0.0]] {
            seconds.note(DraftId(0), &p.map(f32::ln), &direct);
        }
        let found = |first: f64| {
            let chances = seconds.chances(|position, _| if position == 0 { first } else { 0.9 });
            (chances.stands(2), chances.second(0).unwrap().mass)
        };
        for (first, stands, second) in [(0.6, 0.54, 0.3), (0.2, 0.18, 0.6), (1.0, 0.9, 0.0)] {
            let found = found(first);
            assert!((found.0 - stands).abs() < 1e-6, "{found:?}");
            assert!((found.1 - second).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn two_tokens_in_one_place_are_not_both_right() {
        assert_eq!(instead(0.5, 0.0), 0.5);
        assert_eq!(instead(0.5, 1.0), 0.0);
        // Both right in a quarter of all cases, which cannot be.
        assert!((instead(0.5, 0.5) - 1.0 / 3.0).abs() < 1e-12);
        assert!(instead(1.0, 1.0).is_finite());
    }
}
