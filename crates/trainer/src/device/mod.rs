//! Training on graphics devices through the Burn framework, by automatic differentiation.
//!
//! Weights, gradients and moments stay on the device. A step copies two numbers to the host: the
//! loss and the norm of the gradient.

mod model;
mod optim;
mod rope;

use std::sync::OnceLock;

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::wgpu::WgpuBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use lm::{AdamW, Checkpoint, LmConfig, LmError, ModelError, check_call};

use crate::{CrossEntropy, Step};
use model::{Transformer, host};
use optim::DeviceAdamW;

/// Interface to graphics devices. By default, wgpu would use OpenGL if there is no Vulkan, and
/// nothing would show why everything is slow.
const INTERFACE: WgpuBackend = if cfg!(target_os = "macos") {
    WgpuBackend::Metal
} else {
    WgpuBackend::Vulkan
};

/// A decoder in training on next-token prediction, on a graphics device.
///
/// Every weight is trained. Losses and gradients equal those of [`Trainer`](crate::Trainer) up to
/// the rounding of f32.
pub struct OnDevice {
    /// The weights, which require gradients.
    model: Transformer,
    optimizer: DeviceAdamW,
    device: Device,
}

/// The first graphics device. It is opened once in a process.
///
/// # Errors
/// [`LmError::Device`] if there is none or its driver does not open it.
pub fn open() -> Result<Device, LmError> {
    static OPEN: OnceLock<Result<Device, String>> = OnceLock::new();
    let opened = OPEN.get_or_init(|| {
        let options = Device::wgpu_options().graphics_api(INTERFACE);
        options.init().map_err(|e| e.to_string())
    });
    opened
        .clone()
        .map_err(|e| LmError::Device(format!("no graphics adapter through {INTERFACE:?}: {e}")))
}

impl OnDevice {
    /// Loads weights and the state of their optimiser onto `device`.
    ///
    /// # Errors
    /// Missing or misshapen tensors; [`LmError::OtherModel`] for moments of another model;
    /// [`LmError::NotTrainable`] for all but plain Llama and Qwen2 decoders.
    pub fn new(
        checkpoint: &Checkpoint,
        optimizer: &AdamW,
        device: Device,
    ) -> Result<Self, LmError> {
        let device = device.autodiff();
        let model = Transformer::from_checkpoint(checkpoint, &device)?;
        Ok(Self {
            optimizer: DeviceAdamW::new(optimizer, &model, &device.clone().inner())?,
            model,
            device,
        })
    }

    /// Takes one AdamW step with learning rate `lr` on the mean loss of sequences of one length.
    /// The results are of the weights before the step.
    ///
    /// # Errors
    /// No sequences; sequences of several lengths, of fewer than two tokens, or longer than the
    /// model's context; tokens outside its vocabulary; errors of the device; a gradient that is not
    /// finite. Weights and moments then stay as they were.
    pub fn step(&mut self, sequences: &[Vec<u32>], lr: f64) -> Result<Step, LmError> {
        let loss = cross_entropy(&self.model, sequences, &self.device)?.mean();
        let gradients = optim::gradients(&self.model, &mut loss.backward());
        let norm = optim::norm(&gradients);
        let numbers = host(Tensor::cat(vec![loss.inner(), norm], 0))?;
        let [loss, grad_norm] = [numbers[0], numbers[1]].map(f64::from);
        let weights = self
            .optimizer
            .step(optim::values(&self.model), gradients, lr, grad_norm)?;
        self.model = optim::with_values(self.model.clone(), weights, true);
        Ok(Step { loss, grad_norm })
    }

    /// Mean next-token cross entropy of sequences of one length, in nats per token, and its
    /// gradient under the names of the weights.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn gradient(&self, sequences: &[Vec<u32>]) -> Result<(f64, Checkpoint), LmError> {
        let loss = cross_entropy(&self.model, sequences, &self.device)?.mean();
        let gradients = optim::gradients(&self.model, &mut loss.backward());
        let gradient = optim::with_values(self.model.valid(), gradients, false);
        let loss = host(loss)?;
        Ok((f64::from(loss[0]), gradient.to_checkpoint()?))
    }

    /// Next-token cross entropy of sequences of one length, without gradients.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn evaluate(&self, sequences: &[Vec<u32>]) -> Result<CrossEntropy, LmError> {
        let device = self.device.clone().inner();
        let losses = cross_entropy(&self.model.valid(), sequences, &device)?;
        let tokens = losses.dims()[0];
        let sum = host(losses.sum())?;
        Ok(CrossEntropy {
            sum: f64::from(sum[0]),
            tokens,
        })
    }

    /// The weights.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn checkpoint(&self) -> Result<Checkpoint, LmError> {
        self.model.to_checkpoint()
    }

    /// The optimiser's state, in the order of the processor's [`Trainer`](crate::Trainer), which
    /// can continue with it.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn optimizer(&self) -> Result<AdamW, LmError> {
        self.optimizer.state(&self.model)
    }
}

/// Negative log-likelihood of every token but the first of each sequence, `[batch * positions]`.
fn cross_entropy(
    model: &Transformer,
    sequences: &[Vec<u32>],
    device: &Device,
) -> Result<Tensor<1>, LmError> {
    let (batch, positions) = (sequences.len(), positions(sequences, model.config())?);
    let flat = |shift: usize| -> Vec<i32> {
        let ids = sequences.iter().flat_map(|s| &s[shift..shift + positions]);
        ids.map(|id| *id as i32).collect()
    };
    let input = Tensor::<2, Int>::from_data(TensorData::new(flat(0), [batch, positions]), device);
    let labels =
        Tensor::<2, Int>::from_data(TensorData::new(flat(1), [batch * positions, 1]), device);
    let hidden = model
        .hidden(input)
        .reshape([batch * positions, model.config().hidden_size]);
    Ok(log_softmax(model.logits(hidden), 1)
        .gather(1, labels)
        .squeeze_dim::<1>(1)
        .neg())
}

/// Number of predicted tokens of each sequence, after checks that the device does not make.
fn positions(sequences: &[Vec<u32>], config: &LmConfig) -> Result<usize, LmError> {
    let len = sequences.first().map_or(0, Vec::len);
    if len < 2 || sequences.iter().any(|s| s.len() != len) {
        let message = "sequences of one length, at least two tokens, are expected";
        return Err(LmError::Device(message.into()));
    }
    let (max_len, vocab_size) = (config.max_context(), config.vocab_size);
    if len > max_len {
        let needed = len;
        return Err(ModelError::ContextFull { needed, max_len }.into());
    }
    for ids in sequences {
        check_call(ids, 0, max_len, vocab_size)?;
    }
    Ok(len - 1)
}
