//! Training on a graphics device, which may be a software device, against the processor's trainer.
//! Without any device, these tests are skipped, unless OMNIDRAFT_REQUIRE_GPU is 1.
#![cfg(feature = "wgpu")]

use crate::train_support;

use lm::host::Products;
use lm::{AdamW, AdamWConfig, Checkpoint, LmConfig, LmError, ModelError};
use trainer::device::{OnDevice, open};
use trainer::{Backend, Device, NextToken, Trainer};

use train_support::{config, lively, slices};

/// Largest deviation of a tensor, relative to its largest entry.
const CLOSE: f64 = 1e-4;

/// Number of steps that are compared.
const STEPS: usize = 5;

/// Largest deviation of a weight after steps, relative to the distance that AdamW can move it: it
/// divides by the size of the gradient, so what rounding does to a small gradient of a small bias
/// shows in whole steps. 1.5e-3 was measured on software Vulkan.
const CLOSE_STEPS: f64 = 1e-2;

/// As [`CLOSE`], of moments after steps: gradients are taken at weights that differ by 1e-5, and the
/// second moments square them. 2e-4 was measured on software Vulkan.
const CLOSE_MOMENTS: f64 = 1e-3;

const LR: f64 = 1e-3;

const SETTINGS: AdamWConfig = AdamWConfig {
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    max_grad_norm: Some(0.5),
};

/// The device. Without one the calling test is skipped.
fn on_device(checkpoint: &Checkpoint, optimizer: &AdamW) -> Option<OnDevice> {
    match open() {
        Ok(device) => Some(OnDevice::new(checkpoint, optimizer, device).unwrap()),
        Err(error) => {
            let required = std::env::var_os("OMNIDRAFT_REQUIRE_GPU").is_some_and(|x| x == "1");
            assert!(!required, "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// Llama and Qwen2, with tied and separate heads, and query heads that share keys in groups of 1, 2
/// and 4.
fn shapes() -> [LmConfig; 3] {
    [("llama", true, 2), ("llama", false, 4), ("qwen2", true, 1)]
        .map(|(kind, tied, kv_heads)| config(kind, tied, kv_heads))
}

/// Sequences of one length, no multiple of a block, for step `step`.
fn batch(step: usize) -> Vec<Vec<u32>> {
    let token = |i: usize, j: usize| ((step * 13 + i * 29 + j * j * 7 + j) % 67) as u32;
    (0..3)
        .map(|i| (0..38).map(|j| token(i, j)).collect())
        .collect()
}

/// Loss and norm of the gradient of a step of the processor's trainer.
fn host_step(trainer: &mut Trainer, sequences: &[Vec<u32>]) -> (f64, f64) {
    let inputs = slices(sequences);
    let graded = trainer.accumulate(&inputs, &NextToken::new(&inputs));
    (graded.unwrap().terms[0], trainer.step(LR).unwrap())
}

/// Largest deviation of a tensor, relative to its largest entry, over all tensors.
fn deviation(found: &Checkpoint, expected: &Checkpoint) -> f64 {
    assert!(found.tensors.keys().eq(expected.tensors.keys()));
    let of_tensor = |(name, found): (&String, &lm::HostTensor)| {
        let expected = &expected.tensors[name];
        assert_eq!(found.shape, expected.shape);
        let pairs = found.data.iter().zip(&expected.data);
        let furthest = pairs.fold(0.0, |far, (a, b)| (a - b).abs().max(far));
        let largest = expected.data.iter().fold(0.0, |far, b| b.abs().max(far));
        f64::from(furthest) / f64::from(largest)
    };
    found.tensors.iter().map(of_tensor).fold(0.0, f64::max)
}

/// Largest difference of two weights over all tensors.
fn furthest(found: &Checkpoint, expected: &Checkpoint) -> f64 {
    let pairs = found.tensors.iter().flat_map(|(name, found)| {
        let expected = &expected.tensors[name].data;
        found.data.iter().zip(expected)
    });
    f64::from(pairs.fold(0.0_f32, |far, (a, b)| (a - b).abs().max(far)))
}

/// Asserts that states of an optimiser are close.
fn assert_close_moments(found: &AdamW, expected: &AdamW) {
    assert_eq!(found.steps(), expected.steps());
    let (found, expected) = (found.moments(), expected.moments());
    assert_eq!(found.is_some(), expected.is_some());
    for (found, expected) in found.into_iter().zip(expected) {
        let kinds = [
            (&found.first, &expected.first),
            (&found.second, &expected.second),
        ];
        for (found, expected) in kinds {
            let largest = expected.iter().fold(0.0_f32, |far, b| b.abs().max(far));
            let pairs = found.iter().zip(expected);
            let furthest = pairs.fold(0.0_f32, |far, (a, b)| (a - b).abs().max(far));
            assert!(
                f64::from(furthest / largest) < CLOSE_MOMENTS,
                "{furthest} of {largest}"
            );
        }
    }
}

#[test]
fn losses_and_gradients_match_the_processor() {
    for shape in shapes() {
        let checkpoint = lively(&shape);
        let fresh = AdamW::new(SETTINGS);
        let Some(device) = on_device(&checkpoint, &fresh) else {
            return;
        };
        let sequences = batch(0);
        let inputs = slices(&sequences);
        let mut host = Trainer::new(&checkpoint, SETTINGS).unwrap();
        let graded = host.accumulate(&inputs, &NextToken::new(&inputs)).unwrap();
        let (loss, gradient) = device.gradient(&sequences).unwrap();
        assert!((loss - graded.terms[0]).abs() < CLOSE * loss);
        let far = deviation(&gradient, &host.gradient());
        println!("{}: gradients differ by {far:.1e}", shape.model_type());
        assert!(far < CLOSE, "{}: {far}", shape.model_type());
        let found = device.evaluate(&sequences).unwrap();
        assert_eq!(found.tokens, 3 * 37);
        assert!((found.mean() - loss).abs() < CLOSE * loss);
    }
}

#[test]
fn steps_end_at_the_weights_of_the_processor() {
    for shape in shapes() {
        let checkpoint = lively(&shape);
        let fresh = AdamW::new(SETTINGS);
        let Some(mut device) = on_device(&checkpoint, &fresh) else {
            return;
        };
        let mut host = Trainer::new(&checkpoint, SETTINGS).unwrap();
        for step in 0..STEPS {
            let sequences = batch(step);
            let (loss, norm) = host_step(&mut host, &sequences);
            let found = device.step(&sequences, LR).unwrap();
            assert!((found.loss - loss).abs() < CLOSE * loss);
            assert!((found.grad_norm - norm).abs() < CLOSE * norm);
            assert!(norm > 0.5, "the gradient must be clipped: {norm}");
        }
        let (found, expected) = (device.checkpoint().unwrap(), host.checkpoint());
        let far = furthest(&found, &expected) / (STEPS as f64 * LR);
        println!(
            "{}: weights differ by {far:.1e} of their way",
            shape.model_type()
        );
        assert!(far < CLOSE_STEPS, "{}: {far}", shape.model_type());
        assert!(deviation(&checkpoint, &expected) > 10.0 * CLOSE);
        assert_close_moments(&device.optimizer().unwrap(), host.optimizer());
    }
}

/// A state that was saved on one device continues on the other.
#[test]
fn training_moves_between_devices() {
    let checkpoint = lively(&config("qwen2", true, 2));
    let fresh = AdamW::new(SETTINGS);
    let Some(mut device) = on_device(&checkpoint, &fresh) else {
        return;
    };
    let mut host = Trainer::new(&checkpoint, SETTINGS).unwrap();
    for step in 0..2 {
        device.step(&batch(step), LR).unwrap();
        host_step(&mut host, &batch(step));
    }
    let (weights, state) = (device.checkpoint().unwrap(), device.optimizer().unwrap());
    let mut moved = Trainer::resume(&weights, state.clone()).unwrap();
    let mut resumed = on_device(&weights, &state).unwrap();
    for step in 2..4 {
        host_step(&mut host, &batch(step));
        host_step(&mut moved, &batch(step));
        device.step(&batch(step), LR).unwrap();
        resumed.step(&batch(step), LR).unwrap();
    }
    let expected = host.checkpoint();
    assert!(deviation(&moved.checkpoint(), &expected) < CLOSE);
    let resumed = resumed.checkpoint().unwrap();
    assert!(deviation(&resumed, &expected) < CLOSE);
    // The state is exact, so a resumed training is the same training.
    assert_eq!(resumed.tensors, device.checkpoint().unwrap().tensors);
}

#[test]
fn a_backend_moves_to_the_processor() {
    let checkpoint = lively(&config("llama", false, 2));
    let fresh = AdamW::new(SETTINGS);
    if on_device(&checkpoint, &fresh).is_none() {
        return;
    }
    let backend = |device| Backend::new(&checkpoint, fresh.clone(), device, Products::F32);
    let mut device = backend(Device::Wgpu).unwrap();
    let mut host = backend(Device::Cpu).unwrap();
    device.step(&batch(0), LR).unwrap();
    host.step(&batch(0), LR).unwrap();
    let (found, expected) = (device.evaluate(&batch(1), 2), host.evaluate(&batch(1), 2));
    let (found, expected) = (found.unwrap(), expected.unwrap());
    assert_eq!(found.tokens, expected.tokens);
    assert!((found.mean() - expected.mean()).abs() < CLOSE * expected.mean());
    let moved = device.on_host().unwrap();
    assert_close_moments(moved.optimizer(), &host.optimizer().unwrap());
    host_step(moved, &batch(1));
    host.step(&batch(1), LR).unwrap();
    let (found, expected) = (device.checkpoint().unwrap(), host.checkpoint().unwrap());
    assert!(deviation(&found, &expected) < CLOSE);
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let mut checkpoint = lively(&config("llama", true, 4));
    for weight in &mut checkpoint.tensors.get_mut(lm::FINAL_NORM).unwrap().data {
        *weight = f32::NAN;
    }
    let Some(mut device) = on_device(&checkpoint, &AdamW::new(SETTINGS)) else {
        return;
    };
    let error = device.step(&batch(0), LR).unwrap_err();
    assert!(matches!(error, LmError::Device(_)), "{error}");
    let after = device.checkpoint().unwrap();
    let bits = |c: &Checkpoint| -> Vec<u32> {
        let values = c.tensors.values().flat_map(|tensor| &tensor.data);
        values.map(|x| x.to_bits()).collect()
    };
    assert_eq!(bits(&after), bits(&checkpoint));
    assert_eq!(device.optimizer().unwrap().steps(), 0);
}

#[test]
fn what_a_device_cannot_train_is_refused() {
    let checkpoint = lively(&config("llama", true, 4));
    let Some(mut device) = on_device(&checkpoint, &AdamW::new(SETTINGS)) else {
        return;
    };
    let mut refused = |sequences: &[Vec<u32>]| device.step(sequences, LR).unwrap_err();
    assert!(matches!(refused(&[]), LmError::Device(_)));
    assert!(matches!(
        refused(&[vec![1, 2, 3], vec![1, 2]]),
        LmError::Device(_)
    ));
    let outside = ModelError::TokenOutOfRange {
        id: 67,
        vocab_size: 67,
    };
    let error = refused(&[vec![1, 67]]);
    assert_eq!(error.to_string(), LmError::from(outside).to_string());

    let other = lively(&config("qwen2", true, 2));
    let state = Trainer::new(&other, SETTINGS).map(|mut trainer| {
        host_step(&mut trainer, &batch(0));
        trainer.optimizer().clone()
    });
    let error = OnDevice::new(&checkpoint, &state.unwrap(), open().unwrap()).err();
    assert!(matches!(error, Some(LmError::OtherModel)));
    let qwen3 = lively(&config("qwen3", true, 2));
    let error = OnDevice::new(&qwen3, &AdamW::new(SETTINGS), open().unwrap()).err();
    assert!(matches!(error, Some(LmError::NotTrainable { .. })));
}
