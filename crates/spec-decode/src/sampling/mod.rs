//! Sampling: from a row of logits to a token, by argmax at temperature 0 and from a processed
//! softmax distribution above.

mod softmax;
mod truncate;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vocab_align::{TargetId, TokenId};

use crate::buffer::Row;
use crate::model::Rows;
use crate::{Chance, LawError};

pub use softmax::{argmax, largest_possible, moments};
pub(crate) use softmax::{argmax_without, sum};
use softmax::{scale, weigh};
use truncate::truncate;

/// Options that shape the distribution from which tokens are drawn, in the order in which they
/// apply.
///
/// The *processed* distribution of a model is: logits, repetition penalty, temperature, top-k,
/// top-p, min-p, renormalised. Exact modes reproduce the target's processed distribution. The
/// drafter's is processed in the same way (over its masked vocabulary and its own context), which
/// keeps it close to the target's; exactness does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingOptions {
    /// Divisor of the logits: 0 is greedy, else `1e-6..=1e6`.
    pub temperature: f64,
    /// Number of most probable tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// Share of the mass left by top-k, `0 < top_p <= 1`. The most probable tokens are kept until
    /// they reach it, including the one that does; 1 keeps all.
    pub top_p: f64,
    /// Least probability of a kept token relative to the most probable one: `0..=1`; 0 keeps all.
    pub min_p: f64,
    /// Factor that divides positive and multiplies negative logits of tokens in prompt or response:
    /// `1e-3..=1e3`; 1 changes nothing. It also changes the choices of greedy decoding.
    pub repetition_penalty: f64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Sampling::GREEDY.options
    }
}

impl SamplingOptions {
    fn truncates(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// A sampling option is outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{option} = {value} is outside {range}")]
pub struct SamplingError {
    /// Name of the field of [`SamplingOptions`], which is also the key in configurations.
    pub option: &'static str,
    /// The value given.
    pub value: f64,
    /// The allowed range.
    pub range: &'static str,
}

/// Rule for drawing tokens from logits. Drafter and target use the same rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    options: SamplingOptions,
}

impl Sampling {
    /// Temperature 0: argmax, the lowest id among equal ones, no randomness.
    pub const GREEDY: Self = Self {
        options: SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
        },
    };

    /// Sampling at `temperature` (dimensionless; 0 is greedy) from the whole vocabulary.
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options).
    pub fn new(temperature: f64) -> Result<Self, SamplingError> {
        Self::with_options(SamplingOptions {
            temperature,
            ..SamplingOptions::default()
        })
    }

    /// Sampling from a processed distribution.
    ///
    /// # Errors
    /// The first option outside its range; NaN is outside every range.
    pub fn with_options(options: SamplingOptions) -> Result<Self, SamplingError> {
        let t = options.temperature;
        let checks = [
            (
                "temperature",
                t,
                t == 0.0 || (1e-6..=1e6).contains(&t),
                "0 (greedy) or 1e-6..=1e6",
            ),
            (
                "top_p",
                options.top_p,
                options.top_p > 0.0 && options.top_p <= 1.0,
                "0 < top_p <= 1",
            ),
            (
                "min_p",
                options.min_p,
                (0.0..=1.0).contains(&options.min_p),
                "0..=1",
            ),
            (
                "repetition_penalty",
                options.repetition_penalty,
                (1e-3..=1e3).contains(&options.repetition_penalty),
                "1e-3..=1e3",
            ),
        ];
        match checks.into_iter().find(|&(_, _, fits, _)| !fits) {
            Some((option, value, _, range)) => Err(SamplingError {
                option,
                value,
                range,
            }),
            None => Ok(Self { options }),
        }
    }

    /// The options.
    pub fn options(self) -> SamplingOptions {
        self.options
    }

    /// The same rule among the `top` most probable tokens only, or fewer; 0 changes nothing.
    #[must_use]
    pub fn among_top(mut self, top: usize) -> Self {
        let kept = &mut self.options.top_k;
        *kept = match (*kept, top) {
            (kept, 0) => kept,
            (0, top) => top,
            (kept, top) => kept.min(top),
        };
        self
    }

    /// The rows with the repetition penalty of their own prefixes, `[positions, vocab]`. `seen` are
    /// the distinct tokens before the first row, and `proposals` follow them.
    pub(crate) fn penalised(
        self,
        mut seen: BTreeSet<TargetId>,
        mut proposals: impl Iterator<Item = TargetId>,
        rows: Rows<'_>,
    ) -> Vec<f32> {
        let mut penalised = Vec::with_capacity(rows.positions() * rows.vocab());
        for position in 0..rows.positions() {
            let start = penalised.len();
            penalised.extend_from_slice(rows.row(position));
            self.penalise(&mut penalised[start..], &seen);
            seen.extend(proposals.next());
        }
        penalised
    }

    /// True at temperature 0, where decoding uses no randomness.
    pub fn is_greedy(self) -> bool {
        self.options.temperature == 0.0
    }

    /// True if a distribution depends on earlier tokens other than through the model, by a
    /// repetition penalty.
    pub fn penalises(self) -> bool {
        self.options.repetition_penalty != 1.0
    }

    /// Applies the repetition penalty to a row of logits. `seen` are the distinct tokens of prompt
    /// and response; ids beyond the row are ignored.
    pub fn penalise<I: TokenId>(self, row: &mut [f32], seen: &BTreeSet<I>) {
        if !self.penalises() {
            return;
        }
        let penalty = self.options.repetition_penalty;
        for id in seen {
            if let Some(logit) = row.get_mut(id.index()) {
                let raw = f64::from(*logit);
                let penalised = if raw > 0.0 {
                    raw / penalty
                } else {
                    raw * penalty
                };
                *logit = penalised as f32;
            }
        }
    }

    /// Writes the processed distribution of an already penalised row to `law`, in f64.
    ///
    /// At temperature 0 it is one-hot at the argmax.
    ///
    /// # Errors
    /// [`LawError::Logit`] for NaN or `+inf`, [`LawError::NoMass`] if every logit is `-inf`.
    pub fn law(self, logits: &[f32], law: &mut Vec<f64>) -> Result<(), LawError> {
        let best = argmax(logits)?;
        self.law_around(logits, best, law);
        Ok(())
    }

    /// The processed distribution of logits whose largest is in column `best`.
    fn law_around(self, logits: &[f32], best: usize, law: &mut Vec<f64>) {
        if self.is_greedy() {
            law.clear();
            law.resize(logits.len(), 0.0);
            law[best] = 1.0;
            return;
        }
        // Every entry is overwritten: old ones may stay.
        law.resize(logits.len(), 0.0);
        let mut total = weigh(logits, logits[best], self.options.temperature, law);
        if truncate(law, &self.options) {
            total = sum(law);
        }
        // At low temperatures one token often has all of the mass.
        if total != 1.0 {
            scale(law, 1.0 / total);
        }
    }

    /// Draws one token from an already penalised row. Returns its column.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    pub fn draw(self, logits: &[f32], dice: &mut dyn Chance) -> Result<usize, LawError> {
        if self.is_greedy() {
            return argmax(logits);
        }
        let mut law = Row::of(logits.len());
        self.law(logits, &mut law)?;
        dice.pick(&law)
    }

    /// Writes the processed distribution over the columns `support` only, renormalised, to `law`;
    /// every other entry becomes 0. `support` must not repeat a column.
    ///
    /// # Errors
    /// As [`law`](Self::law), for the columns of the support, and [`LawError::OutOfVocabulary`] if
    /// a column does not exist.
    pub fn masked_law(
        self,
        logits: &[f32],
        support: impl IntoIterator<Item = u32> + Clone,
        law: &mut Vec<f64>,
    ) -> Result<(), LawError> {
        let row = masked_row(logits, support.clone())?;
        let best = masked_best(&row, support)?;
        self.law_around(&row, best, law);
        Ok(())
    }
}

/// `logits` in the columns of `support`, `-inf` elsewhere.
fn masked_row(
    logits: &[f32],
    support: impl IntoIterator<Item = u32>,
) -> Result<Row<f32>, LawError> {
    let mut row = Row::of(logits.len());
    row.fill(f32::NEG_INFINITY);
    for token in support {
        let column = token as usize;
        let (Some(to), Some(from)) = (row.get_mut(column), logits.get(column)) else {
            return Err(LawError::OutOfVocabulary {
                token,
                vocab: logits.len(),
            });
        };
        *to = *from;
    }
    Ok(row)
}

/// Column of the largest entry of a masked row.
fn masked_best(row: &[f32], support: impl IntoIterator<Item = u32>) -> Result<usize, LawError> {
    argmax(row).map_err(|error| match error {
        LawError::NoMass { .. } => LawError::NoMass {
            candidates: support.into_iter().count(),
        },
        other => other,
    })
}

/// Column of the largest logit among `support`; the lowest of equal ones.
pub(crate) fn masked_argmax(
    logits: &[f32],
    support: impl IntoIterator<Item = u32> + Clone,
) -> Result<usize, LawError> {
    let row = masked_row(logits, support.clone())?;
    masked_best(&row, support)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lowest_id() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), Ok(1));
        assert_eq!(masked_argmax(&[1.0, 3.0, 3.0, 0.0], [3, 2, 1]), Ok(1));
    }

    #[test]
    fn softmax_by_hand() {
        let mut law = Vec::new();
        let sampling = Sampling::new(0.5).unwrap();
        // (ln 2) / 0.5 = ln 4, so the weights are 4 : 1 : 0.
        sampling
            .law(&[std::f32::consts::LN_2, 0.0, f32::NEG_INFINITY], &mut law)
            .unwrap();
        assert!((law[0] - 0.8).abs() < 1e-7 && (law[1] - 0.2).abs() < 1e-7);
        assert_eq!(law[2], 0.0);
    }

    #[test]
    fn huge_logits_do_not_overflow() {
        let mut law = Vec::new();
        let sampling = Sampling::new(0.01).unwrap();
        sampling.law(&[3e38, -3e38, 3e38], &mut law).unwrap();
        assert_eq!(law, [0.5, 0.0, 0.5]);
    }

    #[test]
    fn masked_law_is_the_renormalised_softmax() {
        let logits = [0.3, -1.0, 2.0, 0.7];
        let sampling = Sampling::new(0.8).unwrap();
        let (mut full, mut masked) = (Vec::new(), Vec::new());
        sampling.law(&logits, &mut full).unwrap();
        sampling.masked_law(&logits, [3, 0], &mut masked).unwrap();
        let kept = full[0] + full[3];
        for column in 0..4 {
            let expected = if column % 3 == 0 {
                full[column] / kept
            } else {
                0.0
            };
            assert!((masked[column] - expected).abs() < 1e-15);
        }
    }

    #[test]
    fn impossible_rows_are_errors() {
        let mut law = Vec::new();
        let sampling = Sampling::new(1.0).unwrap();
        assert!(matches!(
            sampling.law(&[0.0, f32::NAN], &mut law),
            Err(LawError::Logit { token: 1, .. })
        ));
        assert!(matches!(
            argmax(&[f32::INFINITY]),
            Err(LawError::Logit { token: 0, .. })
        ));
        assert_eq!(
            argmax(&[f32::NEG_INFINITY; 3]),
            Err(LawError::NoMass { candidates: 3 })
        );
        assert_eq!(argmax(&[]), Err(LawError::NoMass { candidates: 0 }));
        assert!(masked_argmax(&[0.0], [1]).is_err());
    }

    fn processed(weights: &[f64], options: SamplingOptions) -> Vec<f64> {
        let logits: Vec<f32> = weights.iter().map(|w| w.ln() as f32).collect();
        let temperature = 1.0;
        let options = SamplingOptions {
            temperature,
            ..options
        };
        let mut law = Vec::new();
        let sampling = Sampling::with_options(options).unwrap();
        sampling.law(&logits, &mut law).unwrap();
        law.iter().map(|p| (p * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn truncation_by_hand() {
        let weights = [1.0, 4.0, 2.0, 2.0, 1.0];
        let with = |change: &dyn Fn(&mut SamplingOptions)| {
            let mut options = SamplingOptions::default();
            change(&mut options);
            processed(&weights, options)
        };
        // Of the two equal tokens the lower id is kept.
        assert_eq!(with(&|o| o.top_k = 2), [0.0, 0.666667, 0.333333, 0.0, 0.0]);
        // 0.4 + 0.2 does not reach 0.61, the next token does.
        assert_eq!(with(&|o| o.top_p = 0.61), [0.0, 0.5, 0.25, 0.25, 0.0]);
        assert_eq!(with(&|o| o.top_p = 0.01), [0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(with(&|o| o.min_p = 0.4), [0.0, 0.5, 0.25, 0.25, 0.0]);
        // Top-p counts what top-k left: 4 of 6 suffice for a share of 0.6.
        let both = with(&|o| (o.top_k, o.top_p) = (2, 0.6));
        assert_eq!(both, [0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(with(&|o| o.top_k = 99), with(&|_| ()));
    }

    #[test]
    fn truncation_of_a_long_row_is_the_sorted_prefix() {
        let mut state = 1u64;
        let weights: Vec<f64> = (0..5000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // Few distinct values, so that every cut has ties.
                ((state >> 60) + 1) as f64
            })
            .collect();
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        for top_k in [0, 1, 63, 64, 65, 700] {
            for top_p in [1.0, 0.9, 0.5, 0.01] {
                let options = SamplingOptions {
                    top_k,
                    top_p,
                    ..SamplingOptions::default()
                };
                let left = if top_k == 0 {
                    &order[..]
                } else {
                    &order[..top_k]
                };
                let total: f64 = left.iter().map(|&id| weights[id]).sum();
                let mut held = 0.0;
                let mut expected: Vec<usize> = Vec::new();
                for &id in left {
                    if held >= top_p * total {
                        break;
                    }
                    held += weights[id];
                    expected.push(id);
                }
                expected.sort_unstable();
                let mut law = weights.clone();
                truncate(&mut law, &options);
                let kept: Vec<usize> = (0..law.len()).filter(|&id| law[id] > 0.0).collect();
                assert_eq!(kept, expected, "top_k {top_k}, top_p {top_p}");
            }
        }
    }

    #[test]
    fn repetition_pushes_both_signs_down() {
        let options = SamplingOptions {
            repetition_penalty: 2.0,
            ..SamplingOptions::default()
        };
        let sampling = Sampling::with_options(options).unwrap();
        let seen = BTreeSet::from([0, 1, 3, 9].map(vocab_align::TargetId));
        let mut row = [1.0, -1.0, 3.0, f32::NEG_INFINITY];
        sampling.penalise(&mut row, &seen);
        assert_eq!(row, [0.5, -2.0, 3.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn options_outside_their_range_are_named() {
        let off = SamplingOptions::default();
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            for (option, options) in [
                (
                    "temperature",
                    SamplingOptions {
                        temperature: bad,
                        ..off
                    },
                ),
                ("top_p", SamplingOptions { top_p: bad, ..off }),
                ("min_p", SamplingOptions { min_p: bad, ..off }),
                (
                    "repetition_penalty",
                    SamplingOptions {
                        repetition_penalty: bad,
                        ..off
                    },
                ),
            ] {
                let error = Sampling::with_options(options).unwrap_err();
                assert_eq!(error.option, option);
                assert!(error.to_string().contains(option), "{error}");
            }
        }
        let zero = SamplingOptions { top_p: 0.0, ..off };
        assert!(Sampling::with_options(zero).is_err());
    }
}
