//! The CPU engine compared with a scalar f64 forward. `goldens.rs` compares it with Hugging Face
//! transformers.

use crate::cpu_support;

use cpu_engine::{CpuEngine, EngineOptions, KernelChoice, PackedWeights};
use cpu_support::*;
use lm::{LanguageModel, LmError, ModelError, WeightType};

#[test]
fn logits_match_the_scalar_reference() {
    for (seed, shape) in [EVEN, ODD, WIDE].into_iter().enumerate() {
        let checkpoint = shape.checkpoint(seed as u64);
        let ids = tokens(shape.vocab, 41, seed as u64);
        let expected = reference_logits(&checkpoint, &ids);
        for kernels in kernel_sets() {
            for threads in [1, 2] {
                let options = options(WeightType::F32, kernels, threads);
                let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
                let mut logits = Vec::new();
                engine.forward(&ids, &mut logits).unwrap();
                let error = max_difference(&logits, &expected);
                assert!(error < 2e-4, "{shape:?} {kernels} {threads}: {error}");
            }
        }
    }
}

/// An activation close to the middle between two bf16 numbers may round either way, so means are
/// compared.
#[test]
fn bf16_rounds_weights_and_activations_to_nearest() {
    for (seed, shape) in [EVEN, ODD, WIDE].into_iter().enumerate() {
        let checkpoint = shape.checkpoint(seed as u64 + 5);
        let ids = tokens(shape.vocab, 41, 5);
        let expected = reference_logits_in_bf16(&checkpoint, &ids);
        let unrounded = reference_logits(&checkpoint, &ids);
        for kernels in kernel_sets() {
            let mut engine =
                CpuEngine::new(&checkpoint, options(WeightType::Bf16, kernels, 2)).unwrap();
            let mut logits = Vec::new();
            engine.forward(&ids, &mut logits).unwrap();
            let error = relative_error(&logits, &expected);
            let rounding = relative_error(&unrounded, &expected);
            eprintln!("{shape:?} {kernels}: {error} of {rounding}");
            assert!(
                error < 0.3 * rounding,
                "{shape:?} {kernels}: {error} of {rounding}"
            );
        }
    }
}

#[test]
fn new_weights_take_effect_and_empty_the_cache() {
    let (first, second) = (ODD.checkpoint(1), ODD.checkpoint(2));
    let ids = tokens(ODD.vocab, 9, 0);
    for weights in [WeightType::F32, WeightType::Bf16] {
        let options = options(weights, KernelChoice::Auto, 1);
        let mut engine = CpuEngine::new(&first, options.clone()).unwrap();
        let mut logits = Vec::new();
        engine.forward(&ids, &mut logits).unwrap();
        engine.load_weights(&second).unwrap();
        assert_eq!(engine.len(), 0);
        engine.forward(&ids, &mut logits).unwrap();
        let mut fresh = Vec::new();
        CpuEngine::new(&second, options)
            .unwrap()
            .forward(&ids, &mut fresh)
            .unwrap();
        assert_eq!(bits(&logits), bits(&fresh));
        let other = engine.load_weights(&EVEN.checkpoint(0));
        assert!(matches!(other, Err(LmError::OtherModel)));
    }
}

#[test]
fn bad_calls_are_refused_and_leave_the_cache_alone() {
    let options = EngineOptions {
        max_len: 8,
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(&EVEN.checkpoint(0), options).unwrap();
    let mut logits = Vec::new();
    engine.forward(&[1, 2, 3], &mut logits).unwrap();
    let outside = engine.forward(&[1, 256], &mut logits);
    assert!(matches!(
        outside,
        Err(ModelError::TokenOutOfRange {
            id: 256,
            vocab_size: 256
        })
    ));
    let long = engine.forward(&[0; 6], &mut logits);
    assert!(matches!(
        long,
        Err(ModelError::ContextFull {
            needed: 9,
            max_len: 8
        })
    ));
    assert_eq!(engine.len(), 3);
    engine.forward(&[0; 5], &mut logits).unwrap();
    assert_eq!((engine.len(), logits.len()), (8, 5 * 256));
    engine.forward(&[], &mut logits).unwrap();
    assert!(logits.is_empty());
    engine.truncate(100);
    assert_eq!(engine.len(), 8);
    engine.truncate(0);
    assert!(engine.is_empty());

    let mut incomplete = EVEN.checkpoint(0);
    incomplete.tensors.remove("model.norm.weight");
    let missing = CpuEngine::new(&incomplete, EngineOptions::default());
    assert!(matches!(missing, Err(LmError::MissingTensor { .. })));
}

#[test]
fn the_state_times_the_head_is_the_last_row_of_logits() {
    for shape in [EVEN, ODD] {
        let checkpoint = shape.checkpoint(11);
        let name = if shape.tied {
            "model.embed_tokens.weight"
        } else {
            "lm_head.weight"
        };
        let head = &checkpoint.tensors[name].data;
        let mut engine = CpuEngine::new(&checkpoint, EngineOptions::default()).unwrap();
        assert!(engine.state().is_empty());
        // More tokens than one pass takes.
        let ids = tokens(shape.vocab, 100, 4);
        let mut logits = Vec::new();
        engine.forward(&ids, &mut logits).unwrap();
        let state = engine.state().to_vec();
        let row = head.chunks_exact(shape.hidden).map(|weights| {
            let products = weights.iter().zip(&state);
            products.map(|(w, x)| f64::from(w * x)).sum::<f64>() as f32
        });
        let last = &logits[99 * shape.vocab..];
        for (expected, found) in row.zip(last) {
            assert!((expected - found).abs() < 1e-3, "{expected} {found}");
        }
        engine.truncate(99);
        engine.forward(&ids[99..], &mut logits).unwrap();
        assert_eq!(engine.state(), state);
        engine.prefill(&ids[..3]).unwrap();
        assert!(engine.state().is_empty());
    }
}

#[test]
fn new_weights_leave_no_state_of_the_old_ones() {
    let (first, second) = (EVEN.checkpoint(1), EVEN.checkpoint(2));
    let mut engine = CpuEngine::new(&first, EngineOptions::default()).unwrap();
    let mut logits = Vec::new();
    engine.forward(&[1, 2, 3], &mut logits).unwrap();
    assert!(!engine.state().is_empty());
    engine.load_weights(&second).unwrap();
    assert!(engine.state().is_empty());
    engine.forward(&[1, 2, 3], &mut logits).unwrap();
    let mut packed = PackedWeights::new(&first, &EngineOptions::default()).unwrap();
    engine.swap_weights(&mut packed).unwrap();
    assert!(engine.state().is_empty());
}
