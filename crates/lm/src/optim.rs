//! AdamW in one fused pass on the host.
//!
//! Burn's optimiser walks every parameter about ten times through temporary tensors, which on CPU
//! costs as much as a forward. Here a step reads gradient, moments and weight once. The state is
//! plain vectors, so that training resumes exactly from a file.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};
use rayon::prelude::*;

use crate::LmError;

/// Hyper-parameters of [`AdamW`]; the defaults are the paper's (Table 7: betas 0.9 and 0.999).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the first moment, in `[0, 1)`.
    pub beta1: f64,
    /// Decay of the second moment, in `[0, 1)`.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay per unit of learning rate.
    pub weight_decay: f64,
    /// Gradients are scaled down to this global Euclidean norm, if given.
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

/// First and second moment of one parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Vec<f32>,
    /// Running mean of the squared gradient.
    pub second: Vec<f32>,
}

/// Adam with decoupled weight decay over the parameters of one module, in visiting order.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    steps: u64,
    moments: Vec<Moments>,
}

impl AdamW {
    /// An optimiser without history.
    pub fn new(config: AdamWConfig) -> Self {
        Self {
            config,
            steps: 0,
            moments: Vec::new(),
        }
    }

    /// An optimiser that goes on from a saved state.
    pub fn resume(config: AdamWConfig, steps: u64, moments: Vec<Moments>) -> Self {
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

    /// Steps taken and the moments, in visiting order, for saving.
    pub fn state(&self) -> (u64, &[Moments]) {
        (self.steps, &self.moments)
    }

    /// Applies one update to weights that lie in one vector, in place; returns the norm of the
    /// gradient before clipping.
    ///
    /// # Errors
    /// [`LmError::Device`] if the gradient is not finite; the weights are then untouched.
    pub fn step_flat(
        &mut self,
        weights: &mut [f32],
        grads: &[f32],
        lr: f64,
    ) -> Result<f64, LmError> {
        let norm = euclidean_norm([grads])?;
        self.moments.resize_with(1, Moments::default);
        let scale = self.next_scale(norm);
        let rule = Rule::new(&self.config, self.steps, lr, scale);
        rule.apply(weights, grads, &mut self.moments[0]);
        Ok(norm)
    }

    /// Counts a step and says how much its gradient is scaled.
    fn next_scale(&mut self, norm: f64) -> f64 {
        self.steps += 1;
        match self.config.max_grad_norm {
            Some(limit) if norm > limit => limit / norm,
            _ => 1.0,
        }
    }

    /// Applies one update with learning rate `lr` and returns the module with the global norm of
    /// the gradient before clipping.
    ///
    /// # Errors
    /// [`LmError::Device`] if gradients cannot be read back or are not finite; the module is then
    /// lost to the caller, who keeps the last good weights.
    pub fn step<M: Module>(
        &mut self,
        module: M,
        grads: &Gradients,
        lr: f64,
    ) -> Result<(M, f64), LmError> {
        let mut collector = Collector {
            grads,
            values: Vec::new(),
            failure: None,
        };
        module.visit(&mut collector);
        if let Some(failure) = collector.failure {
            return Err(LmError::Device(failure));
        }
        let gradients = collector.values;
        let norm = euclidean_norm(gradients.iter().flatten().map(Vec::as_slice))?;
        let scale = self.next_scale(norm);
        self.moments.resize_with(gradients.len(), Moments::default);
        let rule = Rule::new(&self.config, self.steps, lr, scale);
        let mut updater = Updater {
            rule,
            gradients: gradients.into_iter(),
            moments: self.moments.iter_mut(),
            failure: None,
        };
        let module = module.map(&mut updater);
        match updater.failure {
            Some(failure) => Err(LmError::Device(failure)),
            None => Ok((module, norm)),
        }
    }
}

/// Elements whose squares are summed as one task, so that the order never depends on threads.
const NORM_CHUNK: usize = 16 * 1024;

/// Norm of all gradients together.
fn euclidean_norm<'a>(gradients: impl IntoIterator<Item = &'a [f32]>) -> Result<f64, LmError> {
    let square = |x: &f32| f64::from(*x) * f64::from(*x);
    let sums = gradients.into_iter().map(|g| {
        let chunks = g.par_chunks(NORM_CHUNK);
        let sums: Vec<f64> = chunks.map(|c| c.iter().map(square).sum()).collect();
        sums.iter().sum::<f64>()
    });
    let norm = sums.sum::<f64>().sqrt();
    if norm.is_finite() {
        Ok(norm)
    } else {
        Err(LmError::Device(format!("the gradient norm is {norm}")))
    }
}

struct Collector<'a> {
    grads: &'a Gradients,
    values: Vec<Option<Vec<f32>>>,
    failure: Option<String>,
}

impl ModuleVisitor for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param
            .val()
            .grad(self.grads)
            .map(|g| g.try_into_vec_as::<f32>());
        match value.transpose() {
            Ok(values) => self.values.push(values),
            Err(e) => self.failure = Some(e.to_string()),
        }
    }
}

/// The constants of one step.
#[derive(Clone, Copy)]
struct Rule {
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    grad_scale: f32,
    decay: f32,
    step_size: f32,
    second_scale: f32,
}

impl Rule {
    fn new(config: &AdamWConfig, steps: u64, lr: f64, grad_scale: f64) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(steps as f64);
        Self {
            beta1: config.beta1 as f32,
            beta2: config.beta2 as f32,
            epsilon: config.epsilon as f32,
            grad_scale: grad_scale as f32,
            decay: (1.0 - lr * config.weight_decay) as f32,
            step_size: (lr / correction(config.beta1)) as f32,
            second_scale: (1.0 / correction(config.beta2)).sqrt() as f32,
        }
    }

    fn apply(&self, weights: &mut [f32], grads: &[f32], moments: &mut Moments) {
        /// Weights updated by one task: large enough to amortise scheduling, small enough to
        /// stay in the second-level cache with gradient and moments.
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

struct Updater<'a> {
    rule: Rule,
    gradients: std::vec::IntoIter<Option<Vec<f32>>>,
    moments: std::slice::IterMut<'a, Moments>,
    failure: Option<String>,
}

impl ModuleMapper for Updater<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (Some(grads), Some(moments)) = (self.gradients.next(), self.moments.next()) else {
            self.failure = Some("the module changed between visiting and mapping".into());
            return param;
        };
        let Some(grads) = grads else { return param };
        let (id, tensor, mapper) = param.consume();
        let (shape, device) = (tensor.dims(), tensor.device());
        let mut weights = match tensor.clone().try_into_vec_as::<f32>() {
            Ok(weights) => weights,
            Err(e) => {
                self.failure = Some(e.to_string());
                return Param::from_mapped_value(id, tensor, mapper);
            }
        };
        self.rule.apply(&mut weights, &grads, moments);
        let updated = Tensor::from_data(TensorData::new(weights, shape), &device).require_grad();
        Param::from_mapped_value(id, updated, mapper)
    }
}
