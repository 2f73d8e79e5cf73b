//! The acceptance head f(e) of Eq. 5.

mod file;
mod train;

pub use train::{Example, HeadConfig, HeadReport, HeadTrainer};

use spec_decode::{Purpose, StreamName};

/// Logit of an untrained head. It predicts acceptance, so that drafts are long and the head sees
/// them.
const INITIAL_LOGIT: f32 = 2.0;

/// P(accept) = sigmoid(f(e)): a linear function of the features, or one hidden layer of SiLU units.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    features: usize,
    hidden: usize,
    /// Weights: `[features][hidden]`, `[hidden]`, `[hidden]`, `[1]`; without a hidden layer
    /// `[features]`, `[1]`.
    weights: Vec<f32>,
}

/// Buffers of a forward.
#[derive(Clone, Debug, Default)]
pub struct HeadScratch {
    before: Vec<f32>,
    after: Vec<f32>,
}

impl Head {
    /// An untrained head over `features` inputs with `hidden` units (0: linear).
    pub fn new(features: usize, hidden: usize, seed: u64) -> Self {
        let mut weights = vec![0.0; Self::parameters(features, hidden)];
        let mut dice = StreamName::new(seed, u64::MAX).dice(Purpose::Head);
        let bound = (3.0 / features.max(1) as f64).sqrt();
        for weight in &mut weights[..features * hidden] {
            *weight = ((2.0 * dice.uniform() - 1.0) * bound) as f32;
        }
        // The output layer is zero, so that nothing is predicted from features before training.
        if let Some(bias) = weights.last_mut() {
            *bias = INITIAL_LOGIT;
        }
        Self {
            features,
            hidden,
            weights,
        }
    }

    fn parameters(features: usize, hidden: usize) -> usize {
        match hidden {
            0 => features + 1,
            hidden => features * hidden + 2 * hidden + 1,
        }
    }

    /// Number of inputs.
    pub fn features(&self) -> usize {
        self.features
    }

    /// All weights in one vector.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// f(e). Features beyond [`features`](Self::features) are ignored, missing ones are 0.
    pub fn logit(&self, features: &[f32], scratch: &mut HeadScratch) -> f32 {
        let (inputs, hidden) = (self.features, self.hidden);
        if hidden == 0 {
            let products = self.weights[..inputs].iter().zip(features);
            return products.map(|(w, x)| w * x).sum::<f32>() + self.weights[inputs];
        }
        let (first, rest) = self.weights.split_at(inputs * hidden);
        scratch.before.clear();
        scratch.before.extend_from_slice(&rest[..hidden]);
        for (row, &x) in first.chunks_exact(hidden).zip(features) {
            for (sum, w) in scratch.before.iter_mut().zip(row) {
                *sum += x * w;
            }
        }
        scratch.after.clear();
        scratch
            .after
            .extend(scratch.before.iter().map(|&x| silu(x)));
        let products = scratch.after.iter().zip(&rest[hidden..2 * hidden]);
        products.map(|(h, w)| h * w).sum::<f32>() + rest[2 * hidden]
    }

    /// P(accept), in `[0, 1]`.
    pub fn probability(&self, features: &[f32], scratch: &mut HeadScratch) -> f64 {
        sigmoid(f64::from(self.logit(features, scratch)))
    }

    /// Adds `slope` times the gradient of f(e), for the features of the last
    /// [`logit`](Self::logit), to `gradient`.
    fn backward(&self, features: &[f32], scratch: &HeadScratch, slope: f32, gradient: &mut [f32]) {
        let (inputs, hidden) = (self.features, self.hidden);
        if hidden == 0 {
            for (g, x) in gradient[..inputs].iter_mut().zip(features) {
                *g += slope * x;
            }
            gradient[inputs] += slope;
            return;
        }
        let output = &self.weights[inputs * hidden + hidden..][..hidden];
        let (first, rest) = gradient.split_at_mut(inputs * hidden);
        for (g, h) in rest[hidden..].iter_mut().zip(&scratch.after) {
            *g += slope * h;
        }
        rest[2 * hidden] += slope;
        let inner: Vec<f32> = scratch
            .before
            .iter()
            .zip(output)
            .map(|(&x, w)| slope * w * silu_slope(x))
            .collect();
        for (g, d) in rest[..hidden].iter_mut().zip(&inner) {
            *g += d;
        }
        for (row, &x) in first.chunks_exact_mut(hidden).zip(features) {
            for (g, d) in row.iter_mut().zip(&inner) {
                *g += x * d;
            }
        }
    }
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

fn silu_slope(x: f32) -> f32 {
    let s = 1.0 / (1.0 + (-x).exp());
    s * (1.0 + x * (1.0 - s))
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_equal_finite_differences() {
        for hidden in [0, 5] {
            let mut head = Head::new(7, hidden, 3);
            // Moves the head away from the zero output layer.
            for (i, w) in head.weights.iter_mut().enumerate() {
                *w += 0.1 * ((i * 37 % 11) as f32 - 5.0);
            }
            let features: Vec<f32> = (0..7).map(|i| (i as f32 * 1.7).sin()).collect();
            let mut scratch = HeadScratch::default();
            head.logit(&features, &mut scratch);
            let mut gradient = vec![0.0; head.weights.len()];
            head.backward(&features, &scratch, 1.5, &mut gradient);
            for (i, &found) in gradient.iter().enumerate() {
                let step = 1e-2;
                let at = |offset: f32| {
                    let mut moved = head.clone();
                    moved.weights[i] += offset;
                    1.5 * f64::from(moved.logit(&features, &mut HeadScratch::default()))
                };
                let numeric = (at(step) - at(-step)) / (2.0 * f64::from(step));
                let error = (numeric - f64::from(found)).abs();
                assert!(
                    error < 2e-3 * (1.0 + numeric.abs()),
                    "{hidden} {i}: {error}"
                );
            }
        }
    }

    #[test]
    fn an_untrained_head_is_hopeful_and_seeded() {
        let head = Head::new(4, 3, 1);
        let p = head.probability(&[1.0, -2.0, 0.5, 9.0], &mut HeadScratch::default());
        assert!((p - sigmoid(2.0)).abs() < 1e-12);
        assert_eq!(head, Head::new(4, 3, 1));
        assert_ne!(head, Head::new(4, 3, 2));
    }
}
