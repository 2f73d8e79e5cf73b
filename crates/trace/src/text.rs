//! Distributions for reference text, which then stands in for a target's answer.
//!
//! Let `w_i` be token `i` of a reference (followed by a stop token), `s` the smoothing, and `Q` an
//! interpolated n-gram model of the task's training references in target tokens. Then
//!
//! ```text
//! p_i(t) = 1 - s                              for t = w_i
//! p_i(t) = s Q(t | h) / (1 - Q(w_i | h))      for all others,   h = w_{i-n+1} .. w_{i-1}
//! ```
//!
//! `s` is below one half, so that the text is the greedy answer. `Q` is interpolated by Witten and
//! Bell's rule, which has no parameter to tune. If a context `h` was seen `N(h)` times, followed by
//! `T(h)` different tokens and `c(h t)` times by `t`, then
//!
//! ```text
//! Q(t | h) = (c(h t) + T(h) Q(t | h without its first token)) / (N(h) + T(h))
//! ```
//!
//! down to `Q(t) = (c(t) + T / V) / (N + T)` without any context. A context that was never seen has
//! the distribution of the next shorter one.

use rustc_hash::FxHashMap;

use crate::TraceError;

/// Largest order of the n-gram model. Longer contexts of a few thousand answers are all different.
pub const MOST_ORDER: usize = 5;

/// Tokens that followed a context, with their counts.
#[derive(Debug, Clone, Default)]
struct Followers {
    total: f64,
    counts: Vec<(u32, u32)>,
}

impl Followers {
    /// Number of times that a token followed.
    fn count(&self, token: u32) -> f64 {
        let found = self.counts.binary_search_by_key(&token, |(t, _)| *t);
        found.map_or(0.0, |at| f64::from(self.counts[at].1))
    }
}

/// An interpolated n-gram model over target tokens.
pub struct NgramModel {
    vocab: usize,
    order: usize,
    /// Followers by context, of 0 to `order - 1` tokens; followers are sorted by token.
    contexts: FxHashMap<Vec<u32>, Followers>,
    /// All tokens that were seen, the most frequent first.
    ranked: Vec<u32>,
}

/// Tokens with their probabilities, or with the logarithms of these, in falling order.
pub type Ranked = Vec<(u32, f64)>;

impl NgramModel {
    /// Counts the n-grams of `texts`, up to length `order`, over `vocab` tokens.
    ///
    /// # Errors
    /// [`TraceError::Setting`] for an order outside `1..=`[`MOST_ORDER`].
    pub fn new<'a>(
        texts: impl Iterator<Item = &'a [u32]>,
        order: usize,
        vocab: usize,
    ) -> Result<Self, TraceError> {
        if order == 0 || order > MOST_ORDER {
            return Err(TraceError::Setting {
                key: "order",
                value: order.to_string(),
                expected: "1 to 5",
            });
        }
        let mut counts: FxHashMap<Vec<u32>, FxHashMap<u32, u32>> = FxHashMap::default();
        for text in texts {
            for (end, token) in text.iter().enumerate() {
                for length in 0..order.min(end + 1) {
                    let context = &text[end - length..end];
                    let followers = match counts.get_mut(context) {
                        Some(followers) => followers,
                        None => counts.entry(context.to_vec()).or_default(),
                    };
                    *followers.entry(*token).or_default() += 1;
                }
            }
        }
        let contexts: FxHashMap<Vec<u32>, Followers> = counts
            .into_iter()
            .map(|(context, followers)| {
                let mut counts: Vec<(u32, u32)> = followers.into_iter().collect();
                counts.sort_unstable();
                let total = counts.iter().map(|(_, count)| f64::from(*count)).sum();
                (context, Followers { total, counts })
            })
            .collect();
        let mut ranked = contexts
            .get(&[][..])
            .map_or_else(Vec::new, |all| all.counts.clone());
        ranked.sort_by_key(|(token, count)| (std::cmp::Reverse(*count), *token));
        Ok(Self {
            vocab,
            order,
            contexts,
            ranked: ranked.into_iter().map(|(token, _)| token).collect(),
        })
    }

    /// Followers of the contexts that `history` ends with, from the empty one to the longest known
    /// one, each with its weight; and the weight of the uniform distribution.
    fn levels(&self, history: &[u32]) -> (Vec<(&Followers, f64)>, f64) {
        let longest = history.len().min(self.order - 1);
        let known =
            (0..=longest).map_while(|length| self.contexts.get(&history[history.len() - length..]));
        let mut levels: Vec<(&Followers, f64)> = known.map(|f| (f, 0.0)).collect();
        let mut left = 1.0;
        for (followers, weight) in levels.iter_mut().rev() {
            let kinds = followers.counts.len() as f64;
            *weight = left / (followers.total + kinds);
            left *= kinds / (followers.total + kinds);
        }
        (levels, left)
    }

    /// Probability `Q(t | h)` of one token.
    pub fn probability(&self, history: &[u32], token: u32) -> f64 {
        let (levels, uniform) = self.levels(history);
        let seen = levels.iter().map(|(f, weight)| f.count(token) * weight);
        seen.sum::<f64>() + uniform / self.vocab as f64
    }

    /// The `count` most probable tokens after a history, without `except`, in falling order; of
    /// equal ones the lower id comes first.
    pub fn most_probable(&self, history: &[u32], except: u32, count: usize) -> Ranked {
        let (levels, uniform) = self.levels(history);
        let base = uniform / self.vocab as f64;
        let mut found: FxHashMap<u32, f64> = FxHashMap::default();
        for (followers, weight) in levels.iter().skip(1) {
            for (token, count) in &followers.counts {
                *found.entry(*token).or_default() += f64::from(*count) * weight;
            }
        }
        if let Some((all, weight)) = levels.first() {
            let seen = |token: u32| all.count(token) * weight;
            for (token, mass) in &mut found {
                *mass += seen(*token);
            }
            // Of the tokens that only the unigrams know, the first ones are the most probable.
            let others = self.ranked.iter().filter(|t| !found.contains_key(*t));
            let others: Ranked = others
                .take(count + 1)
                .map(|token| (*token, seen(*token)))
                .collect();
            found.extend(others);
        }
        found.remove(&except);
        let mut law: Ranked = found
            .into_iter()
            .map(|(t, mass)| (t, mass + base))
            .collect();
        let order = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if law.len() > count {
            law.select_nth_unstable_by(count, order);
            law.truncate(count);
        }
        law.sort_unstable_by(order);
        if law.len() < count {
            // Fewer tokens are known than wanted. All others are equally probable.
            let known: rustc_hash::FxHashSet<u32> = law.iter().map(|(t, _)| *t).collect();
            let unseen = (0..self.vocab as u32).filter(|t| !known.contains(t) && *t != except);
            let missing = count - law.len();
            law.extend(unseen.take(missing).map(|t| (t, base)));
        }
        law
    }
}

/// The distribution of reference text.
pub struct TextLaw {
    model: NgramModel,
    smooth: f64,
    top: usize,
}

impl TextLaw {
    /// A distribution over `model`. `smooth` is the probability of all tokens but the text's own;
    /// `top` is K.
    ///
    /// # Errors
    /// [`TraceError::Setting`] for a smoothing outside `[0, 0.5)`; [`TraceError::Top`].
    pub fn new(model: NgramModel, smooth: f64, top: usize) -> Result<Self, TraceError> {
        if !(0.0..0.5).contains(&smooth) {
            return Err(TraceError::Setting {
                key: "smooth",
                value: smooth.to_string(),
                expected: "at least 0 and below 0.5: more than half belongs to the token of the text",
            });
        }
        if top == 0 || top > model.vocab {
            let vocab = model.vocab;
            return Err(TraceError::Top { top, vocab });
        }
        Ok(Self { model, smooth, top })
    }

    /// `(t, ln p(t))` of the K most probable tokens at a position; the text's `token` comes first.
    pub fn at(&self, history: &[u32], token: u32) -> Ranked {
        let mut law = vec![(token, (1.0 - self.smooth).ln())];
        let left = 1.0 - self.model.probability(history, token);
        let share = (self.smooth / left.max(f64::MIN_POSITIVE)).ln();
        let others = self.model.most_probable(history, token, self.top - 1);
        law.extend(others.into_iter().map(|(t, q)| (t, q.ln() + share)));
        law
    }
}
