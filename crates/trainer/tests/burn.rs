//! The Burn module against Hugging Face transformers, PyTorch and the host trainer.
#![cfg(feature = "wgpu")]

mod train_support;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use lm::{AdamW, AdamWConfig, Checkpoint, LmError};
use trainer::device::{BurnEngine, OnDevice, Transformer};
use trainer::{NextToken, Trainer};

use train_support::{
    TOLERANCE, batch, config, goldens, lively, reference, relative_error, shared_goldens, slices,
};

#[test]
fn logits_and_greedy_continuations_match_transformers() {
    for golden in shared_goldens() {
        let mut engine = BurnEngine::new(&golden.checkpoint, &Device::flex(), 2048).unwrap();
        golden.check_close(&mut engine, "burn");
    }
}

/// Models with features beyond Llama and Qwen2 are refused; the others are computed.
#[test]
fn what_burn_does_not_know_is_refused() {
    let mut computed = Vec::new();
    for golden in goldens() {
        match BurnEngine::new(&golden.checkpoint, &Device::flex(), golden.context) {
            Ok(mut engine) => {
                golden.check_close(&mut engine, "burn");
                computed.push(golden.name);
            }
            Err(LmError::NotTrainable { .. }) => {}
            Err(error) => panic!("{}: {error}", golden.name),
        }
    }
    for name in [
        "llama",
        "llama-linear",
        "llama-llama3",
        "mistral",
        "qwen2",
        "smollm2",
    ] {
        assert!(computed.iter().any(|known| known == name), "{computed:?}");
    }
}

/// Visitor that replaces every parameter by its gradient, so that gradients come out under
/// checkpoint names.
struct ReplaceByGradient<'a>(&'a Gradients);

impl ModuleMapper for ReplaceByGradient<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let gradient = tensor.grad(self.0).unwrap().to_data();
        let gradient = Tensor::from_data(gradient, &tensor.device()).require_grad();
        Param::from_mapped_value(id, gradient, mapper)
    }
}

/// Mean cross entropy of all sequences and its gradient, computed by Burn.
fn by_burn(checkpoint: &Checkpoint, batch: &[Vec<u32>]) -> (f64, Checkpoint) {
    let device = Device::flex().autodiff();
    let model = Transformer::from_checkpoint(checkpoint, &device).unwrap();
    let ints = |ids: &[u32]| ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>();
    let losses: Vec<Tensor<1>> = batch
        .iter()
        .filter(|ids| ids.len() > 1)
        .map(|ids| {
            let n = ids.len() - 1;
            let input = TensorData::new(ints(&ids[..n]), [1, n]);
            let labels = TensorData::new(ints(&ids[1..]), [n, 1]);
            let hidden = model.hidden(Tensor::<2, Int>::from_data(input, &device));
            let logits = model.logits(hidden.reshape([n, checkpoint.config.hidden_size]));
            let labels = Tensor::<2, Int>::from_data(labels, &device);
            log_softmax(logits, 1).gather(1, labels).squeeze_dim::<1>(1)
        })
        .collect();
    let loss = Tensor::cat(losses, 0).mean().neg();
    let grads = loss.backward();
    let gradient = model.map(&mut ReplaceByGradient(&grads));
    let loss = f64::from(loss.into_scalar::<f32>());
    (loss, gradient.to_checkpoint().unwrap())
}

#[test]
fn gradients_match_automatic_differentiation() {
    for (kind, tied, kv_heads) in [("llama", true, 2), ("llama", false, 4), ("qwen2", true, 1)] {
        let checkpoint = lively(&config(kind, tied, kv_heads));
        let batch = batch();
        let (loss, expected) = by_burn(&checkpoint, &batch);
        let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
        let batch = slices(&batch);
        let graded = trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        assert!((graded.terms[0] - loss).abs() < 1e-5 * loss, "{kind}");
        let error = relative_error(&trainer.gradient(), &expected.tensors);
        assert!(error < TOLERANCE, "{kind}, tied {tied}: {error}");
    }
}

#[test]
fn gradients_and_adamw_match_pytorch() {
    for golden in shared_goldens() {
        let (name, checkpoint) = (&golden.name, &golden.checkpoint);
        let ids = golden.ids[..64].to_vec();
        let (_, gradient) = by_burn(checkpoint, std::slice::from_ref(&ids));
        let expected = reference(&golden, "grad_ce64.safetensors");
        let error = relative_error(&gradient, &expected);
        assert!(error < TOLERANCE, "{name}: gradients differ by {error}");

        let optimizer = AdamW::new(AdamWConfig::default());
        let mut model = OnDevice::new(checkpoint, optimizer, Device::flex()).unwrap();
        for _ in 0..2 {
            model.step(std::slice::from_ref(&ids), 1e-3).unwrap();
        }
        let expected = reference(&golden, "params_after_adamw2.safetensors");
        let error = relative_error(&model.checkpoint().unwrap(), &expected);
        assert!(error < TOLERANCE, "{name}: weights differ by {error}");
        let moved = relative_error(checkpoint, &expected);
        assert!(moved > 10.0 * TOLERANCE, "the steps must matter");
    }
}

/// One step of every size: the host's AdamW works on one vector, Burn's on many.
#[test]
fn steps_match_the_host_trainer() {
    let checkpoint = lively(&config("qwen2", true, 2));
    let settings = AdamWConfig {
        max_grad_norm: Some(0.5),
        ..AdamWConfig::default()
    };
    let sequences: Vec<Vec<u32>> = batch()
        .iter()
        .map(|ids| ids[..ids.len().min(9)].to_vec())
        .collect();
    let sequences: Vec<Vec<u32>> = sequences.into_iter().filter(|ids| ids.len() == 9).collect();
    let inputs = slices(&sequences);
    let mut host = Trainer::new(&checkpoint, settings).unwrap();
    let mut burn = OnDevice::new(&checkpoint, AdamW::new(settings), Device::flex()).unwrap();
    for _ in 0..3 {
        let graded = host.accumulate(&inputs, &NextToken::new(&inputs)).unwrap();
        let norm = host.step(1e-3).unwrap();
        let step = burn.step(&sequences, 1e-3).unwrap();
        assert!((step.loss - graded.terms[0]).abs() < 1e-4 * step.loss);
        assert!((step.grad_norm - norm).abs() < 1e-3 * norm);
    }
    let error = relative_error(&burn.checkpoint().unwrap(), &host.checkpoint().tensors);
    assert!(error < TOLERANCE, "{error}");
    let (sum, tokens) = burn.without_gradients().unwrap().loss(&sequences).unwrap();
    let graded = host.evaluate(&inputs, &NextToken::new(&inputs)).unwrap();
    assert!((sum / tokens as f64 - graded.terms[0]).abs() < 1e-4);
}
