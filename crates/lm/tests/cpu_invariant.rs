//! Batch invariance: a position's logits have the same bits however they were computed.

mod cpu_support;

use cpu_support::*;
use lm::{CpuEngine, DecodeEngine, EngineOptions, KernelChoice, WeightType};
use proptest::prelude::*;

const BATCHES: [usize; 7] = [1, 2, 3, 5, 8, 9, 16];
const WEIGHTS: [WeightType; 4] = [
    WeightType::F32,
    WeightType::Bf16,
    WeightType::Int8,
    WeightType::Int4,
];

/// Logits of all `ids`, computed `batch` at a time from an empty cache.
fn in_batches(engine: &mut CpuEngine, ids: &[u32], batch: usize) -> Vec<u32> {
    engine.truncate(0);
    let (mut all, mut logits) = (Vec::new(), Vec::new());
    for ids in ids.chunks(batch) {
        engine.forward(ids, &mut logits).unwrap();
        all.extend(bits(&logits));
    }
    all
}

#[test]
fn bits_do_not_depend_on_batch_or_threads() {
    for shape in [EVEN, ODD, WIDE] {
        let checkpoint = shape.checkpoint(11);
        let ids = tokens(shape.vocab, 230, 3);
        for kernels in kernel_sets() {
            for weights in WEIGHTS {
                let mut expected = None;
                for threads in [1, 2, 3] {
                    let options = options(weights, kernels, threads);
                    let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
                    for batch in BATCHES.into_iter().chain([ids.len()]) {
                        let found = in_batches(&mut engine, &ids, batch);
                        let expected = expected.get_or_insert_with(|| found.clone());
                        assert!(
                            found == *expected,
                            "{shape:?} {kernels} {weights:?} threads {threads} batch {batch}"
                        );
                    }
                }
            }
        }
    }
}

/// Both round every product and sum alike; where a processor lacks one of them, nothing is compared.
#[test]
fn avx2_and_avx512_give_the_same_bits() {
    let checkpoint = ODD.checkpoint(12);
    let ids = tokens(ODD.vocab, 60, 5);
    for weights in WEIGHTS {
        let mut expected = None;
        for kernels in kernel_sets() {
            if kernels == KernelChoice::Portable {
                continue;
            }
            let mut engine = CpuEngine::new(&checkpoint, options(weights, kernels, 1)).unwrap();
            let found = in_batches(&mut engine, &ids, 7);
            let expected = expected.get_or_insert_with(|| found.clone());
            assert!(found == *expected, "{kernels} {weights:?}");
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_batch_at_a_context_of_2048() {
    let shape = Shape { layers: 1, ..EVEN };
    let checkpoint = shape.checkpoint(4);
    let ids = tokens(shape.vocab, 2048, 4);
    for kernels in kernel_sets() {
        for weights in WEIGHTS {
            let options = EngineOptions {
                weights,
                threads: 2,
                max_len: 2048,
                kernels,
            };
            let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
            let expected = in_batches(&mut engine, &ids, ids.len());
            let mut logits = Vec::new();
            for batch in BATCHES {
                engine.truncate(ids.len() - 2 * batch);
                for ids in ids[ids.len() - 2 * batch..].chunks(batch) {
                    engine.forward(ids, &mut logits).unwrap();
                }
                let tail = expected.len() - batch * shape.vocab;
                assert!(
                    bits(&logits) == expected[tail..],
                    "{kernels} {weights:?} batch {batch}"
                );
            }
            assert!(in_batches(&mut engine, &ids, 9) == expected);
        }
    }
}

#[test]
fn a_position_never_reads_its_future() {
    let checkpoint = ODD.checkpoint(8);
    let ids = tokens(ODD.vocab, 40, 8);
    let mut engine =
        CpuEngine::new(&checkpoint, options(WeightType::F32, KernelChoice::Auto, 1)).unwrap();
    let expected = in_batches(&mut engine, &ids, 40);
    // Weights of one token that overflow everything computed from it, keys and values included.
    let mut poisoned = checkpoint.clone();
    let width = ODD.hidden;
    let poison = (0..ODD.vocab as u32)
        .find(|id| !ids[..32].contains(id))
        .unwrap();
    let embedding = poisoned
        .tensors
        .get_mut("model.embed_tokens.weight")
        .unwrap();
    embedding.data[poison as usize * width..][..width].fill(f32::NAN);
    engine.load_weights(&poisoned).unwrap();
    let mut with_poison = ids[..32].to_vec();
    with_poison.extend([poison; 4]);
    let mut logits = Vec::new();
    engine.forward(&with_poison, &mut logits).unwrap();
    assert!(logits[32 * ODD.vocab..].iter().all(|x| x.is_nan()));
    // The head is tied, so the poisoned token's own logit is the only one that may differ.
    for (i, (found, expected)) in logits
        .iter()
        .zip(&expected)
        .take(32 * ODD.vocab)
        .enumerate()
    {
        if i % ODD.vocab != poison as usize {
            assert_eq!(found.to_bits(), *expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bits_survive_random_batches_and_truncations(
        odd in any::<bool>(),
        format in 0..4_usize,
        set in 0..2_usize,
        threads in 1..3_usize,
        seed in 0..1000_u64,
        steps in prop::collection::vec((1..17_usize, 0..12_usize, any::<bool>()), 4..20),
    ) {
        let shape = if odd { ODD } else { EVEN };
        let checkpoint = shape.checkpoint(21);
        let sets = kernel_sets();
        let options = options(WEIGHTS[format], sets[set % sets.len()], threads);
        let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
        let ids = tokens(shape.vocab, 340, seed);
        let expected = in_batches(&mut engine, &ids, ids.len());
        engine.truncate(0);
        let mut logits = Vec::new();
        for (batch, cut, other_branch) in steps {
            if other_branch {
                // A rejected draft: other tokens go in and out of the cache.
                let draft = tokens(shape.vocab, batch, seed ^ 77);
                engine.forward(&draft, &mut logits).unwrap();
                engine.truncate(engine.len() - batch);
            }
            let start = engine.len();
            engine.forward(&ids[start..start + batch], &mut logits).unwrap();
            let range = start * shape.vocab..(start + batch) * shape.vocab;
            prop_assert!(bits(&logits) == expected[range]);
            engine.truncate((start + batch).saturating_sub(cut));
        }
    }

    #[test]
    fn kernel_sets_agree(odd in any::<bool>(), bf16 in any::<bool>(), seed in 0..1000_u64) {
        let shape = if odd { ODD } else { EVEN };
        let checkpoint = shape.checkpoint(seed);
        let ids = tokens(shape.vocab, 50, seed);
        let logits: Vec<Vec<f32>> = kernel_sets()
            .into_iter()
            .map(|kernels| {
                let weights = if bf16 { WeightType::Bf16 } else { WeightType::F32 };
                let options = options(weights, kernels, 1);
                let mut logits = Vec::new();
                CpuEngine::new(&checkpoint, options).unwrap().forward(&ids, &mut logits).unwrap();
                logits
            })
            .collect();
        for other in &logits[1..] {
            // Sums that differ in their last bit may round to different bf16 activations.
            let error = relative_error(&logits[0], other);
            prop_assert!(error < if bf16 { 5e-3 } else { 2e-6 }, "{}", error);
        }
    }
}
