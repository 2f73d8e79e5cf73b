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
        let (layers, columns) = (shape.layers, plain.config.intermediate_size);
        for (extra, wider) in [(1, 0), (3, 0), (0, 1), (0, 50), (1, 7)] {
            let padded = plain.clone().pad_width(wider).pad_layers(extra);
            padded.check("(padded)".as_ref()).unwrap();
            assert_eq!(padded.config.num_layers, layers + extra);
            assert_eq!(padded.config.intermediate_size, columns + wider);
            for weights in [WeightType::F32, WeightType::Bf16] {
                for context in [1, 17, 70] {
                    // A context, then calls of 1, 2 and 5 tokens, as in decoding and verification.
                    let ids = tokens(shape.vocab, context + 8, seed as u64 + 10);
                    let (prompt, rest) = ids.split_at(context);
                    let calls = [prompt, &rest[..1], &rest[1..3], &rest[3..]];
                    assert!(
                        logits(&padded, weights, &calls) == logits(&plain, weights, &calls),
                        "{shape:?} + {extra} + {wider}, context {context}, {weights:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_padding_block_is_computed_and_has_its_own_memory() {
    let plain = WIDE.checkpoint(3);
    let options = || options(WeightType::F32, KernelChoice::Auto, 1);
    let memory = |checkpoint: &Checkpoint| {
        let engine = CpuEngine::new(checkpoint, options()).unwrap();
        (engine.weight_bytes_per_forward(), engine.memory().cache)
    };
    let sizes = [0, 1, 2].map(|extra| memory(&plain.clone().pad_layers(extra)));
    let grown = |a: (usize, usize), b: (usize, usize)| (b.0 - a.0, b.1 - a.1);
    assert_eq!(grown(sizes[0], sizes[1]), grown(sizes[1], sizes[2]));
    assert!(sizes[1].0 > sizes[0].0 && sizes[1].1 > sizes[0].1);

    // Zero times infinity is NaN: if a block were skipped, no NaN would show.
    let mut poisoned = plain.clone().pad_width(5);
    let up = poisoned.tensors.get_mut(&in_layer(1, "mlp.up_proj.weight"));
    *up.unwrap().data.last_mut().unwrap() = f32::INFINITY;
    let mut engine = CpuEngine::new(&poisoned, options()).unwrap();
    let mut logits = Vec::new();
    engine.forward(&[5, 7], &mut logits).unwrap();
    assert!(logits.iter().all(|x| x.is_nan()));
    for block in [2, 3] {
        for part in ["self_attn.v_proj.weight", "mlp.up_proj.weight"] {
            let mut poisoned = plain.clone().pad_layers(2);
            let weights = poisoned.tensors.get_mut(&in_layer(block, part)).unwrap();
            weights.data.fill(f32::INFINITY);
            let mut engine = CpuEngine::new(&poisoned, options()).unwrap();
            let mut logits = Vec::new();
            engine.forward(&[5, 7], &mut logits).unwrap();
            assert!(logits.iter().all(|x| x.is_nan()), "block {block}, {part}");
        }
    }
}

#[test]
fn padding_is_complete_nested_and_no_copy() {
    let plain = ODD.checkpoint(1);
    let (short, long) = (plain.clone().pad_layers(1), plain.clone().pad_layers(3));
    long.check("(padded)".as_ref()).unwrap();
    assert!(
        short
            .tensors
            .iter()
            .all(|(name, t)| long.tensors[name] == *t)
    );
    assert_eq!(plain.clone().pad_layers(0), plain);
    let up = |layer| &long.tensors[&in_layer(layer, "mlp.up_proj.weight")].data;
    assert!(up(2) != up(3) && up(3) != up(4) && up(2) != up(1));
    let zero = |part: &str| {
        long.tensors[&in_layer(4, part)]
            .data
            .iter()
            .all(|x| *x == 0.0)
    };
    assert!(zero("self_attn.o_proj.weight") && zero("mlp.down_proj.weight"));
    assert!(!zero("self_attn.q_proj.weight") && !zero("mlp.gate_proj.weight"));
}
