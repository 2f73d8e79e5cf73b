//! From a logits row to a token: argmax at temperature 0, a softmax law above.

use crate::{Chance, LawError, SpecError};

/// How tokens are chosen from logits; drafter and target use the same rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    temperature: f64,
}

impl Sampling {
    /// Temperature 0: argmax, the lowest id wins ties, no randomness.
    pub const GREEDY: Self = Self { temperature: 0.0 };

    /// Sampling at `temperature` (dimensionless; 0 is greedy).
    ///
    /// # Errors
    /// [`SpecError::Temperature`] where it is negative or not finite.
    pub fn new(temperature: f64) -> Result<Self, SpecError> {
        if temperature.is_finite() && temperature >= 0.0 {
            Ok(Self { temperature })
        } else {
            Err(SpecError::Temperature(temperature))
        }
    }

    /// The temperature.
    pub fn temperature(self) -> f64 {
        self.temperature
    }

    /// True at temperature 0, where decoding takes its own path without any randomness.
    pub fn is_greedy(self) -> bool {
        self.temperature == 0.0
    }

    /// Softmax of a whole row at this temperature, in f64, into `law`.
    ///
    /// At temperature 0 this is the one-hot law of the argmax.
    ///
    /// # Errors
    /// [`LawError::Logit`] for NaN or `+inf`, [`LawError::NoMass`] where every logit is `-inf`.
    pub fn law(self, logits: &[f32], law: &mut Vec<f64>) -> Result<(), LawError> {
        let best = argmax(logits)?;
        law.clear();
        if self.is_greedy() {
            law.resize(logits.len(), 0.0);
            law[best] = 1.0;
            return Ok(());
        }
        let scale = Scale::new(logits[best], self.temperature);
        law.extend(logits.iter().map(|&logit| scale.weight(logit)));
        let total: f64 = law.iter().sum();
        law.iter_mut().for_each(|mass| *mass /= total);
        Ok(())
    }

    /// Draws one token from a row: its column.
    ///
    /// # Errors
    /// As [`law`](Self::law).
    pub fn draw(self, logits: &[f32], dice: &mut dyn Chance) -> Result<usize, LawError> {
        if self.is_greedy() {
            return argmax(logits);
        }
        let mut law = Vec::new();
        self.law(logits, &mut law)?;
        dice.pick(&law)
    }

    /// Softmax over the columns `support` only, renormalised: `(column, probability)` is written
    /// to `law[column]`, every other entry of `law` becomes 0. `support` must not repeat a column.
    ///
    /// # Errors
    /// As [`law`](Self::law), for the columns of the support, and
    /// [`LawError::OutOfVocabulary`] where a column does not exist.
    pub fn masked_law(
        self,
        logits: &[f32],
        support: impl IntoIterator<Item = u32> + Clone,
        law: &mut Vec<f64>,
    ) -> Result<(), LawError> {
        let best = masked_argmax(logits, support.clone())?;
        law.clear();
        law.resize(logits.len(), 0.0);
        if self.is_greedy() {
            law[best] = 1.0;
            return Ok(());
        }
        let scale = Scale::new(logits[best], self.temperature);
        let mut total = 0.0;
        for column in support.clone() {
            let weight = scale.weight(logits[column as usize]);
            law[column as usize] = weight;
            total += weight;
        }
        for column in support {
            law[column as usize] /= total;
        }
        Ok(())
    }
}

/// Exponents below this give exactly 0 in f64, whose smallest number is e^-745.13. Saying so here
/// keeps libm off its slow path, which most of a vocabulary takes at low temperatures.
const UNDERFLOW: f64 = -745.2;

/// Shifts by the largest logit before the exponential, so that nothing overflows.
struct Scale {
    largest: f64,
    temperature: f64,
}

impl Scale {
    fn new(largest: f32, temperature: f64) -> Self {
        Self {
            largest: f64::from(largest),
            temperature,
        }
    }

    fn weight(&self, logit: f32) -> f64 {
        let exponent = (f64::from(logit) - self.largest) / self.temperature;
        if exponent < UNDERFLOW {
            return 0.0;
        }
        exponent.exp()
    }
}

/// Column of the largest logit, the lowest one of several.
///
/// # Errors
/// [`LawError::Logit`] for NaN or `+inf` anywhere, [`LawError::NoMass`] where all are `-inf`.
pub fn argmax(logits: &[f32]) -> Result<usize, LawError> {
    best_of(logits.iter().copied().enumerate().map(Ok))
}

/// Column of the largest logit among `support`, the lowest one of several.
///
/// # Errors
/// As [`argmax`], and [`LawError::OutOfVocabulary`] where a column does not exist.
pub fn masked_argmax(
    logits: &[f32],
    support: impl IntoIterator<Item = u32>,
) -> Result<usize, LawError> {
    let look_up = |token: u32| match logits.get(token as usize) {
        Some(&value) => Ok((token as usize, value)),
        None => Err(LawError::OutOfVocabulary {
            token,
            vocab: logits.len(),
        }),
    };
    best_of(support.into_iter().map(look_up))
}

fn best_of(
    values: impl Iterator<Item = Result<(usize, f32), LawError>>,
) -> Result<usize, LawError> {
    let mut best: Option<(usize, f32)> = None;
    let mut candidates = 0;
    for entry in values {
        let (token, value) = entry?;
        candidates += 1;
        if value.is_nan() || value == f32::INFINITY {
            return Err(LawError::Logit { token, value });
        }
        let better = best
            .is_none_or(|(held, largest)| value > largest || (value == largest && token < held));
        if better {
            best = Some((token, value));
        }
    }
    best.filter(|&(_, value)| value > f32::NEG_INFINITY)
        .map(|(token, _)| token)
        .ok_or(LawError::NoMass { candidates })
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
    fn weights_that_are_skipped_are_zero_anyway() {
        assert_eq!(UNDERFLOW.exp(), 0.0);
        assert!((UNDERFLOW + 0.2).exp() > 0.0);
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
        assert!(Sampling::new(-1.0).is_err() && Sampling::new(f64::NAN).is_err());
    }
}
