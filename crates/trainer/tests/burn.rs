//! The Burn module against Hugging Face transformers, PyTorch and the host trainer.
#![cfg(feature = "wgpu")]

mod train_support;

use std::path::PathBuf;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use lm::{AdamW, AdamWConfig, Checkpoint, DecodeEngine};
use trainer::device::{BurnEngine, OnDevice, Transformer};
use trainer::{NextToken, Trainer};

use train_support::{
    TOLERANCE, batch, config, goldens, lively, numbers, reference, relative_error, slices,
};

/// Largest deviation allowed between two f32 implementations of the same forward.
const LOGIT_TOLERANCE: f32 = 2e-4;

fn npy(path: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..])
        .unwrap()
        .into_vec::<f32>()
        .unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn logits_match_transformers_and_survive_truncation() {
    for folder in goldens() {
        let ids = numbers(&folder, "token_ids");
        let expected = npy(folder.join("logits.npy"));
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut engine = BurnEngine::new(&checkpoint, &Device::flex(), 2048).unwrap();
        let mut logits = Vec::new();
        engine.forward(&ids, &mut logits).unwrap();
        let error = largest_difference(&logits, &expected);
        assert!(error < LOGIT_TOLERANCE, "{folder:?}: {error}");

        let vocab = engine.vocab_size();
        for keep in [1, 7, ids.len() / 2, ids.len() - 1] {
            engine.truncate(keep);
            let mut tail = Vec::new();
            engine.forward(&ids[keep..], &mut tail).unwrap();
            let error = largest_difference(&tail, &expected[keep * vocab..]);
            assert!(
                error < LOGIT_TOLERANCE,
                "{folder:?} after truncation to {keep}: {error}"
            );
            assert_eq!(engine.len(), ids.len());
        }
    }
}

#[test]
fn greedy_continuations_match_transformers() {
    for folder in goldens() {
        let expected = numbers(&folder, "greedy_out");
        let mut ids = numbers(&folder, "greedy_prompt");
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut engine = BurnEngine::new(&checkpoint, &Device::flex(), 2048).unwrap();
        let vocab = engine.vocab_size();
        let mut pending = ids.clone();
        while ids.len() < expected.len() {
            let mut logits = Vec::new();
            engine.forward(&pending, &mut logits).unwrap();
            let row = &logits[logits.len() - vocab..];
            let best = (0..vocab)
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap() as u32;
            ids.push(best);
            pending = vec![best];
        }
        assert_eq!(ids, expected, "{folder:?}");
    }
}

/// Puts every parameter's gradient in its place, so that gradients come out under checkpoint names.
struct ReplaceByGradient<'a>(&'a Gradients);

impl ModuleMapper for ReplaceByGradient<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let gradient = tensor.grad(self.0).unwrap().to_data();
        let gradient = Tensor::from_data(gradient, &tensor.device()).require_grad();
        Param::from_mapped_value(id, gradient, mapper)
    }
}

/// Mean cross entropy of all sequences and its gradient, by Burn.
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
    for folder in goldens() {
        let ids = numbers(&folder, "token_ids")[..64].to_vec();
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let (_, gradient) = by_burn(&checkpoint, std::slice::from_ref(&ids));
        let error = relative_error(&gradient, &reference(&folder, "grad_ce64.safetensors"));
        assert!(error < TOLERANCE, "{folder:?}: gradients differ by {error}");

        let optimizer = AdamW::new(AdamWConfig::default());
        let mut model = OnDevice::new(&checkpoint, optimizer, Device::flex()).unwrap();
        for _ in 0..2 {
            model.step(std::slice::from_ref(&ids), 1e-3).unwrap();
        }
        let expected = reference(&folder, "params_after_adamw2.safetensors");
        let error = relative_error(&model.checkpoint().unwrap(), &expected);
        assert!(error < TOLERANCE, "{folder:?}: weights differ by {error}");
        assert!(
            relative_error(&checkpoint, &expected) > 10.0 * TOLERANCE,
            "the steps must matter"
        );
    }
}

/// A step of every size: the host's AdamW goes over one vector, Burn's over many.
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
