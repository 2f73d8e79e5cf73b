//! Padding changes only the cost.

use crate::cpu_support;

use cpu_engine::{CpuEngine, KernelChoice};
use cpu_support::*;
use lm::{Checkpoint, LanguageModel, WeightType, in_layer};

fn logits(checkpoint: &Checkpoint, weights: WeightType, calls: &[&[u32]]) -> Vec<u32> {
    let mut engine = CpuEngine::new(checkpoint, options(weights, KernelChoice::Auto, 2)).unwrap();
    let mut all = Vec::new();
    for ids in calls {
        let mut logits = Vec::new();
        engine.forward(ids, &mut logits).unwrap();
        all.extend(bits(&logits));
    }
    all
}

/// Llama without biases, Qwen2 with; untied and tied heads.
fn shapes() -> [Shape; 6] {
    [
        EVEN,
        Shape { tied: true, ..EVEN },
        ODD,
        Shape { tied: false, ..ODD },
        WIDE,
        Shape { tied: true, ..WIDE },
    ]
}

#[test]
fn logits_are_those_of_the_unpadded_model_bit_for_bit() {
    for (seed, shape) in shapes().into_iter().enumerate() {
        let plain = shape.checkpoint(seed as u64);
        let columns = plain.config.intermediate_size;
        for wider in [1, 7, 50] {
            let padded = plain.clone().pad_width(wider);
            padded.check("(padded)".as_ref()).unwrap();
            assert_eq!(padded.config.intermediate_size, columns + wider);
            for weights in [WeightType::F32, WeightType::Bf16] {
                for context in [1, 17, 70] {
                    // A context, then calls of 1, 2 and 5 tokens, as in decoding and verification.
                    let ids = tokens(shape.vocab, context + 8, seed as u64 + 10);
                    let (prompt, rest) = ids.split_at(context);
                    let calls = [prompt, &rest[..1], &rest[1..3], &rest[3..]];
                    assert!(
                        logits(&padded, weights, &calls) == logits(&plain, weights, &calls),
                        "{shape:?} + {wider}, context {context}, {weights:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn padding_columns_are_computed() {
    // Zero times infinity is NaN: if a column were skipped, no NaN would show.
    let mut poisoned = WIDE.checkpoint(3).pad_width(5);
    let up = poisoned.tensors.get_mut(&in_layer(1, "mlp.up_proj.weight"));
    *up.unwrap().data.last_mut().unwrap() = f32::INFINITY;
    let options = options(WeightType::F32, KernelChoice::Auto, 1);
    let mut engine = CpuEngine::new(&poisoned, options).unwrap();
    let mut logits = Vec::new();
    engine.forward(&[5, 7], &mut logits).unwrap();
    assert!(logits.iter().all(|x| x.is_nan()));
}

#[test]
fn no_padding_changes_nothing() {
    let plain = ODD.checkpoint(1);
    assert_eq!(plain.clone().pad_width(0), plain);
}
