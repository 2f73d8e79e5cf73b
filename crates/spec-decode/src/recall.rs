//! Recall: what the target said where the drafter's state was much like the present one.
//!
//! A drafter errs in similar ways at similar places. Where it was wrong or unsure, a [`Recall`] keeps
//! the drafter's last hidden state, shortened, beside the token that the target's text went on with.
//! When the drafter drafts, the nearest of these states vote for the next token, as in language
//! models with a store of neighbours (kNN-LM, Khandelwal et al., 2020). To the logits of the voted
//! tokens a weighted sum of three numbers is added: the token's share of the vote, that share times
//! the closeness of its nearest state, and 1. A token less probable than e^-9 starts from there. The
//! weights follow the gradient of the likelihood of the text, so a target whose text the votes do not
//! foretell costs little.
//!
//! The changed logits are the drafter's distribution q in all that follows. Like any other drafter's,
//! it has no influence on the distribution of the output in a mode that is exact.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use multiversion::multiversion;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vocab_align::{DraftId, TokenId};

use crate::sampling::{argmax, moments};

/// Number of levels of a shortened state.
const WIDTH: usize = 128;
/// Number of levels that each value of a state is added to.
const SPREAD: u64 = 4;
/// Levels of a state of length 1: values of its levels are mostly below 0.4.
const SCALE: f32 = 317.0;
/// Number of states that vote.
const NEIGHBOURS: usize = 8;
/// Weight of a vote: e to this times the cosine of the two states.
const SHARPNESS: f32 = 20.0;
/// Cosine from which on a state is close, and the factor that takes the rest up to 1 to 1.
const CLOSE: (f32, f32) = (0.8, 5.0);
/// Least logarithm of the probability from which a voted token rises.
const LEAST: f64 = -9.0;
/// Weights of a vote before any text: those of a drafter of 135 million parameters after some hundred
/// answers of a target of half a billion.
const WEIGHTS: [f64; FEATURES] = [1.0, 2.4, 0.5];
/// Step of the weights, divided by the root of their squared gradients so far (AdaGrad).
const STEP: f64 = 0.1;
const FEATURES: usize = 3;
/// Largest magnitude of a weight.
const WORST: f64 = 20.0;
/// Probability of the drafter's best token below which its state is kept also if it was right.
const UNSURE: f64 = 0.5;
/// Number of tokens before a drafted one that show if the text went on as the draft assumed.
const TAIL: usize = 8;

/// A shortened state.
type Key = [i8; WIDTH];

/// A voted token with its numbers, which the weights multiply.
type Voted = (DraftId, [f64; FEATURES]);

/// States of a drafter, with the tokens that a target's text went on with.
///
/// It keeps a number of states, of which the oldest go first. In a file the states are a text of two
/// hexadecimal digits a level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Recall {
    capacity: usize,
    keys: Vec<Key>,
    tokens: Vec<DraftId>,
    /// Place of the next state once all are taken.
    next: usize,
    /// Weights of a vote's numbers, and the sums of their squared gradients.
    weights: [f64; FEATURES],
    squares: [f64; FEATURES],
}

/// A recall as a file has it.
#[derive(Serialize, Deserialize)]
struct Written {
    capacity: usize,
    keys: String,
    tokens: Vec<u32>,
    next: usize,
    weights: [f64; FEATURES],
    squares: [f64; FEATURES],
}

impl From<Recall> for Written {
    fn from(recall: Recall) -> Self {
        let levels = recall.keys.as_flattened().iter();
        let digit = |bits: u8| char::from_digit(u32::from(bits), 16).unwrap_or_default();
        Self {
            capacity: recall.capacity,
            keys: levels
                .flat_map(|level| [*level as u8 >> 4, *level as u8 & 15].map(digit))
                .collect(),
            tokens: recall.tokens.iter().map(|token| token.get()).collect(),
            next: recall.next,
            weights: recall.weights,
            squares: recall.squares,
        }
    }
}

impl TryFrom<Written> for Recall {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let level = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as i8);
        let (pairs, rest) = written.keys.as_bytes().as_chunks::<2>();
        let levels: Option<Vec<i8>> = pairs.iter().map(level).collect();
        let levels = levels.filter(|_| rest.is_empty());
        let levels = levels.ok_or("recalled states that are not hexadecimal")?;
        let (keys, rest) = levels.as_chunks::<WIDTH>();
        let kept = keys.len();
        let whole = rest.is_empty()
            && written.tokens.len() == kept
            && kept <= written.capacity
            && written.next < kept.max(1)
            && written.weights.iter().all(|x| x.abs() <= WORST)
            && written.squares.iter().all(|x| x.is_finite() && *x >= 1.0);
        match whole {
            true => Ok(Self {
                capacity: written.capacity,
                keys: keys.to_vec(),
                tokens: written.tokens.into_iter().map(DraftId::new).collect(),
                next: written.next,
                weights: written.weights,
                squares: written.squares,
            }),
            false => Err("not a recall"),
        }
    }
}

/// A recall that several sessions share. Clones share it, too.
#[derive(Clone, Debug)]
pub struct SharedRecall(Arc<Mutex<Recall>>);

impl SharedRecall {
    /// An empty recall of at most `capacity` states.
    pub fn new(capacity: usize) -> Self {
        Recall::new(capacity).into()
    }

    /// The recall; each change of it is whole, even if its holder panics.
    pub fn locked(&self) -> MutexGuard<'_, Recall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Recall> for SharedRecall {
    fn from(recall: Recall) -> Self {
        Self(Arc::new(Mutex::new(recall)))
    }
}

impl Serialize for SharedRecall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Copied first: an answer may wait for it.
        let copy = self.locked().clone();
        copy.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SharedRecall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Recall::deserialize(deserializer).map(Self::from)
    }
}

/// The text before a token: its number of draft tokens, and the last of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    count: usize,
    tail: Vec<DraftId>,
}

impl Before {
    pub(crate) fn of(ids: &[DraftId]) -> Self {
        Self {
            count: ids.len(),
            tail: ids[ids.len().saturating_sub(TAIL)..].to_vec(),
        }
    }

    /// The text with `more` tokens after it.
    pub(crate) fn with(&self, more: &[DraftId]) -> Self {
        Self {
            count: self.count + more.len(),
            ..Self::of(&[&self.tail, more].concat())
        }
    }
}

/// The drafter's state at a drafted token, whose truth is not known yet.
#[derive(Clone, Debug)]
struct Noted {
    before: Before,
    key: Key,
    /// The drafter's own best token, and its probability.
    own: (DraftId, f64),
    votes: Vec<Judged>,
}

impl Recall {
    /// An empty recall of at most `capacity` states.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            keys: Vec::new(),
            tokens: Vec::new(),
            next: 0,
            weights: WEIGHTS,
            squares: [1.0; FEATURES],
        }
    }

    /// Number of states.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there are no states.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Keeps at most so many states; the oldest go first.
    pub fn resize(&mut self, capacity: usize) {
        self.keys.rotate_left(self.next);
        self.tokens.rotate_left(self.next);
        self.next = 0;
        let surplus = self.keys.len().saturating_sub(capacity);
        self.keys.drain(..surplus);
        self.tokens.drain(..surplus);
        self.capacity = capacity;
    }

    /// Number of states that it keeps at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The tokens that the nearest states vote for; none with fewer states than vote.
    fn votes(&self, key: &Key) -> Vec<Voted> {
        if self.keys.len() < NEIGHBOURS {
            return Vec::new();
        }
        let mut products = vec![0; self.keys.len()];
        multiply(&self.keys, key, &mut products);
        let mut nearest: Vec<(i32, usize)> = products.into_iter().zip(0..).collect();
        // Among equals the earlier place, so that a vote is a function of the states.
        let order = |a: &(i32, usize), b: &(i32, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        nearest.select_nth_unstable_by(NEIGHBOURS - 1, order);
        nearest.truncate(NEIGHBOURS);
        nearest.sort_unstable_by(order);
        let cosine = |product: i32| product as f32 / (SCALE * SCALE);
        let most = cosine(nearest[0].0);
        let mut votes: Vec<Voted> = Vec::new();
        let mut all = 0.0;
        for (product, place) in nearest {
            let weight = f64::from((SHARPNESS * (cosine(product) - most)).exp());
            all += weight;
            let token = self.tokens[place];
            match votes.iter_mut().find(|(voted, _)| *voted == token) {
                Some((_, [share, ..])) => *share += weight,
                None => {
                    let (least, scale) = CLOSE;
                    // The nearest of its states comes first.
                    let close = ((cosine(product) - least) * scale).clamp(0.0, 1.0);
                    votes.push((token, [weight, f64::from(close), 1.0]));
                }
            }
        }
        for (_, [share, close, _]) in &mut votes {
            *share /= all;
            *close *= *share;
        }
        votes
    }

    /// Changes the logits of the tokens that are voted for in a place. Returns these tokens with their
    /// new probabilities, for [`settle`](Self::settle).
    fn advise(&self, &Place { key, all, .. }: &Place, logits: &mut [f32]) -> Vec<Judged> {
        let mut votes = self.votes(&key);
        votes.retain(|(token, _)| token.index() < logits.len());
        // The sum of all probabilities with the voted tokens raised.
        let mut raised = 1.0;
        let mut judged: Vec<Judged> = Vec::new();
        for (token, numbers) in votes {
            let logit = &mut logits[token.index()];
            let before = f64::from(*logit) - all;
            let weighted = numbers
                .iter()
                .zip(self.weights)
                .map(|(x, weight)| x * weight);
            let after = before.max(LEAST) + weighted.sum::<f64>();
            *logit = (all + after) as f32;
            raised += after.exp() - before.exp();
            let probability = after.exp();
            judged.push(Judged {
                token,
                numbers,
                probability,
            });
        }
        judged.iter_mut().for_each(|own| own.probability /= raised);
        judged
    }

    /// Adds a state, and lets the weights follow its vote, now that the text is known to go on with
    /// `truth`.
    fn settle(&mut self, noted: &Noted, truth: DraftId) {
        if !noted.votes.is_empty() {
            for i in 0..FEATURES {
                let of = |own: &Judged| {
                    let was = f64::from(u8::from(own.token == truth));
                    (was - own.probability) * own.numbers[i]
                };
                let gradient: f64 = noted.votes.iter().map(of).sum();
                self.squares[i] += gradient * gradient;
                let weight = self.weights[i] + STEP * gradient / self.squares[i].sqrt();
                self.weights[i] = weight.clamp(-WORST, WORST);
            }
        }
        let (own, probability) = noted.own;
        if (own == truth && probability >= UNSURE) || self.capacity == 0 {
            return;
        }
        if self.keys.len() < self.capacity {
            self.keys.push(noted.key);
            self.tokens.push(truth);
        } else {
            self.keys[self.next] = noted.key;
            self.tokens[self.next] = truth;
            self.next = (self.next + 1) % self.keys.len();
        }
    }
}

/// A voted token and its probability with the logits as they were changed.
#[derive(Clone, Debug)]
struct Judged {
    token: DraftId,
    numbers: [f64; FEATURES],
    probability: f64,
}

/// A place in a text, as the drafter sees it.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    /// The drafter's best token, and its probability.
    own: (DraftId, f64),
    /// The logarithm of the sum of the exponentials of its logits.
    all: f64,
}

impl Place {
    /// `None` for a state or logits that cannot be read.
    fn of(state: &[f32], logits: &[f32]) -> Option<Self> {
        let key = shortened(state)?;
        let best = argmax(logits).ok()?;
        let sum = moments(logits, logits[best]).0;
        Some(Self {
            key,
            own: (DraftId::new(best as u32), 1.0 / sum),
            all: f64::from(logits[best]) + sum.ln(),
        })
    }
}

/// A session's use of a recall: what it noted at drafted tokens waits until the text is known.
#[derive(Debug)]
pub(crate) struct Recalling {
    shared: SharedRecall,
    /// True if the text to come is added to the recall.
    learns: bool,
    noted: Vec<Noted>,
}

impl Recalling {
    pub(crate) fn new(shared: SharedRecall, learns: bool) -> Self {
        Self {
            shared,
            learns,
            noted: Vec::new(),
        }
    }

    /// Changes the drafter's logits at a token to be drafted.
    pub(crate) fn advise(&mut self, before: Before, state: &[f32], logits: &mut [f32]) {
        let Some(place) = Place::of(state, logits) else {
            return;
        };
        let votes = self.shared.locked().advise(&place, logits);
        if self.learns {
            let Place { key, own, .. } = place;
            self.noted.push(Noted {
                before,
                key,
                own,
                votes,
            });
        }
    }

    /// Learns from what was noted, given the text in draft tokens.
    pub(crate) fn settle(&mut self, text: &[DraftId]) {
        if self.noted.is_empty() {
            return;
        }
        let mut recall = self.shared.locked();
        for noted in self.noted.drain(..) {
            let Before { count, tail } = &noted.before;
            let before = text.get(..*count);
            let stands = before.is_some_and(|before| before.ends_with(tail));
            if let Some(truth) = text.get(*count).filter(|_| stands) {
                recall.settle(&noted, *truth);
            }
        }
    }
}

/// A state as levels: each of its values is added, with a sign, to a few of them, which keeps the
/// cosines of states approximately (a count sketch). `None` for a state that is empty, zero or not
/// finite.
fn shortened(state: &[f32]) -> Option<Key> {
    let mut sums = [0.0_f32; WIDTH];
    for (value, i) in state.iter().zip(0_u64..) {
        let mut bits = mixed(i);
        for _ in 0..SPREAD {
            let to = bits as usize % WIDTH;
            sums[to] += if bits & 0x80 == 0 { *value } else { -value };
            bits >>= 8;
        }
    }
    let squares: f32 = sums.iter().map(|x| x * x).sum();
    let length = squares.sqrt();
    if !(length.is_finite() && length > 0.0) {
        return None;
    }
    Some(sums.map(|x| (x / length * SCALE).clamp(-127.0, 127.0).round() as i8))
}

/// The finaliser of SplitMix64.
fn mixed(i: u64) -> u64 {
    let mut z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Products of all keys with one.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx2"))]
fn multiply(keys: &[Key], with: &Key, products: &mut [i32]) {
    for (key, product) in keys.iter().zip(products) {
        let each = key.iter().zip(with);
        *product = each.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state that points in one of a few directions, with a little noise.
    fn state(direction: u64, noise: u64) -> Vec<f32> {
        let value = |seed: u64, i: u64| (mixed(seed * 7919 + i) % 2001) as f32 / 1000.0 - 1.0;
        (0..96)
            .map(|i| value(direction, i) + 0.1 * value(1000 + noise, i))
            .collect()
    }

    /// The drafter's logits: token 1 is its best.
    fn logits() -> Vec<f32> {
        vec![0.0, 2.0, 1.0, 0.0, -1.0]
    }

    /// Drafts at `direction`, after which the text goes on with `truth`. Returns the logits as they
    /// were changed.
    fn live(recalling: &mut Recalling, direction: u64, noise: u64, truth: u32) -> Vec<f32> {
        let text = [7, 8, truth].map(DraftId);
        let mut row = logits();
        let state = state(direction, noise);
        recalling.advise(Before::of(&text[..2]), &state, &mut row);
        recalling.settle(&text);
        row
    }

    fn best(row: &[f32]) -> usize {
        argmax(row).unwrap()
    }

    #[test]
    fn it_says_what_the_target_said_in_such_places() {
        let mut recalling = Recalling::new(SharedRecall::new(256), true);
        // In direction 1 the drafter is wrong, in direction 2 it is right.
        for i in 0..60 {
            live(&mut recalling, 1, 2 * i, 3);
            live(&mut recalling, 2, 2 * i + 1, 1);
        }
        assert_eq!(best(&live(&mut recalling, 1, 1001, 3)), 3);
        assert_eq!(best(&live(&mut recalling, 2, 1002, 1)), 1);
    }

    #[test]
    fn what_the_neighbours_cannot_foretell_is_left_to_the_drafter() {
        let mut recalling = Recalling::new(SharedRecall::new(256), true);
        // Wherever it is, the drafter is right in two of three cases, and otherwise anything is.
        for i in 0..3000 {
            let truth = match mixed(i) % 6 {
                0 => 2,
                1 => 3,
                _ => 1,
            };
            live(&mut recalling, mixed(i) % 5, i, truth);
        }
        let right = (0..50).filter(|i| best(&live(&mut recalling, i % 5, 9000 + i, 1)) == 1);
        assert!(right.count() > 45);
    }

    #[test]
    fn other_logits_stay_and_probabilities_are_those_that_were_changed() {
        let shared = SharedRecall::new(64);
        let mut recalling = Recalling::new(shared.clone(), true);
        for i in 0..40 {
            live(&mut recalling, 1, i, 3);
        }
        let mut row = logits();
        let place = Place::of(&state(1, 777), &row).unwrap();
        let advice = shared.locked().advise(&place, &mut row);
        for (at, before) in logits().into_iter().enumerate().filter(|(at, _)| *at != 3) {
            assert_eq!(row[at], before);
        }
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        let expected = f64::from(row[3]).exp() / sum;
        let [voted] = &advice[..] else {
            panic!("{advice:?}");
        };
        assert_eq!(voted.token, DraftId(3));
        assert!((voted.probability - expected).abs() < 1e-6);
        assert!(expected > 0.7, "{expected}");
    }

    #[test]
    fn weights_follow_what_votes_are_worth() {
        let after = |truth: &dyn Fn(u64) -> u32| {
            let shared = SharedRecall::new(256);
            let mut recalling = Recalling::new(shared.clone(), true);
            (0..2000).for_each(|i| _ = live(&mut recalling, mixed(i) % 5, i, truth(i)));
            let weights = shared.locked().weights;
            weights.iter().sum::<f64>()
        };
        // What is said depends on the state, or on nothing.
        let foretold = after(&|i| 2 + (mixed(i) % 5 % 3) as u32);
        let random = after(&|i| (mixed(7 * i) % 5) as u32);
        let usual: f64 = WEIGHTS.iter().sum();
        assert!(
            foretold > usual && usual > random,
            "{foretold} {usual} {random}"
        );
    }

    #[test]
    fn text_that_goes_on_differently_is_not_learnt() {
        let shared = SharedRecall::new(16);
        let mut recalling = Recalling::new(shared.clone(), true);
        let mut advise = |before: &[u32], text: &[u32]| {
            let ids = |raw: &[u32]| -> Vec<DraftId> { raw.iter().copied().map(DraftId).collect() };
            let before = Before::of(&ids(before));
            recalling.advise(before, &state(1, 1), &mut logits());
            recalling.settle(&ids(text));
            shared.locked().len()
        };
        assert_eq!(advise(&[5, 6], &[5, 7, 3]), 0);
        assert_eq!(advise(&[5, 6], &[5, 6]), 0);
        assert_eq!(advise(&[5, 6], &[5, 6, 3]), 1);
        let mut still = Recalling::new(shared.clone(), false);
        live(&mut still, 1, 1, 3);
        assert_eq!(shared.locked().len(), 1);
    }

    #[test]
    fn the_oldest_go_first_and_a_file_has_all() {
        let shared = SharedRecall::new(10);
        let mut recalling = Recalling::new(shared.clone(), true);
        for i in 0..25 {
            live(&mut recalling, i, i, 2 + (i % 3) as u32);
        }
        let mut recall = shared.locked().clone();
        let written = Written::from(recall.clone());
        assert_eq!(Recall::try_from(written), Ok(recall.clone()));
        let newest: Vec<u32> = (20..25).map(|i| 2 + i % 3).collect();
        recall.resize(5);
        let kept: Vec<u32> = recall.tokens.iter().map(|token| token.get()).collect();
        assert_eq!(kept, newest);
        for damaged in [
            |written: &mut Written| written.keys.push('0'),
            |written: &mut Written| written.keys.replace_range(..1, "g"),
            |written: &mut Written| written.tokens.push(1),
            |written: &mut Written| written.capacity = 1,
            |written: &mut Written| written.next = 99,
            |written: &mut Written| written.weights[0] = f64::NAN,
            |written: &mut Written| written.weights[2] = 1e99,
            |written: &mut Written| written.squares[0] = 0.0,
        ] {
            let mut written = Written::from(recall.clone());
            damaged(&mut written);
            assert!(Recall::try_from(written).is_err());
        }
    }

    #[test]
    fn states_that_cannot_be_read_change_nothing() {
        let mut recalling = Recalling::new(SharedRecall::new(16), true);
        let unread = [
            vec![],
            vec![0.0; 8],
            vec![f32::NAN; 8],
            vec![f32::INFINITY; 8],
        ];
        for state in unread {
            let mut row = logits();
            recalling.advise(Before::default(), &state, &mut row);
            assert_eq!(row, logits());
        }
        let mut impossible = vec![f32::NAN, 1.0];
        recalling.advise(Before::default(), &state(1, 1), &mut impossible);
        assert!(impossible[0].is_nan() && impossible[1] == 1.0 && recalling.noted.is_empty());
    }
}
