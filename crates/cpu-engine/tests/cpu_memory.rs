//! Memory of an engine: weights from files, shared weights, a KV cache that grows.

use crate::cpu_support;

use cpu_engine::{Compact, CpuEngine, EngineOptions, KernelChoice, MemoryUse, PackedWeights};
use cpu_support::*;
use lm::{
    Checkpoint, KvType, LanguageModel, LmConfig, LmError, StoredCheckpoint, StoredType,
    TensorSource, WeightType, write_model,
};

const WEIGHTS: [WeightType; 4] = [
    WeightType::F32,
    WeightType::Bf16,
    WeightType::Int8,
    WeightType::Int4,
];

/// Longer than two segments of the cache.
const LONG: usize = 600;

fn with_kv(kv: KvType, kernels: KernelChoice, threads: usize) -> EngineOptions {
    EngineOptions {
        kv,
        max_len: 1000,
        ..options(WeightType::Bf16, kernels, threads)
    }
}

fn in_batches(engine: &mut CpuEngine, ids: &[u32], batch: usize) -> Vec<u32> {
    engine.truncate(0);
    let (mut all, mut logits) = (Vec::new(), Vec::new());
    for ids in ids.chunks(batch) {
        engine.forward(ids, &mut logits).unwrap();
        all.extend(bits(&logits));
    }
    all
}

/// A context over several segments, read in batches that end before, at and after their boundaries.
#[test]
fn bits_do_not_depend_on_the_batch_in_either_cache() {
    for shape in [EVEN, ODD, WIDE] {
        let checkpoint = shape.bf16_checkpoint(31);
        let ids = tokens(shape.vocab, LONG, 7);
        for kernels in kernel_sets() {
            for kv in [KvType::F32, KvType::F16] {
                let mut expected = None;
                for (threads, batches) in [(1, [5, 600, 1]), (2, [3, 16, 9]), (3, [48, 7, 2])] {
                    let mut engine =
                        CpuEngine::new(&checkpoint, with_kv(kv, kernels, threads)).unwrap();
                    for batch in batches {
                        let found = in_batches(&mut engine, &ids, batch);
                        let expected = expected.get_or_insert_with(|| found.clone());
                        assert!(
                            found == *expected,
                            "{shape:?} {kernels} {kv} {threads} {batch}"
                        );
                        // Cut back into an earlier segment, then extended over its end again.
                        engine.truncate(250);
                        let mut logits = Vec::new();
                        engine.forward(&ids[250..262], &mut logits).unwrap();
                        let range = 250 * shape.vocab..262 * shape.vocab;
                        assert!(bits(&logits) == expected[range], "{kernels} {kv}: cut back");
                    }
                }
            }
        }
    }
}

/// Kernel sets that round alike give the same bits with a half-precision cache.
#[test]
fn half_precision_is_close_and_equal_on_avx2_and_avx512() {
    let checkpoint = WIDE.checkpoint(5);
    let ids = tokens(WIDE.vocab, 300, 2);
    let run = |kv, kernels| {
        let options = EngineOptions {
            weights: WeightType::F32,
            ..with_kv(kv, kernels, 2)
        };
        let mut logits = Vec::new();
        let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
        engine.forward(&ids, &mut logits).unwrap();
        logits
    };
    let mut vectors = Vec::new();
    for kernels in kernel_sets() {
        let (wide, half) = (run(KvType::F32, kernels), run(KvType::F16, kernels));
        let error = relative_error(&half, &wide);
        assert!(error > 0.0 && error < 2e-3, "{kernels}: {error}");
        if kernels != KernelChoice::Portable {
            vectors.push(bits(&half));
        }
    }
    assert!(vectors.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn numbers_beyond_half_precision_stay_finite() {
    let mut checkpoint = EVEN.checkpoint(6);
    let name = "model.layers.0.self_attn.v_proj.weight";
    let values = checkpoint.tensors.get_mut(name).unwrap();
    values.data.iter_mut().for_each(|x| *x *= 1e7);
    let mut engine =
        CpuEngine::new(&checkpoint, with_kv(KvType::F16, KernelChoice::Auto, 1)).unwrap();
    let mut logits = Vec::new();
    engine.forward(&[1, 2, 3], &mut logits).unwrap();
    assert!(logits.iter().all(|x| x.is_finite()));
}

/// The cache holds whole segments of the tokens so far, and its size is as stated beforehand.
#[test]
fn the_cache_grows_with_the_context() {
    let checkpoint = EVEN.checkpoint(1);
    for (kv, bytes_of_number) in [(KvType::F32, 4), (KvType::F16, 2)] {
        let options = with_kv(kv, KernelChoice::Auto, 2);
        let mut engine = CpuEngine::new(&checkpoint, options.clone()).unwrap();
        let of_token = 2 * EVEN.layers * EVEN.kv_heads * EVEN.head_dim * bytes_of_number;
        let ids = tokens(EVEN.vocab, 1000, 1);
        let mut logits = Vec::new();
        for (len, segments) in [(1, 1), (256, 1), (257, 2), (600, 3), (1000, 4)] {
            engine
                .forward(&ids[engine.len()..len], &mut logits)
                .unwrap();
            assert_eq!(
                engine.memory().cache,
                segments * 256 * of_token,
                "{kv} at {len}"
            );
        }
        let memory = engine.memory();
        let expected = MemoryUse::expected(engine.config(), &options);
        assert_eq!(memory.cache, expected.cache);
        assert_eq!(
            memory,
            MemoryUse {
                weights: memory.weights,
                ..expected
            }
        );
        engine.truncate(0);
        assert_eq!(engine.memory(), memory);
    }
}

#[test]
fn a_long_context_takes_no_memory_before_it_is_there() {
    let mut config = EVEN.config();
    config.max_position_embeddings = 131_072;
    let checkpoint = lm::random_checkpoint(&config, 1);
    let options = EngineOptions {
        max_len: usize::MAX,
        ..options(WeightType::F32, KernelChoice::Auto, 1)
    };
    let expected = MemoryUse::expected(&config, &options);
    let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
    assert_eq!(engine.max_len(), 131_072);
    let mut logits = Vec::new();
    engine
        .forward(&tokens(EVEN.vocab, 300, 1), &mut logits)
        .unwrap();
    let memory = engine.memory();
    assert!(
        100 * memory.cache < expected.cache,
        "{memory:?} {expected:?}"
    );
    assert!(memory.cache + memory.scratch < 1 << 20, "{memory:?}");
}

#[test]
fn weights_take_what_is_stated_beforehand() {
    for shape in [EVEN, ODD, WIDE] {
        for weights in WEIGHTS {
            let options = EngineOptions {
                compact: Compact::Off,
                ..options(weights, KernelChoice::Auto, 1)
            };
            let engine = CpuEngine::new(&shape.checkpoint(2), options.clone()).unwrap();
            let stated = MemoryUse::expected(engine.config(), &options).weights as f64;
            // The stated size, with the gaps between matrices and the biases' padding.
            let ratio = engine.memory().weights as f64 / stated;
            assert!(
                (0.98..=1.02).contains(&ratio),
                "{shape:?} {weights}: {ratio}"
            );
        }
    }
}

/// The packed bits are the same for any source of the weights and any number of threads.
#[test]
fn weights_from_files_are_packed_like_those_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    for shape in [EVEN, ODD, WIDE] {
        let checkpoint = shape.bf16_checkpoint(3);
        write_model(&checkpoint, folder.path(), StoredType::Bf16, 20_000).unwrap();
        let stored = StoredCheckpoint::open(folder.path()).unwrap();
        assert!(stored.files().paths().count() > 2);
        let ids = tokens(shape.vocab, 20, 3);
        for weights in WEIGHTS {
            for compact in [Compact::On, Compact::Off] {
                let logits = |source: &dyn TensorSource, threads| {
                    let options = EngineOptions {
                        compact,
                        ..options(weights, KernelChoice::Auto, threads)
                    };
                    let mut engine = CpuEngine::new(source, options).unwrap();
                    in_batches(&mut engine, &ids, 20)
                };
                let expected = logits(&checkpoint, 1);
                for threads in [1, 3] {
                    assert!(logits(&stored, threads) == expected, "{shape:?} {weights}");
                }
            }
        }
        drop(stored);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

/// A file that is cut after it was opened is an error when its rows are read.
#[test]
fn a_file_that_shrinks_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = WIDE.bf16_checkpoint(3);
    checkpoint.save(folder.path(), StoredType::Bf16).unwrap();
    let stored = StoredCheckpoint::open(folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(200_000).unwrap();
    for threads in [1, 2] {
        let options = options(WeightType::Int8, KernelChoice::Auto, threads);
        let Err(error) = CpuEngine::new(&stored, options) else {
            panic!("the file is too short");
        };
        assert!(error.to_string().contains("model.safetensors"), "{error}");
    }
}

#[test]
fn engines_share_weights_until_one_is_loaded_with_others() {
    let (first, second) = (EVEN.checkpoint(1), EVEN.checkpoint(2));
    let options = options(WeightType::F32, KernelChoice::Auto, 1);
    let ids = tokens(EVEN.vocab, 9, 1);
    let alone = |checkpoint: &Checkpoint| {
        in_batches(
            &mut CpuEngine::new(checkpoint, options.clone()).unwrap(),
            &ids,
            9,
        )
    };
    let expected = [alone(&first), alone(&second)];
    let packed = PackedWeights::new(&first, &options).unwrap();
    let weak = packed.downgrade();
    let mut one = CpuEngine::with_weights(packed, options.clone()).unwrap();
    let again = weak.upgrade().unwrap();
    let mut other = CpuEngine::with_weights(again, options.clone()).unwrap();
    assert!(in_batches(&mut one, &ids, 9) == expected[0]);
    one.load_weights(&second).unwrap();
    assert!(one.state().is_empty(), "a state of the old weights");
    assert!(in_batches(&mut one, &ids, 9) == expected[1]);
    assert!(in_batches(&mut other, &ids, 9) == expected[0]);
    let mut own = one.packed();
    other.swap_weights(&mut own).unwrap();
    assert!(in_batches(&mut other, &ids, 9) == expected[1]);
    drop((own, other));
    assert!(weak.upgrade().is_none());

    let narrow = EngineOptions {
        weights: WeightType::Int8,
        ..options
    };
    let wrong = CpuEngine::with_weights(one.packed(), narrow);
    assert!(matches!(wrong, Err(LmError::OtherModel)));
}

#[test]
fn what_an_8b_model_will_take_is_known() {
    let json = serde_json::json!({
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128_256, "max_position_embeddings": 8192,
    });
    let config = LmConfig::from_json(&json.to_string(), "config.json".as_ref()).unwrap();
    let expected = |weights, kv| {
        let options = EngineOptions {
            weights,
            kv,
            max_len: 8192,
            ..EngineOptions::default()
        };
        MemoryUse::expected(&config, &options)
    };
    // 8.03e9 parameters; 8-bit matrices have scales of 1/64 in addition, 4-bit ones of 1/32 of
    // their bytes.
    let sizes = [
        (WeightType::F32, 32.1e9),
        (WeightType::Bf16, 16.1e9),
        (WeightType::Int8, 8.7e9),
        (WeightType::Int4, 5.1e9),
    ];
    for (weights, bytes) in sizes {
        let found = expected(weights, KvType::F32).weights as f64;
        assert!((found / bytes - 1.0).abs() < 0.02, "{weights}: {found}");
    }
    // 2 * 32 blocks * 8 heads * 128 numbers per token.
    assert_eq!(
        expected(WeightType::Int4, KvType::F32).cache,
        8192 * (256 << 10)
    );
    assert_eq!(
        expected(WeightType::Int4, KvType::F16).cache,
        8192 * (128 << 10)
    );
}
