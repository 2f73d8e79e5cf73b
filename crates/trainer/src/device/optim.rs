//! The host's AdamW, applied to the parameters of a Burn module.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};
use lm::{AdamW, LmError};

/// Applies one update with learning rate `lr`. Returns the module and the global norm of the
/// gradient before clipping.
///
/// # Errors
/// [`LmError::Device`] if weights or gradients cannot be read back, or gradients are not finite; the
/// module is then lost to the caller, who keeps the last good weights.
pub fn step<M: Module>(
    optimizer: &mut AdamW,
    module: M,
    grads: &Gradients,
    lr: f64,
) -> Result<(M, f64), LmError> {
    let mut collector = Collector {
        grads,
        weights: Vec::new(),
        gradients: Vec::new(),
        failure: None,
    };
    module.visit(&mut collector);
    if let Some(failure) = collector.failure {
        return Err(LmError::Device(failure));
    }
    let (mut weights, gradients) = (collector.weights, collector.gradients);
    let mut parts: Vec<(&mut [f32], &[f32])> = weights
        .iter_mut()
        .map(Vec::as_mut_slice)
        .zip(gradients.iter().map(Vec::as_slice))
        .collect();
    let norm = optimizer.step_parts(&mut parts, lr)?;
    let mut updater = Updater {
        weights: weights.into_iter(),
        complete: true,
    };
    let module = module.map(&mut updater);
    if !updater.complete {
        let message = "the module changed between visiting and mapping";
        return Err(LmError::Device(message.into()));
    }
    Ok((module, norm))
}

/// Weights and gradients in visiting order; both empty for a parameter without a gradient.
struct Collector<'a> {
    grads: &'a Gradients,
    weights: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    failure: Option<String>,
}

impl ModuleVisitor for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = param.val().grad(self.grads) else {
            self.weights.push(Vec::new());
            self.gradients.push(Vec::new());
            return;
        };
        let weights = param.val().try_into_vec_as::<f32>();
        match (weights, gradient.try_into_vec_as::<f32>()) {
            (Ok(weights), Ok(gradient)) => {
                self.weights.push(weights);
                self.gradients.push(gradient);
            }
            (Err(e), _) | (_, Err(e)) => self.failure = Some(e.to_string()),
        }
    }
}

/// Visitor that writes updated weights to their parameters. Parameters without an update stay.
struct Updater {
    weights: std::vec::IntoIter<Vec<f32>>,
    complete: bool,
}

impl ModuleMapper for Updater {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(weights) = self.weights.next() else {
            self.complete = false;
            return param;
        };
        if weights.is_empty() {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let (shape, device) = (tensor.dims(), tensor.device());
        let updated = Tensor::from_data(TensorData::new(weights, shape), &device).require_grad();
        Param::from_mapped_value(id, updated, mapper)
    }
}
