//! Guarantees of the engine: bits, truncation, memory that grows, weights that change.

use crate::support;

use gpu_engine::{Gpu, GpuEngine, GpuWeights};
use lm::{
    Checkpoint, DeviceLogits, KvType, LanguageModel, LmConfig, LmError, ModelError, WeightType,
    random_checkpoint,
};
use support::{FORMATS, engine, gpu, in_batches, options};

/// A shape in which no width is a multiple of another.
const ODD: &str = r#"{"model_type": "qwen2", "hidden_size": 37, "intermediate_size": 75,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10,
    "vocab_size": 101, "max_position_embeddings": 4096, "tie_word_embeddings": true}"#;
const EVEN: &str = r#"{"model_type": "llama", "hidden_size": 128, "intermediate_size": 160,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 96,
    "vocab_size": 256, "max_position_embeddings": 4096, "tie_word_embeddings": false}"#;

/// Random weights, large enough that attention is far from uniform.
fn checkpoint(json: &str, seed: u64) -> Checkpoint {
    let config = LmConfig::from_json(json, "config.json".as_ref()).unwrap();
    let mut checkpoint = random_checkpoint(&config, seed);
    for (name, tensor) in &mut checkpoint.tensors {
        if tensor.shape.len() == 2 {
            tensor.data.iter_mut().for_each(|x| *x *= 6.0);
        } else if name.ends_with("bias") {
            let values = tensor.data.iter_mut().enumerate();
            values.for_each(|(i, x)| *x = (i % 7) as f32 * 0.1 - 0.3);
        }
    }
    checkpoint
}

fn tokens(vocab: usize, count: usize, seed: u32) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % vocab as u32
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn the_contract_of_engines_is_kept() {
    let Some(gpu) = gpu() else { return };
    let odd = checkpoint(ODD, 3);
    for format in FORMATS {
        let made = || engine(&gpu, &odd, format, 40);
        let kept = lm::conformance::check(made);
        kept.unwrap_or_else(|broken| panic!("{format:?}: {broken}"));
    }
}

fn bits_do_not_depend_on_batches(json: &str, weights: WeightType) {
    let Some(gpu) = gpu() else { return };
    let checkpoint = checkpoint(json, 3);
    let vocab = checkpoint.config.vocab_size;
    let ids = tokens(vocab, 150, 5);
    let mut engine = engine(&gpu, &checkpoint, weights, 512);
    let expected = in_batches(&mut engine, &ids, ids.len());
    for batch in [1, 2, 3, 4, 5, 7, 9, 12, 16, 17, 33, 36, 37] {
        let found = in_batches(&mut engine, &ids, batch);
        assert!(found == expected, "{batch} a call");
    }
    let mut logits = Vec::new();
    for (keep, draft) in [(149, 1), (140, 9), (64, 16), (63, 5), (1, 3), (0, 16)] {
        engine.truncate(0);
        engine.prefill(&ids[..keep]).unwrap();
        assert!(engine.state().is_empty());
        // A rejected draft goes in and out of the cache.
        engine
            .forward(&tokens(vocab, draft, 77), &mut logits)
            .unwrap();
        engine.truncate(keep);
        let end = ids.len().min(keep + 16);
        engine.forward(&ids[keep..end], &mut logits).unwrap();
        let found: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
        let same = found == expected[keep * vocab..end * vocab];
        assert!(same, "{keep} tokens appended");
        assert_eq!(engine.state().len(), checkpoint.config.hidden_size);
    }
}

/// A test for each format and shape, because a driver takes long to compile all of their kernels
/// one after the other.
macro_rules! bits_do_not_depend_on_batches {
    ($($name:ident: $json:ident, $weights:ident;)*) => {
        mod bits_do_not_depend_on_batches_or_on_what_was_cut {
            use super::*;
            $(#[test]
            fn $name() {
                bits_do_not_depend_on_batches($json, WeightType::$weights);
            })*
        }
    };
}

bits_do_not_depend_on_batches! {
    odd_f32: ODD, F32;
    odd_f16: ODD, F16;
    odd_bf16: ODD, Bf16;
    odd_int8: ODD, Int8;
    odd_int4: ODD, Int4;
    even_f32: EVEN, F32;
    even_f16: EVEN, F16;
    even_bf16: EVEN, Bf16;
    even_int8: EVEN, Int8;
    even_int4: EVEN, Int4;
}

/// Recordings serve other positions, other numbers of tokens, a longer context, and other weights.
#[test]
fn replays_give_the_bits_of_launches() {
    let Some(gpu) = gpu() else { return };
    let (first, second) = (checkpoint(EVEN, 5), checkpoint(EVEN, 6));
    let ids = tokens(256, 600, 9);
    let engine = |replay| {
        let options = gpu_engine::GpuOptions {
            replay,
            ..options(&gpu, WeightType::Bf16, 700)
        };
        GpuEngine::new(&first, options).unwrap()
    };
    let (mut launched, mut replayed) = (engine(false), engine(true));
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let mut at = 0;
        for batch in [5, 1, 4, 5, 2, 64, 5, 3, 1, 400, 5, 1, 16, 5] {
            for (engine, logits) in [(&mut launched, &mut expected), (&mut replayed, &mut found)] {
                engine.truncate(at);
                match batch > 16 {
                    true => engine.prefill(&ids[at..at + batch]).unwrap(),
                    false => engine.forward(&ids[at..at + batch], logits).unwrap(),
                }
            }
            assert_eq!(found, expected, "round {round}, {batch} tokens at {at}");
            at += batch;
        }
        match round {
            0 => [&mut launched, &mut replayed].map(|engine| engine.truncate(0)),
            _ => [&mut launched, &mut replayed].map(|e| e.load_weights(&second).unwrap()),
        };
    }
}

/// Kernels compiled beforehand give the same results, and leave nothing in the cache.
#[test]
fn preparing_changes_nothing() {
    let Some(gpu) = gpu() else { return };
    let checkpoint = checkpoint(ODD, 17);
    let ids = tokens(101, 40, 18);
    let mut engine = engine(&gpu, &checkpoint, WeightType::Int8, 64);
    let expected = in_batches(&mut engine, &ids, 5);
    engine.prepare().unwrap();
    assert!(engine.is_empty() && engine.state().is_empty());
    assert!(in_batches(&mut engine, &ids, 5) == expected);
    let timed = engine.time_steps(5, 20, 2, Some([4, 2])).unwrap();
    let launches: usize = timed.steps.iter().map(|step| step.launches).sum();
    assert_eq!((timed.launches, timed.cubes), (launches, [4, 2]));
    assert!(timed.ms > 0.0 && timed.steps.iter().all(|step| step.launches > 0));
    assert!(
        engine.time_steps(37, 0, 1, None).is_err() && engine.time_steps(5, 60, 1, None).is_err()
    );
    assert!(in_batches(&mut engine, &ids, 5) == expected);
}

/// Drafter and target in turn: recordings of both exist side by side, caches grow, weights are
/// replaced.
#[test]
fn two_engines_replay_in_turn() {
    let Some(gpu) = gpu() else { return };
    let models = [checkpoint(ODD, 11), checkpoint(EVEN, 12)];
    let others = [checkpoint(ODD, 13), checkpoint(EVEN, 14)];
    let engines = |replay| {
        [&models[0], &models[1]].map(|model| {
            let options = gpu_engine::GpuOptions {
                replay,
                ..options(&gpu, WeightType::Bf16, 900)
            };
            GpuEngine::new(model, options).unwrap()
        })
    };
    let mut pairs = [engines(false), engines(true)];
    let ids = tokens(101, 900, 15);
    for round in 0..2 {
        let mut at = 0;
        // The cache has room for 512 positions at first.
        for batch in [300, 5, 1, 1, 5, 1, 200, 17, 5, 1, 33, 1] {
            let found = pairs.each_mut().map(|pair| {
                pair.each_mut().map(|engine| {
                    let mut logits = Vec::new();
                    engine.truncate(at);
                    match batch > 36 {
                        true => engine.prefill(&ids[at..at + batch]).unwrap(),
                        false => engine.forward(&ids[at..at + batch], &mut logits).unwrap(),
                    }
                    logits
                })
            });
            assert!(
                found[0] == found[1],
                "round {round}, {batch} tokens at {at}"
            );
            at += batch;
        }
        for pair in &mut pairs {
            // The first alone, then both; its recordings and those of the other stay valid.
            for (engine, other) in pair.iter_mut().zip(&others).take(1 + round) {
                engine.load_weights(other).unwrap();
            }
        }
    }
}

/// A row of more columns than one dimension of a grid has cubes.
#[test]
fn many_columns_are_all_there() {
    let Some(gpu) = gpu() else { return };
    let json = r#"{"model_type": "llama", "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8,
        "vocab_size": 300000, "max_position_embeddings": 64, "tie_word_embeddings": false}"#;
    let checkpoint = checkpoint(json, 21);
    let mut engine = engine(&gpu, &checkpoint, WeightType::F32, 32);
    let state_times_head = |state: &[f32], column: usize| -> f32 {
        let head = &checkpoint.tensors[lm::HEAD].data[column * 8..][..8];
        head.iter().zip(state).map(|(w, x)| w * x).sum()
    };
    let mut logits = Vec::new();
    for count in [1, 5] {
        engine.truncate(0);
        engine
            .forward(&[7, 299_999, 131_072, 5, 6][..count], &mut logits)
            .unwrap();
        let last = &logits[(count - 1) * 300_000..];
        for column in [0, 131_071, 131_072, 262_143, 262_144, 299_999] {
            let expected = state_times_head(engine.state(), column);
            let difference = (last[column] - expected).abs();
            assert!(
                difference < 1e-4,
                "{column}: {} and {expected}",
                last[column]
            );
        }
    }
}

#[test]
fn the_cache_grows_and_keeps_what_it_holds() {
    let Some(gpu) = gpu() else { return };
    let checkpoint = checkpoint(EVEN, 4);
    let ids = tokens(256, 1300, 6);
    for kv in [KvType::F32, KvType::F16] {
        let options = |max_len| gpu_engine::GpuOptions {
            kv,
            ..options(&gpu, WeightType::Bf16, max_len)
        };
        let mut engine = GpuEngine::new(&checkpoint, options(1300)).unwrap();
        let memory = engine.memory();
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for ids in ids[..1290].chunks(301) {
            engine.prefill(ids).unwrap();
        }
        engine.forward(&ids[1290..], &mut found).unwrap();
        assert!(engine.memory()[1] > memory[1]);
        engine.truncate(0);
        engine.prefill(&ids[..1290]).unwrap();
        engine.forward(&ids[1290..], &mut expected).unwrap();
        assert_eq!(found, expected, "{kv}");
        assert!(matches!(
            engine.prefill(&[0]),
            Err(ModelError::ContextFull {
                needed: 1301,
                max_len: 1300
            })
        ));
    }
}

#[test]
fn a_narrow_cache_stays_close() {
    let Some(gpu) = gpu() else { return };
    let checkpoint = checkpoint(EVEN, 8);
    let ids = tokens(256, 90, 6);
    let logits = |kv| {
        let options = gpu_engine::GpuOptions {
            kv,
            ..options(&gpu, WeightType::F32, 128)
        };
        let mut logits = Vec::new();
        let mut engine = GpuEngine::new(&checkpoint, options).unwrap();
        engine.forward(&ids, &mut logits).unwrap();
        logits
    };
    let (wide, narrow) = (logits(KvType::F32), logits(KvType::F16));
    let differences = wide.iter().zip(&narrow).map(|(a, b)| (a - b).abs());
    let worst = differences.fold(0.0, f32::max);
    let scale = wide.iter().fold(0.0, |most, x| x.abs().max(most));
    assert!(worst > 0.0 && worst < 0.01 * scale, "{worst} of {scale}");
}

#[test]
fn new_weights_take_effect_and_empty_the_cache() {
    let Some(gpu) = gpu() else { return };
    for json in [ODD, EVEN] {
        let (first, second) = (checkpoint(json, 1), checkpoint(json, 2));
        let ids = tokens(first.config.vocab_size, 9, 0);
        for weights in FORMATS {
            let options = options(&gpu, weights, 64);
            let [a, b] = [&first, &second].map(|checkpoint| {
                let mut fresh = GpuEngine::new(checkpoint, options.clone()).unwrap();
                in_batches(&mut fresh, &ids, 9)
            });
            assert!(a != b);
            let mut engine = engine(&gpu, &first, weights, 64);
            assert!(in_batches(&mut engine, &ids, 4) == a);
            // In place.
            engine.load_weights(&second).unwrap();
            assert!(engine.is_empty() && engine.state().is_empty());
            assert!(in_batches(&mut engine, &ids, 4) == b);
            // The weights are shared: the other owners keep theirs.
            let shared = engine.packed();
            let mut other = GpuEngine::with_weights(shared, options.clone()).unwrap();
            engine.load_weights(&first).unwrap();
            assert!(in_batches(&mut engine, &ids, 4) == a);
            assert!(in_batches(&mut other, &ids, 4) == b);
            let mut packed = GpuWeights::new(&second, &options).unwrap();
            engine.swap_weights(&mut packed).unwrap();
            assert!(in_batches(&mut engine, &ids, 4) == b);
            engine.swap_weights(&mut packed).unwrap();
            assert!(in_batches(&mut engine, &ids, 4) == a);
        }
        let other = match json == ODD {
            true => EVEN,
            false => ODD,
        };
        let mut engine = engine(&gpu, &first, WeightType::F32, 64);
        let refused = engine.load_weights(&checkpoint(other, 0));
        assert!(matches!(refused, Err(LmError::OtherModel)));
        // Few machines have a second device.
        if let Ok(elsewhere) = Gpu::open(1) {
            let there = options(&elsewhere, WeightType::F32, 64);
            let mut packed = GpuWeights::new(&second, &there).unwrap();
            let refused = engine.swap_weights(&mut packed);
            assert!(matches!(refused, Err(LmError::OtherModel)));
        }
    }
}

#[test]
fn adapters_have_numbers_and_memory() {
    let Some(gpu) = gpu() else { return };
    let adapters = gpu_engine::adapters();
    assert_eq!(adapters[0].software, gpu.is_software());
    let beyond = Gpu::open(adapters.len() + 98).err();
    assert!(matches!(
        beyond,
        Some(gpu_engine::GpuError::NoSuchAdapter { count, .. }) if count == adapters.len()
    ));
    let probe = gpu_engine::GpuProbe::new(&gpu, 1 << 22).unwrap();
    assert!(probe.pass().unwrap() > 0.0);
}

#[test]
fn bad_calls_are_refused_and_leave_the_cache_alone() {
    let Some(gpu) = gpu() else { return };
    let mut engine = engine(&gpu, &checkpoint(EVEN, 0), WeightType::F32, 8);
    let mut logits = Vec::new();
    engine.forward(&[1, 2, 3], &mut logits).unwrap();
    let outside = engine.forward(&[1, 256], &mut logits);
    assert!(matches!(
        outside,
        Err(ModelError::TokenOutOfRange { id: 256, .. })
    ));
    let long = engine.forward(&[0; 6], &mut logits);
    assert!(matches!(
        long,
        Err(ModelError::ContextFull { needed: 9, .. })
    ));
    assert_eq!(engine.len(), 3);
    engine.forward(&[0; 5], &mut logits).unwrap();
    assert_eq!((engine.len(), logits.len()), (8, 5 * 256));
    engine.forward(&[], &mut logits).unwrap();
    assert!(logits.is_empty());
}

/// The best column of a row is that of its logits, and fetched rows are those of a forward.
#[test]
fn logits_that_stay_are_those_that_are_fetched() {
    let Some(gpu) = gpu() else { return };
    let best_of = |row: &[f32]| {
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter().position(|x| *x == best).map(|at| at as u32)
    };
    // The second vocabulary has several chunks of columns, and equal rows: the lowest column
    // counts.
    let wide = EVEN.replace("\"vocab_size\": 256", "\"vocab_size\": 9001");
    for json in [ODD, &wide] {
        let mut checkpoint = checkpoint(json, 7);
        let vocab = checkpoint.config.vocab_size;
        if let Some(head) = checkpoint.tensors.get_mut(lm::HEAD) {
            let (first, second) = head.data.split_at_mut(vocab / 2 * 128);
            second[..first.len()].copy_from_slice(first);
        }
        let ids = tokens(vocab, 36, 4);
        let mut engine = engine(&gpu, &checkpoint, WeightType::F32, 128);
        let (mut logits, mut some, mut best) = (Vec::new(), Vec::new(), Vec::new());
        for count in [1, 3, 16, 36] {
            engine.truncate(0);
            engine.forward(&ids[..count], &mut logits).unwrap();
            let state = engine.state().to_vec();
            engine.truncate(0);
            let fetched = engine.fetched_bytes();
            let device = engine.device_logits(count).unwrap();
            device.score(&ids[..count]).unwrap();
            device.best(&mut best).unwrap();
            let expected: Vec<Option<u32>> = logits.chunks(vocab).map(best_of).collect();
            assert_eq!(best, expected);
            assert!(engine.fetched_bytes() - fetched <= (count * 24) as u64);
            assert!(engine.state().is_empty());
            for rows in [0..1, count - 1..count, 0..count, 0..0] {
                let device = engine.device_logits(count).unwrap();
                device.rows(rows.clone(), &mut some).unwrap();
                assert_eq!(some, logits[rows.start * vocab..rows.end * vocab]);
            }
            assert_eq!(engine.state(), state);
            let beyond = engine.device_logits(count).unwrap();
            assert!(beyond.rows(0..count + 1, &mut some).is_err());
        }
        assert!(engine.device_logits(37).is_none());
        assert!(engine.score(&ids).is_ok() && engine.score(&[0; 37]).is_err());
    }
}
