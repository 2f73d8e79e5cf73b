//! The CPU engine compared with Hugging Face transformers, for every architecture, rotation and
//! window.

use crate::cpu_support;
use crate::golden_support;

use cpu_engine::{Compact, CpuEngine, EngineOptions, KernelChoice};
use cpu_support::{kernel_sets, relative_error, sums_as_most};
use golden_support::{Golden, bits, goldens, shared_goldens};
use lm::{LanguageModel, ReferenceEngine, WeightType};

fn engine(
    golden: &Golden,
    weights: WeightType,
    kernels: KernelChoice,
    threads: usize,
) -> CpuEngine {
    let options = EngineOptions {
        weights,
        compact: Compact::Off,
        threads,
        max_len: golden.context,
        kernels,
        ..EngineOptions::default()
    };
    CpuEngine::new(&golden.checkpoint, options).unwrap()
}

#[test]
fn logits_and_greedy_continuations_match_transformers() {
    for golden in goldens().iter().chain(&shared_goldens()) {
        for kernels in kernel_sets() {
            let mut engine = engine(golden, WeightType::F32, kernels, 2);
            let error = golden.check(&mut engine, &kernels.to_string());
            println!("{} {kernels}: {error:.1e}", golden.name);
        }
    }
}

/// The bits do not depend on threads, instruction sets with fused multiplication, or the split into
/// prompt and appended tokens, in every storage format.
#[test]
fn bits_depend_on_nothing_but_the_tokens() {
    for golden in goldens() {
        let vocab = golden.checkpoint.config.vocab_size;
        for weights in WeightType::ALL {
            let mut expected = None;
            for kernels in kernel_sets() {
                for threads in [1, 3] {
                    let what = format!("{} {weights:?} {kernels} {threads}", golden.name);
                    let mut engine = engine(&golden, weights, kernels, threads);
                    let mut logits = Vec::new();
                    engine.forward(&golden.ids, &mut logits).unwrap();
                    assert!(logits.iter().all(|x| x.is_finite()), "{what}");
                    if sums_as_most(kernels, weights) {
                        let found = bits(&logits);
                        let expected = expected.get_or_insert_with(|| found.clone());
                        assert!(found == *expected, "{what}");
                    }
                    let mut alone = Vec::new();
                    for batch in 1..=16 {
                        engine.truncate(0);
                        for (i, ids) in golden.ids.chunks(batch).enumerate() {
                            engine.forward(ids, &mut alone).unwrap();
                            let expected = &logits[i * batch * vocab..][..alone.len()];
                            assert!(bits(&alone) == bits(expected), "{what}: {batch} a call");
                        }
                    }
                    let len = golden.ids.len();
                    engine.truncate(0);
                    engine.prefill(&golden.ids[..len - 7]).unwrap();
                    engine.prompt(&golden.ids[len - 7..], &mut alone).unwrap();
                    let last = &logits[(len - 1) * vocab..];
                    assert!(bits(&alone) == bits(last), "{what}: prompt");
                }
            }
        }
    }
}

/// bf16 weights of common sizes are exact in half precision, and activations are not rounded.
#[test]
fn halves_stay_closer() {
    for golden in goldens() {
        let mut reference = ReferenceEngine::new(&golden.checkpoint, golden.context).unwrap();
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        reference.forward(&golden.ids, &mut expected).unwrap();
        let mut engine = engine(&golden, WeightType::F16, KernelChoice::Auto, 1);
        engine.forward(&golden.ids, &mut found).unwrap();
        let error = relative_error(&found, &expected);
        assert!(error < 1e-3, "{}: {error}", golden.name);
    }
}

/// bf16 weights are exact in the goldens, so the rest is the rounding of activations.
#[test]
fn bf16_activations_stay_close() {
    for golden in goldens() {
        let mut reference = ReferenceEngine::new(&golden.checkpoint, golden.context).unwrap();
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        reference.forward(&golden.ids, &mut expected).unwrap();
        for kernels in kernel_sets() {
            let mut engine = engine(&golden, WeightType::Bf16, kernels, 1);
            engine.forward(&golden.ids, &mut found).unwrap();
            let error = relative_error(&found, &expected);
            assert!(error < 0.05, "{} {kernels}: {error}", golden.name);
        }
    }
}
