//! The engine compared with Hugging Face transformers, for every architecture, rotation and window,
//! and with the CPU engine if weights are rounded.

use crate::golden_support;
use crate::support;

use golden_support::{bits, goldens, largest_difference};
use lm::{LanguageModel, ReferenceEngine, WeightType};
use support::{engine, gpu};

#[test]
fn logits_and_greedy_continuations_match_transformers() {
    let Some(gpu) = gpu() else { return };
    for golden in goldens() {
        // The golden weights are bf16, and activations are f32 in any case.
        for weights in [WeightType::F32, WeightType::F16, WeightType::Bf16] {
            let mut engine = engine(&gpu, &golden.checkpoint, weights, golden.context);
            let (_, error) = golden.check_close(&mut engine, weights.name());
            println!("{} {weights}: {error:.1e}", golden.name);
        }
    }
}

/// The same tokens give the same bits, in whatever steps they are computed.
#[test]
fn bits_depend_on_nothing_but_the_tokens() {
    let Some(gpu) = gpu() else { return };
    let some = [
        "gemma2",
        "qwen3-window",
        "olmo2",
        "llama-biases",
        "phi3-partial",
    ];
    for golden in goldens() {
        if !some.contains(&golden.name.as_str()) {
            continue;
        }
        for weights in support::FORMATS {
            let mut engine = engine(&gpu, &golden.checkpoint, weights, golden.context);
            let (mut all, mut some) = (Vec::new(), Vec::new());
            engine.forward(&golden.ids, &mut all).unwrap();
            assert!(
                all.iter().all(|x| x.is_finite()),
                "{} {weights}",
                golden.name
            );
            let vocab = engine.vocab_size();
            // A driver compiles kernels for each number of rows; more of them are in `engine.rs`.
            for batch in [1, 2, 5, 16] {
                engine.truncate(0);
                for (i, ids) in golden.ids.chunks(batch).enumerate() {
                    engine.forward(ids, &mut some).unwrap();
                    let expected = &all[i * batch * vocab..][..some.len()];
                    let same = bits(&some) == bits(expected);
                    assert!(same, "{} {weights}: {batch} a call", golden.name);
                }
            }
        }
    }
}

/// Integer weights are the numbers that the CPU engine multiplies: its levels and scales, in f64,
/// give the logits.
#[test]
fn integer_weights_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for golden in goldens() {
        for weights in [WeightType::Int8, WeightType::Int4] {
            let mut rounded = golden.checkpoint.clone();
            support::quantise(&mut rounded, weights);
            let mut reference = ReferenceEngine::new(&rounded, golden.context).unwrap();
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            reference.forward(&golden.ids, &mut expected).unwrap();
            let mut engine = engine(&gpu, &golden.checkpoint, weights, golden.context);
            engine.forward(&golden.ids, &mut found).unwrap();
            let error = largest_difference(&found, &expected);
            println!("{} {weights}: {error:.1e}", golden.name);
            assert!(
                error < golden_support::LOGIT_TOLERANCE,
                "{} {weights}: {error}",
                golden.name
            );
        }
    }
}
