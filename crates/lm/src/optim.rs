//! AdamW in one fused pass on the host.
//!
//! Optimisers on tensors read every parameter about ten times through temporary tensors, which on a
//! CPU costs as much as a forward. Here a step reads gradient, moments and weight once. The state
//! consists of plain vectors, so that training resumes exactly from a file.

use rayon::prelude::*;

use crate::LmError;

/// Hyper-parameters of [`AdamW`]; the defaults are the paper's (Table 7: betas 0.9 and 0.999).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the first moment, in `[0, 1)`.
    pub beta1: f64,
    /// Decay of the second moment, in `[0, 1)`.
    pub beta2: f64,
    /// Number added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay per unit of learning rate.
    pub weight_decay: f64,
    /// Largest global Euclidean norm of the gradients, if there is one. Larger gradients are scaled
    /// down to it.
    pub max_grad_norm: Option<f64>,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: None,
        }
    }
}

/// First and second moments of one vector of weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Vec<f32>,
    /// Running mean of the squared gradient.
    pub second: Vec<f32>,
}

/// Adam with decoupled weight decay over the weights of one model, in one vector.
///
/// ```
/// use lm::{AdamW, AdamWConfig};
///
/// let mut optimizer = AdamW::new(AdamWConfig::default());
/// let mut weights = [1.0, -2.0];
/// let norm = optimizer.step_flat(&mut weights, &[3.0, -4.0], 0.1)?;
/// assert_eq!(norm, 5.0);
/// assert!(weights[0] < 1.0 && weights[1] > -2.0);
/// # Ok::<(), lm::LmError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    steps: u64,
    moments: Option<Moments>,
}

impl AdamW {
    /// An optimiser without history.
    pub fn new(config: AdamWConfig) -> Self {
        Self::resume(config, 0, None)
    }

    /// An optimiser that continues from a saved state.
    pub fn resume(config: AdamWConfig, steps: u64, moments: Option<Moments>) -> Self {
        Self {
            config,
            steps,
            moments,
        }
    }

    /// Its hyper-parameters.
    pub fn config(&self) -> AdamWConfig {
        self.config
    }

    /// Number of steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The moments; `None` before the first step.
    pub fn moments(&self) -> Option<&Moments> {
        self.moments.as_ref()
    }

    /// Applies one update to weights in one vector, in place. Returns the norm of the gradient
    /// before clipping.
    ///
    /// # Errors
    /// [`LmError::Device`] if the gradient is not finite; the weights are then untouched.
    pub fn step_flat(
        &mut self,
        weights: &mut [f32],
        grads: &[f32],
        lr: f64,
    ) -> Result<f64, LmError> {
        let norm = euclidean_norm(grads);
        let step = AdamWStep::new(&self.config, self.steps + 1, lr, norm)?;
        self.steps += 1;
        step.apply(weights, grads, self.moments.get_or_insert_default());
        Ok(norm)
    }
}

/// Number of elements whose squares are summed as one task, so that the order never depends on
/// threads.
const NORM_CHUNK: usize = 16 * 1024;

fn euclidean_norm(gradient: &[f32]) -> f64 {
    let square = |x: &f32| f64::from(*x) * f64::from(*x);
    let chunks = gradient.par_chunks(NORM_CHUNK);
    let sums: Vec<f64> = chunks.map(|c| c.iter().map(square).sum()).collect();
    sums.iter().sum::<f64>().sqrt()
}

/// The constants of one step of [`AdamW`], which are the same for all weights of a model. A
/// gradient `g`, the moments `m` and `v` and a weight `w` become, in this order,
///
/// - `g = grad_scale g`,
/// - `m = beta1 m + (1 - beta1) g`,
/// - `v = beta2 v + (1 - beta2) g g`,
/// - `w = decay w - step_size m / (second_scale sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug)]
pub struct AdamWStep {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Number added to the root of the second moment.
    pub epsilon: f32,
    /// Factor of the gradient: below 1 if it is clipped.
    pub grad_scale: f32,
    /// Factor of the weight.
    pub decay: f32,
    /// Learning rate with the bias correction of the first moment.
    pub step_size: f32,
    /// Bias correction of the second moment's root.
    pub second_scale: f32,
}

impl AdamWStep {
    /// Constants of step `number`, counted from 1, with learning rate `lr` and a gradient whose
    /// Euclidean norm is `norm`.
    ///
    /// # Errors
    /// [`LmError::Device`] for a norm that is not finite.
    pub fn new(config: &AdamWConfig, number: u64, lr: f64, norm: f64) -> Result<Self, LmError> {
        if !norm.is_finite() {
            return Err(LmError::Device(format!("the gradient norm is {norm}")));
        }
        let grad_scale = match config.max_grad_norm {
            Some(limit) if norm > limit => limit / norm,
            _ => 1.0,
        };
        let correction = |beta: f64| 1.0 - beta.powf(number as f64);
        Ok(Self {
            beta1: config.beta1 as f32,
            beta2: config.beta2 as f32,
            epsilon: config.epsilon as f32,
            grad_scale: grad_scale as f32,
            decay: (1.0 - lr * config.weight_decay) as f32,
            step_size: (lr / correction(config.beta1)) as f32,
            second_scale: (1.0 / correction(config.beta2)).sqrt() as f32,
        })
    }

    fn apply(&self, weights: &mut [f32], grads: &[f32], moments: &mut Moments) {
        /// Number of weights updated by one task: large enough to amortise scheduling, small enough
        /// to stay in the second-level cache with gradient and moments.
        const CHUNK: usize = 16 * 1024;
        moments.first.resize(weights.len(), 0.0);
        moments.second.resize(weights.len(), 0.0);
        weights
            .par_chunks_mut(CHUNK)
            .zip(grads.par_chunks(CHUNK))
            .zip(
                moments
                    .first
                    .par_chunks_mut(CHUNK)
                    .zip(moments.second.par_chunks_mut(CHUNK)),
            )
            .for_each(|((weights, grads), (first, second))| {
                for (((w, g), m), v) in weights.iter_mut().zip(grads).zip(first).zip(second) {
                    let g = g * self.grad_scale;
                    *m = self.beta1 * *m + (1.0 - self.beta1) * g;
                    *v = self.beta2 * *v + (1.0 - self.beta2) * g * g;
                    let root = v.sqrt() * self.second_scale + self.epsilon;
                    *w = *w * self.decay - self.step_size * *m / root;
                }
            });
    }
}
