//! AdamW and clipping on the device.
//!
//! Here a model is a list of vectors, one for each of its parameters, in the order in which Burn
//! visits them. A step takes about fifteen passes over each, where the processor takes one: on a
//! device that costs little beside the forward and backward pass.

use std::vec::IntoIter;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};
use lm::{AdamW, AdamWConfig, AdamWStep, Checkpoint, LmError, Moments};

use super::model::Transformer;
use crate::layout::Layout;
use crate::trainer::has_moments_of;

/// The values of one parameter, of its gradient or of a moment, without automatic differentiation.
pub(super) type Values = Tensor<1>;

/// AdamW with its moments on the device. It computes what [`AdamW`] computes.
pub(super) struct DeviceAdamW {
    config: AdamWConfig,
    steps: u64,
    /// First and second moments, for each parameter.
    moments: Vec<[Values; 2]>,
}

impl DeviceAdamW {
    /// Continues from a state of the processor's optimiser for `model`.
    pub(super) fn new(
        optimizer: &AdamW,
        model: &Transformer,
        device: &Device,
    ) -> Result<Self, LmError> {
        let layout = Layout::new(model.config())?;
        if !has_moments_of(optimizer, layout.learns) {
            return Err(LmError::OtherModel);
        }
        let load = |flat: &[f32]| -> Result<Vec<Values>, LmError> {
            let named = Checkpoint {
                config: model.config().clone(),
                tensors: layout.unflatten(flat),
            };
            Ok(values(&Transformer::from_checkpoint(&named, device)?))
        };
        let moments = match optimizer.moments() {
            Some(Moments { first, second }) => {
                let pairs = load(first)?.into_iter().zip(load(second)?);
                pairs.map(|(first, second)| [first, second]).collect()
            }
            None => {
                let zeros = values(model).into_iter().map(|w| w.zeros_like());
                zeros.map(|zeros| [zeros.clone(), zeros]).collect()
            }
        };
        Ok(Self {
            config: optimizer.config(),
            steps: optimizer.steps(),
            moments,
        })
    }

    /// The state of the processor's optimiser for `model`.
    pub(super) fn state(&self, model: &Transformer) -> Result<AdamW, LmError> {
        if self.steps == 0 {
            return Ok(AdamW::new(self.config));
        }
        let layout = Layout::new(model.config())?;
        let flat = |which: usize| {
            let moments = self.moments.iter().map(|pair| pair[which].clone());
            let moments = with_values(model.valid(), moments.collect(), false);
            layout.flatten(&moments.to_checkpoint()?)
        };
        let moments = Moments {
            first: flat(0)?,
            second: flat(1)?,
        };
        Ok(AdamW::resume(self.config, self.steps, Some(moments)))
    }

    /// One update with learning rate `lr` and gradients whose norm is `norm`. Returns the new
    /// weights. Nothing is changed if the norm is not finite.
    pub(super) fn step(
        &mut self,
        weights: Vec<Values>,
        gradients: Vec<Values>,
        lr: f64,
        norm: f64,
    ) -> Result<Vec<Values>, LmError> {
        let step = AdamWStep::new(&self.config, self.steps + 1, lr, norm)?;
        self.steps += 1;
        let moments = std::mem::take(&mut self.moments);
        let parts = weights.into_iter().zip(gradients).zip(moments);
        let update = |((weights, gradient), moments)| update(&step, weights, gradient, moments);
        let (weights, moments) = parts.map(update).unzip();
        self.moments = moments;
        Ok(weights)
    }
}

/// One parameter and its moments after a step.
fn update(
    step: &AdamWStep,
    weights: Values,
    gradient: Values,
    [first, second]: [Values; 2],
) -> (Values, [Values; 2]) {
    let gradient = gradient.mul_scalar(step.grad_scale);
    let squares = gradient.clone().square().mul_scalar(1.0 - step.beta2);
    let first = first.mul_scalar(step.beta1) + gradient.mul_scalar(1.0 - step.beta1);
    let second = second.mul_scalar(step.beta2) + squares;
    let root = second.clone().sqrt().mul_scalar(step.second_scale);
    let change = first.clone().mul_scalar(step.step_size) / root.add_scalar(step.epsilon);
    (weights.mul_scalar(step.decay) - change, [first, second])
}

/// Norm of all gradients together, `[1]`.
pub(super) fn norm(gradients: &[Values]) -> Tensor<1> {
    let squares = gradients.iter().map(|g| g.clone().square().sum());
    Tensor::cat(squares.collect(), 0).sum().sqrt()
}

/// The parameters of a model.
pub(super) fn values(model: &Transformer) -> Vec<Values> {
    struct Collector(Vec<Values>);
    impl ModuleVisitor for Collector {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(flat(param.val().inner()));
        }
    }
    let mut collector = Collector(Vec::new());
    model.visit(&mut collector);
    collector.0
}

/// The gradients of a model's parameters, which are taken out of `all`.
pub(super) fn gradients(model: &Transformer, all: &mut Gradients) -> Vec<Values> {
    struct Collector<'a>(&'a mut Gradients, Vec<Values>);
    impl ModuleVisitor for Collector<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let weights = param.val();
            let gradient = weights.grad_remove(self.0);
            self.1.push(flat(
                gradient.unwrap_or_else(|| weights.inner().zeros_like()),
            ));
        }
    }
    let mut collector = Collector(all, Vec::new());
    model.visit(&mut collector);
    collector.1
}

/// The model with other values. They require gradients if it `trains`.
pub(super) fn with_values(model: Transformer, values: Vec<Values>, trains: bool) -> Transformer {
    struct Replace {
        values: IntoIter<Values>,
        trains: bool,
    }
    impl ModuleMapper for Replace {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let Some(values) = self.values.next() else {
                return param;
            };
            let (id, old, mapper) = param.consume();
            let values = values.reshape(old.dims());
            let values = match self.trains {
                true => Tensor::from_inner(values).require_grad(),
                false => values,
            };
            Param::from_mapped_value(id, values, mapper)
        }
    }
    model.map(&mut Replace {
        values: values.into_iter(),
        trains,
    })
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Values {
    let len = tensor.dims().iter().product::<usize>();
    tensor.reshape([len])
}
