//! States that enter the last blocks, kept while decoding; last blocks that are replaced while
//! other engines share the rest.

use cpu_engine::{CpuEngine, EngineOptions, PackedWeights};
use lm::{Checkpoint, LanguageModel, LmConfig, Tail, WeightType, random_checkpoint};

fn model(seed: u64) -> Checkpoint {
    let json = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 80,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 67}"#;
    let config = LmConfig::from_json(json, "config.json".as_ref()).unwrap();
    random_checkpoint(&config, seed)
}

fn options(weights: WeightType) -> EngineOptions {
    EngineOptions {
        weights,
        threads: 2,
        max_len: 300,
        ..EngineOptions::default()
    }
}

fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * i * 7 + i) % 67).collect()
}

/// The states are those of the text read at once, whatever the steps by which it came into the
/// cache.
#[test]
fn states_do_not_depend_on_how_the_text_was_read() {
    for weights in [WeightType::F32, WeightType::Bf16, WeightType::Int8] {
        let checkpoint = model(3);
        let text = ids(130);
        for blocks in 1..=3 {
            let fresh = || {
                let mut engine = CpuEngine::new(&checkpoint, options(weights)).unwrap();
                engine.keep_states(blocks).unwrap();
                engine
            };
            let expected = fresh().states_of(&text).unwrap().to_vec();
            assert_eq!(expected.len(), 130 * 32);
            let mut engine = fresh();
            let mut logits = Vec::new();
            // A prompt, a draft that is cut back, other tokens instead, a rest that was never read.
            engine.prefill(&text[..60]).unwrap();
            engine.forward(&[5, 6, 7, 8], &mut logits).unwrap();
            engine.truncate(60);
            engine.forward(&text[60..62], &mut logits).unwrap();
            engine.prompt(&text[62..100], &mut logits).unwrap();
            engine.forward(&[9, 9, 9], &mut logits).unwrap();
            assert_eq!(
                engine.states_of(&text).unwrap(),
                expected,
                "{weights} {blocks}"
            );
            // A shorter text, then another one.
            assert_eq!(engine.states_of(&text[..10]).unwrap(), &expected[..10 * 32]);
            let other: Vec<u32> = text.iter().rev().copied().collect();
            let of_other = engine.states_of(&other).unwrap().to_vec();
            assert_eq!(of_other, fresh().states_of(&other).unwrap());
        }
    }
}

#[test]
fn a_text_that_is_refused_leaves_the_cache() {
    let mut engine = CpuEngine::new(&model(4), options(WeightType::F32)).unwrap();
    engine.keep_states(1).unwrap();
    engine.prefill(&ids(10)).unwrap();
    let refused = [&ids(10)[..3], &[9999]].concat();
    assert!(engine.states_of(&refused).is_err());
    assert_eq!(engine.len(), 10);
}

#[test]
fn sequences_together_keep_their_own_states() {
    let packed = PackedWeights::new(&model(4), &options(WeightType::F32)).unwrap();
    let engine = || {
        let mut engine = CpuEngine::with_weights(packed.clone(), options(WeightType::F32)).unwrap();
        engine.keep_states(1).unwrap();
        engine
    };
    let (text, other) = (ids(20), ids(31).split_off(9));
    let (mut first, mut second, mut alone) = (engine(), engine(), engine());
    let mut logits = Vec::new();
    let mut both: [(&mut CpuEngine, &[u32]); 2] = [(&mut first, &text), (&mut second, &other)];
    CpuEngine::forward_together(&mut both, &mut logits).unwrap();
    for (engine, ids) in [(&mut first, &text), (&mut second, &other)] {
        let kept = engine.states_of(ids).unwrap().to_vec();
        assert_eq!(kept, alone.states_of(ids).unwrap());
    }
}

/// Blocks below the last ones are shared, and an engine with the old last blocks keeps them.
#[test]
fn last_blocks_are_replaced_for_one_engine() {
    for weights in [
        WeightType::F32,
        WeightType::Bf16,
        WeightType::Int8,
        WeightType::Int4,
    ] {
        let (old, new) = (model(5), model(6));
        let tail = Tail::of(&new, 2).unwrap();
        let mut merged = old.clone();
        tail.write_over(&mut merged).unwrap();
        let packed = PackedWeights::new(&old, &options(weights)).unwrap();
        let mut engine = CpuEngine::with_weights(packed.clone(), options(weights)).unwrap();
        let mut beside = CpuEngine::with_weights(packed.clone(), options(weights)).unwrap();
        engine.load_tail(&tail).unwrap();
        let text = ids(17);
        let logits = |engine: &mut CpuEngine| {
            let mut logits = Vec::new();
            engine.truncate(0);
            engine.forward(&text, &mut logits).unwrap();
            logits
        };
        let of = |checkpoint: &Checkpoint| CpuEngine::new(checkpoint, options(weights)).unwrap();
        assert_eq!(logits(&mut engine), logits(&mut of(&merged)), "{weights}");
        assert_eq!(logits(&mut beside), logits(&mut of(&old)), "{weights}");
        // Loads all weights while some are shared with another engine.
        engine.load_weights(&new).unwrap();
        assert_eq!(logits(&mut engine), logits(&mut of(&new)), "{weights}");
        assert_eq!(logits(&mut beside), logits(&mut of(&old)), "{weights}");
        let replaced = packed.with_tail(&tail, &options(weights)).unwrap();
        let mut third = CpuEngine::with_weights(replaced, options(weights)).unwrap();
        assert_eq!(logits(&mut third), logits(&mut of(&merged)), "{weights}");
    }
}
