//! The recorded distribution of the target at a position, and its expansion to a row of logits.

use std::cmp::Ordering;

use half::f16;

use crate::error::RowFault;
use crate::{TraceInfo, Values};

/// The target's distributions at all positions of a path.
///
/// # Expansion to rows
/// A row of [`Full`](Self::Full) is the logits themselves, bit for bit.
///
/// For [`Top`](Self::Top) let `S` be the K recorded tokens, `l_i` their log-probabilities in f16,
/// and `r` the mass of the other `V - K` tokens. The row over the whole vocabulary is
///
/// ```text
/// row_i = l_i                  for i in S, lowered where rounding made it equal to the answer's
/// row_i = ln(r / (V - K))      for all others, at most the smallest l
/// ```
///
/// This is the distribution of largest entropy among those with these K values and this rest: it
/// assumes nothing about the other tokens but their sum. It always exists, because each of the
/// others was at most as probable as the K-th token, and so is their mean. Losses read this row
/// like a model's; the crate's documentation gives the resulting value of each loss.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// The K most probable tokens of each position.
    Top {
        /// V, the vocabulary size.
        vocab: usize,
        /// K, the number of tokens per position.
        top: usize,
        /// Tokens, `[positions, K]`, the answer's token first, then by falling probability.
        ids: Vec<u32>,
        /// Log-probabilities, `[positions, K]`, in nats, at most 0.
        log_probs: Vec<f16>,
        /// Mass of all other tokens, `[positions]`, in `[0, 1]`.
        rest: Vec<f32>,
    },
    /// The whole vocabulary.
    Full {
        /// V, the vocabulary size.
        vocab: usize,
        /// Logits, `[positions, V]`.
        logits: Vec<f32>,
    },
}

/// Least mass of the tokens that are not recorded. It keeps their logarithm finite.
const LEAST: f64 = 1e-30;

impl Law {
    /// No positions yet, in the form that `info` asks for.
    pub fn new(info: &TraceInfo) -> Self {
        let vocab = info.vocab_size;
        match info.values {
            Values::Logits => Self::Full {
                vocab,
                logits: Vec::new(),
            },
            Values::LogProbs => Self::Top {
                vocab,
                top: info.top,
                ids: Vec::new(),
                log_probs: Vec::new(),
                rest: Vec::new(),
            },
        }
    }

    /// The recorded tokens of a position with their values. In `Top` the answer's token comes
    /// first; in `Full` tokens are in the order of their ids.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn entries(&self, position: usize) -> Vec<(u32, f32)> {
        match self {
            Self::Full { vocab, logits } => {
                let row = &logits[position * vocab..][..*vocab];
                (0..).zip(row.iter().copied()).collect()
            }
            Self::Top {
                top,
                ids,
                log_probs,
                ..
            } => {
                let values = log_probs[position * top..][..*top].iter();
                let ids = ids[position * top..][..*top].iter().copied();
                ids.zip(values.map(|x| x.to_f32())).collect()
            }
        }
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        match self {
            Self::Top { rest, .. } => rest.len(),
            Self::Full { vocab, logits } => logits.len() / (*vocab).max(1),
        }
    }

    /// True if there is no position.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a position from a model's row of logits, `[V]`, finite or `-inf`.
    pub fn push_logits(&mut self, row: &[f32]) {
        match self {
            Self::Full { logits, .. } => logits.extend_from_slice(row),
            Self::Top { top, .. } => {
                let shift = log_sum_exp(row);
                let entries = largest(row, *top)
                    .into_iter()
                    .map(|id| (id, f64::from(row[id as usize]) - shift))
                    .collect::<Vec<_>>();
                self.push_top(&entries);
            }
        }
    }

    /// Adds a position from `(token, ln p)` of its K most probable tokens, the answer's first. Does
    /// nothing if the whole vocabulary is recorded.
    pub fn push_top(&mut self, entries: &[(u32, f64)]) {
        if let Self::Top {
            ids,
            log_probs,
            rest,
            ..
        } = self
        {
            let mass: f64 = entries.iter().map(|(_, log_p)| log_p.exp()).sum();
            ids.extend(entries.iter().map(|(id, _)| *id));
            log_probs.extend(entries.iter().map(|(_, x)| f16::from_f64(x.min(0.0))));
            rest.push((1.0 - mass).clamp(0.0, 1.0) as f32);
        }
    }

    /// Mass of the tokens that are not recorded at a position; 0 if all are.
    pub fn rest(&self, position: usize) -> f32 {
        match self {
            Self::Top { rest, .. } => rest.get(position).copied().unwrap_or(0.0),
            Self::Full { .. } => 0.0,
        }
    }

    /// Overwrites `row`, `[V]`, with the row of a position.
    ///
    /// # Panics
    /// If there is no such position, or if `row` has another length.
    pub fn write_row(&self, position: usize, row: &mut [f32]) {
        match self {
            Self::Full { vocab, logits } => {
                row.copy_from_slice(&logits[position * vocab..][..*vocab]);
            }
            Self::Top {
                vocab,
                top,
                ids,
                log_probs,
                rest,
            } => {
                assert_eq!(row.len(), *vocab, "a row over another vocabulary");
                let ids = &ids[position * top..][..*top];
                let values = &log_probs[position * top..][..*top];
                // Rounding to f16 may make the first two equal, but the answer's token must stay
                // ahead.
                let best = values[0].to_f32();
                let below = best.next_down();
                let least = values
                    .iter()
                    .map(|x| x.to_f32())
                    .filter(|x| x.is_finite())
                    .fold(below, f32::min);
                let others = vocab.saturating_sub(*top).max(1) as f64;
                let filler = (f64::from(rest[position]).max(LEAST) / others).ln() as f32;
                row.fill(filler.min(least));
                for (id, value) in ids.iter().zip(values).skip(1) {
                    row[*id as usize] = value.to_f32().min(below);
                }
                row[ids[0] as usize] = best;
            }
        }
    }

    /// All tokens that are recorded by id.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        let named = match self {
            Self::Top { ids, .. } => &ids[..],
            Self::Full { .. } => &[],
        };
        named.iter().copied()
    }

    /// Checks that every position holds a valid distribution whose most probable token is the
    /// path's.
    pub(crate) fn check(&self, path: impl Iterator<Item = u32>) -> Result<(), RowFault> {
        let mut seen = rustc_hash::FxHashSet::default();
        for (position, answer) in path.enumerate() {
            let fault = |what| Err(RowFault::Law { position, what });
            let best = match self {
                Self::Top {
                    top,
                    ids,
                    log_probs,
                    rest,
                    ..
                } => {
                    let values = &log_probs[position * top..][..*top];
                    if values.iter().any(|x| x.is_nan() || *x > f16::ZERO) {
                        return fault("a log-probability is not a number, or above 0");
                    }
                    if !values.is_sorted_by(|a, b| a >= b) {
                        return fault("log-probabilities do not fall");
                    }
                    if !(0.0..=1.0).contains(&rest[position]) {
                        return fault("the mass of the rest is outside 0..=1");
                    }
                    let ids = &ids[position * top..][..*top];
                    seen.clear();
                    if !ids.iter().all(|id| seen.insert(*id)) {
                        return fault("a token is named twice");
                    }
                    ids.first().copied()
                }
                Self::Full { vocab, logits } => {
                    let row = &logits[position * vocab..][..*vocab];
                    if row.iter().any(|x| x.is_nan() || *x == f32::INFINITY) {
                        return fault("a logit is not a number, or infinite");
                    }
                    largest(row, 1).first().copied()
                }
            };
            if let Some(best) = best.filter(|best| *best != answer) {
                return Err(RowFault::NotGreedy {
                    position,
                    answer,
                    best,
                });
            }
        }
        Ok(())
    }
}

/// `ln sum_i e^(x_i)` of logits, which are finite or `-inf`.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
    f64::from(most) + sum.ln()
}

/// Columns of the `count` largest values, in falling order; of equal values the lower column comes
/// first.
pub fn largest(row: &[f32], count: usize) -> Vec<u32> {
    let order = |a: &u32, b: &u32| {
        let (x, y) = (row[*a as usize], row[*b as usize]);
        y.partial_cmp(&x).unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    if count == 1 {
        let mut best = 0;
        for (id, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = id;
            }
        }
        return vec![best as u32];
    }
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids
}
