//! Batch invariance: a position's logits have the same bits, whatever the batches in which they
//! were computed.

use crate::cpu_support;

use cpu_engine::{Compact, CpuEngine, EngineOptions, KernelChoice, PackedWeights};
use cpu_support::*;
use lm::{Alternative, Checkpoint, KvType, LanguageModel, WeightType, conformance};
use proptest::prelude::*;

const BATCHES: [usize; 7] = [1, 2, 3, 5, 8, 9, 16];
const FORMATS: [(WeightType, Compact); 7] = [
    (WeightType::F32, Compact::Off),
    (WeightType::F32, Compact::On),
    (WeightType::Bf16, Compact::Off),
    (WeightType::Bf16, Compact::On),
    (WeightType::F16, Compact::Off),
    (WeightType::Int8, Compact::Off),
    (WeightType::Int4, Compact::Off),
];

/// Options of an engine with weights in one of [`FORMATS`].
fn in_format(
    (weights, compact): (WeightType, Compact),
    kernels: KernelChoice,
    threads: usize,
) -> EngineOptions {
    EngineOptions {
        compact,
        ..options(weights, kernels, threads)
    }
}

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
        let checkpoint = shape.bf16_checkpoint(11);
        let ids = tokens(shape.vocab, 230, 3);
        for kernels in kernel_sets() {
            for format in FORMATS {
                let mut expected = None;
                for threads in [1, 2, 3] {
                    let options = in_format(format, kernels, threads);
                    let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
                    // Threads divide columns, or groups of many rows, whatever the number of rows is.
                    let batches: &[usize] = match threads {
                        1 => &BATCHES,
                        _ => &[5, 16],
                    };
                    for &batch in batches.iter().chain([&ids.len()]) {
                        let found = in_batches(&mut engine, &ids, batch);
                        let expected = expected.get_or_insert_with(|| found.clone());
                        assert!(
                            found == *expected,
                            "{shape:?} {kernels} {format:?} threads {threads} batch {batch}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_contract_of_engines_is_kept() {
    for shape in [EVEN, ODD] {
        let checkpoint = shape.bf16_checkpoint(12);
        for kernels in kernel_sets() {
            for format in FORMATS {
                let options = EngineOptions {
                    max_len: 40,
                    ..in_format(format, kernels, 1)
                };
                let made = || CpuEngine::new(&checkpoint, options.clone()).unwrap();
                let kept = conformance::check(made);
                kept.unwrap_or_else(|broken| panic!("{shape:?} {kernels} {format:?}: {broken}"));
            }
        }
    }
}

/// Also where the cache has a new segment, which it has every 256 positions.
#[test]
fn alternatives_have_the_bits_of_tokens_in_their_place() {
    for (shape, kv) in [(EVEN, KvType::F32), (ODD, KvType::F16)] {
        let checkpoint = shape.bf16_checkpoint(12);
        let ids = tokens(shape.vocab, 280, 5);
        let options = EngineOptions {
            kv,
            max_len: 280,
            ..in_format(FORMATS[0], kernel_sets()[0], 2)
        };
        let new = |text: &[u32]| {
            let mut engine = CpuEngine::new(&checkpoint, options.clone()).unwrap();
            engine.prefill(text).unwrap();
            engine
        };
        for start in [1, 252, 254, 255, 256] {
            let own = &ids[start..start + 3];
            // Runs that end before the tokens of the forward do, and far after them.
            let beside = |(after, count): (usize, usize)| Alternative {
                after,
                ids: &ids[start + after..][..count],
            };
            let beside: Vec<_> = [(3, 1), (1, 4), (0, 2), (2, 1), (3, 2)].map(beside).into();
            let (mut logits, mut alone) = (Vec::new(), Vec::new());
            let all = beside.iter().enumerate();
            let all =
                all.flat_map(|(i, own)| (0..=own.ids.len()).map(move |count| (i, own, count)));
            for (taken, alternative, count) in all {
                let mut engine = new(&ids[..start]);
                engine.forward_with(own, &beside, &mut logits).unwrap();
                let mut other = new(&ids[..start + alternative.after]);
                let read = &alternative.ids[..count];
                other.forward(read, &mut alone).unwrap();
                let before: usize = beside[..taken].iter().map(|own| own.ids.len()).sum();
                let rows = &logits[(own.len() + before) * shape.vocab..];
                let same = bits(&rows[..count * shape.vocab]) == bits(&alone);
                assert!(same, "{shape:?} {start} {taken} {count}");
                engine.take_alternative(taken, count).unwrap();
                assert_eq!(engine.len(), other.len());
                for engine in [&mut engine, &mut other] {
                    assert!(engine.take_alternative(0, 1).is_err(), "taken once");
                }
                let rest = &ids[start..start + 2];
                engine.forward(rest, &mut logits).unwrap();
                other.forward(rest, &mut alone).unwrap();
                assert!(bits(&logits) == bits(&alone), "{shape:?} {start} {taken}");
            }
            let mut engine = new(&ids[..start]);
            let (late, empty) = ((4, &ids[..1]), (1, &ids[..0]));
            let wrong = [late, empty].map(|(after, ids)| Alternative { after, ids });
            for refused in [&wrong[..1], &wrong[1..], &[beside[0]; 99]] {
                let failed = engine.forward_with(own, refused, &mut logits);
                assert!(failed.is_err() && engine.len() == start, "{start}");
            }
        }
    }
}

/// The last block skips results of unscored tokens that are never read.
#[test]
fn tokens_that_are_not_scored_leave_the_same_cache() {
    for shape in [EVEN, ODD, WIDE] {
        let checkpoint = shape.bf16_checkpoint(12);
        let ids = tokens(shape.vocab, 150, 5);
        for kernels in kernel_sets() {
            for format in FORMATS {
                let options = in_format(format, kernels, 2);
                let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
                let expected = in_batches(&mut engine, &ids, ids.len());
                let row = |i: usize| &expected[i * shape.vocab..][..shape.vocab];
                let mut logits = Vec::new();
                for len in [1, 2, 17, 48, 49, 149] {
                    let what = format!("{shape:?} {kernels} {format:?} {len}");
                    engine.truncate(0);
                    engine.prompt(&ids[..len], &mut logits).unwrap();
                    assert!(bits(&logits) == row(len - 1), "{what}: prompt");
                    let state = engine.state().to_vec();
                    engine.forward(&ids[len..=len], &mut logits).unwrap();
                    assert!(bits(&logits) == row(len), "{what}: after a prompt");

                    engine.truncate(0);
                    engine.prefill(&ids[..len - 1]).unwrap();
                    engine.forward(&ids[len - 1..len], &mut logits).unwrap();
                    assert!(bits(&logits) == row(len - 1), "{what}: after appending");
                    assert_eq!(engine.state(), state, "{what}: state");
                }
                engine.prompt(&[], &mut logits).unwrap();
                assert!(logits.is_empty());
            }
        }
    }
}

/// Sets round every product and sum alike, except for bf16 numbers in tiles. If the processor has
/// only one of them, nothing is compared.
#[test]
fn vector_sets_give_the_same_bits() {
    let checkpoint = ODD.bf16_checkpoint(12);
    let ids = tokens(ODD.vocab, 60, 5);
    for format in FORMATS {
        let mut expected = None;
        for kernels in kernel_sets() {
            if !sums_as_most(kernels, format.0) {
                continue;
            }
            let options = in_format(format, kernels, 1);
            let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
            let found = in_batches(&mut engine, &ids, 7);
            let expected = expected.get_or_insert_with(|| found.clone());
            assert!(found == *expected, "{kernels} {format:?}");
        }
    }
}

/// Compact weights give the same bits, also if they are loaded or swapped in later, and f32 weights
/// that bf16 does not hold are not touched.
#[test]
fn compact_weights_give_the_bits_of_plain_ones() {
    for (weights, shape) in [WeightType::F32, WeightType::Bf16]
        .into_iter()
        .flat_map(|weights| [EVEN, ODD, WIDE].map(|shape| (weights, shape)))
    {
        let (first, second) = (shape.bf16_checkpoint(13), shape.checkpoint(14));
        let ids = tokens(shape.vocab, 70, 6);
        for kernels in kernel_sets() {
            for threads in [1, 2] {
                let engine = |compact, checkpoint| {
                    let options = in_format((weights, compact), kernels, threads);
                    CpuEngine::new(checkpoint, options).unwrap()
                };
                let expected = [&first, &second]
                    .map(|checkpoint| in_batches(&mut engine(Compact::Off, checkpoint), &ids, 9));
                let mut engine = engine(Compact::On, &first);
                assert!(engine.compact());
                for batch in BATCHES {
                    assert!(in_batches(&mut engine, &ids, batch) == expected[0]);
                }
                engine.load_weights(&second).unwrap();
                assert_eq!(engine.compact(), weights == WeightType::Bf16);
                assert!(in_batches(&mut engine, &ids, 5) == expected[1]);
                for compact in [Compact::Off, Compact::On] {
                    let options = in_format((weights, compact), kernels, threads);
                    let mut packed = PackedWeights::new(&first, &options).unwrap();
                    engine.swap_weights(&mut packed).unwrap();
                    assert_eq!(engine.compact(), compact == Compact::On);
                    assert!(in_batches(&mut engine, &ids, 5) == expected[0]);
                    engine.swap_weights(&mut packed).unwrap();
                    assert!(in_batches(&mut engine, &ids, 5) == expected[1]);
                }
            }
        }
    }
}

/// By default, weights that stay in caches are plain, and the stated memory is right.
#[test]
fn compact_weights_are_chosen_by_size() {
    let wide = Shape {
        hidden: 1024,
        inner: 1536,
        vocab: 4096,
        ..WIDE
    };
    for (shape, large) in [(WIDE, false), (wide, true)] {
        let checkpoint = shape.checkpoint(3);
        let engine = |weights, checkpoint: &Checkpoint, compact| {
            let options = in_format((weights, compact), KernelChoice::Auto, 1);
            CpuEngine::new(checkpoint, options).unwrap()
        };
        let exact = shape.bf16_checkpoint(3);
        let [wide, narrow, inexact] = [
            (&exact, Compact::On),
            (&exact, Compact::Off),
            (&checkpoint, Compact::On),
        ]
        .map(|(checkpoint, compact)| engine(WeightType::F32, checkpoint, compact));
        let [wide, narrow, inexact] =
            [&wide, &narrow, &inexact].map(CpuEngine::weight_bytes_per_forward);
        assert!((0.375..0.40).contains(&(wide as f64 / narrow as f64)));
        assert_eq!(inexact, narrow);
        for kernels in kernel_sets() {
            for weights in [WeightType::F32, WeightType::Bf16] {
                let options = in_format((weights, Compact::Auto), kernels, 1);
                let auto = CpuEngine::new(&exact, options).unwrap();
                let pays = match kernels {
                    KernelChoice::Portable => false,
                    KernelChoice::Avx512 | KernelChoice::Amx => true,
                    _ => weights == WeightType::F32,
                };
                assert_eq!(auto.compact(), large && pays, "{kernels} {weights}");
            }
            for weights in [WeightType::F16, WeightType::Int8, WeightType::Int4] {
                let options = in_format((weights, Compact::On), kernels, 1);
                let engine = CpuEngine::new(&exact, options).unwrap();
                assert!(!engine.compact(), "{kernels} {weights}");
            }
        }
        let [on, off] = [Compact::On, Compact::Off]
            .map(|compact| engine(WeightType::Bf16, &checkpoint, compact));
        assert!(on.compact() && !off.compact());
        let [on, off] = [on, off].map(|engine| {
            let rest = engine.memory().weights - engine.weight_bytes_per_forward();
            (engine.weight_bytes_per_forward() as f64, rest)
        });
        assert!((0.75..0.80).contains(&(on.0 / off.0)), "{}", on.0 / off.0);
        assert_eq!(on.1, off.1);
    }
}

#[test]
fn bits_do_not_depend_on_the_batch_at_a_context_of_2048() {
    let shape = Shape { layers: 1, ..EVEN };
    let checkpoint = shape.bf16_checkpoint(4);
    let ids = tokens(shape.vocab, 2048, 4);
    for kernels in kernel_sets() {
        for format in FORMATS {
            let options = EngineOptions {
                max_len: 2048,
                ..in_format(format, kernels, 2)
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
                    "{kernels} {format:?} batch {batch}"
                );
            }
            assert!(in_batches(&mut engine, &ids, 9) == expected);
        }
    }
}

#[test]
fn a_position_never_reads_its_future() {
    let checkpoint = ODD.bf16_checkpoint(8);
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
    // The head is tied, so only the poisoned token's own logit may differ.
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
        format in 0..FORMATS.len(),
        set in any::<usize>(),
        threads in 1..3_usize,
        seed in 0..1000_u64,
        steps in prop::collection::vec((1..17_usize, 0..12_usize, any::<bool>()), 4..20),
    ) {
        let shape = if odd { ODD } else { EVEN };
        let checkpoint = shape.bf16_checkpoint(21);
        let sets = kernel_sets();
        let options = in_format(FORMATS[format], sets[set % sets.len()], threads);
        let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
        let ids = tokens(shape.vocab, 340, seed);
        let expected = in_batches(&mut engine, &ids, ids.len());
        engine.truncate(0);
        let mut logits = Vec::new();
        for (batch, cut, other_branch) in steps {
            if other_branch {
                // A rejected draft: other tokens are appended and cut again.
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
        let checkpoint = shape.bf16_checkpoint(seed);
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

/// Several sequences at once, at different lengths, with other numbers of tokens in every call.
#[test]
fn sequences_together_have_the_bits_of_each_alone() {
    const LENGTHS: [[usize; 5]; 4] = [
        [1, 5, 3, 2, 4],
        [4, 0, 1, 16, 9],
        [60, 1, 2, 3, 48],
        [1, 1, 1, 1, 1],
    ];
    for shape in [EVEN, ODD, WIDE] {
        let checkpoint = shape.bf16_checkpoint(17);
        let texts: Vec<Vec<u32>> = (0..5).map(|i| tokens(shape.vocab, 320, 40 + i)).collect();
        for kernels in kernel_sets() {
            for format in FORMATS {
                let options = in_format(format, kernels, 2);
                let packed = PackedWeights::new(&checkpoint, &options).unwrap();
                let build = || CpuEngine::with_weights(packed.clone(), options.clone()).unwrap();
                let mut alone: Vec<CpuEngine> = (0..5).map(|_| build()).collect();
                let mut together: Vec<CpuEngine> = (0..5).map(|_| build()).collect();
                for (i, text) in texts.iter().enumerate() {
                    // The third has packed its own copy of the weights.
                    if i == 2 {
                        together[i] = CpuEngine::new(&checkpoint, options.clone()).unwrap();
                    }
                    alone[i].prefill(&text[..40 * i]).unwrap();
                    together[i].prefill(&text[..40 * i]).unwrap();
                }
                for (call, lengths) in LENGTHS.iter().enumerate() {
                    let (mut expected, mut logits) = (Vec::new(), Vec::new());
                    for ((engine, text), count) in alone.iter_mut().zip(&texts).zip(lengths) {
                        let at = engine.len();
                        engine.forward(&text[at..at + count], &mut logits).unwrap();
                        expected.extend(bits(&logits));
                    }
                    let parts = together.iter_mut().zip(&texts).zip(lengths);
                    let mut parts: Vec<(&mut CpuEngine, &[u32])> = parts
                        .map(|((engine, text), count)| {
                            let at = engine.len();
                            (engine, &text[at..at + count])
                        })
                        .collect();
                    CpuEngine::forward_together(&mut parts, &mut logits).unwrap();
                    let what = format!("{shape:?} {kernels} {format:?} call {call}");
                    assert!(bits(&logits) == expected, "{what}");
                    for (one, many) in alone.iter().zip(&together) {
                        assert_eq!(bits(one.state()), bits(many.state()), "{what}");
                    }
                    // A rejected draft is cut, as in a round.
                    for engine in alone.iter_mut().chain(&mut together) {
                        let len = engine.len();
                        engine.truncate(len.saturating_sub(call));
                    }
                }
            }
        }
    }
}

/// Engines of other instruction sets that share weights are computed apart.
#[test]
fn sequences_together_keep_their_own_kernels() {
    let sets = kernel_sets();
    let of = |kernels| in_format(FORMATS[0], kernels, 1);
    let packed = PackedWeights::new(&EVEN.checkpoint(3), &of(sets[0])).unwrap();
    let build = |kernels| CpuEngine::with_weights(packed.clone(), of(kernels)).unwrap();
    let text = tokens(EVEN.vocab, 9, 1);
    let (mut expected, mut logits) = (Vec::new(), Vec::new());
    for set in &sets {
        build(*set).forward(&text, &mut logits).unwrap();
        expected.extend(bits(&logits));
    }
    let mut engines: Vec<_> = sets.iter().map(|set| build(*set)).collect();
    let mut parts: Vec<(&mut CpuEngine, &[u32])> = engines
        .iter_mut()
        .map(|engine| (engine, &text[..]))
        .collect();
    CpuEngine::forward_together(&mut parts, &mut logits).unwrap();
    assert!(bits(&logits) == expected);
}

#[test]
fn sequences_together_are_refused_together() {
    let options = in_format(FORMATS[0], KernelChoice::Auto, 1);
    let packed = PackedWeights::new(&EVEN.checkpoint(3), &options).unwrap();
    let build = || CpuEngine::with_weights(packed.clone(), options.clone()).unwrap();
    let (mut one, mut two) = (build(), build());
    let mut logits = Vec::new();
    let mut parts: [(&mut CpuEngine, &[u32]); 2] = [(&mut one, &[1, 2]), (&mut two, &[9999])];
    assert!(CpuEngine::forward_together(&mut parts, &mut logits).is_err());
    assert_eq!((one.len(), two.len()), (0, 0));
    CpuEngine::forward_together(&mut [], &mut logits).unwrap();
    assert!(logits.is_empty());
}

/// Results have the same bits with any walk; small weights are not measured.
#[test]
fn bits_do_not_depend_on_the_walk() {
    let ids = tokens(ODD.vocab, 60, 8);
    let checkpoint = ODD.bf16_checkpoint(21);
    for kernels in kernel_sets() {
        for format in FORMATS {
            let options = in_format(format, kernels, 2);
            let mut engine = CpuEngine::new(&checkpoint, options).unwrap();
            assert_eq!(engine.fastest_walk(), None);
            let expected = in_batches(&mut engine, &ids, 1);
            for walk in ["1 1 1 1 1 lines", "2 2 2 2 2 pages", "4 4 4 4 4 nothing"] {
                engine.set_walk(walk.parse().unwrap());
                assert_eq!(engine.walk().to_string(), walk);
                for batch in [1, 2, 3, 4, 5, 9] {
                    let found = in_batches(&mut engine, &ids, batch);
                    assert!(
                        found == expected,
                        "{kernels} {format:?} {walk} batch {batch}"
                    );
                }
            }
        }
    }
}
