//! Forwards of 1, 5 and 9 tokens on a model of 25 million parameters (out of cache in f32), on one
//! thread, for every storage of the weights and every kernel set: `cargo bench -p cpu-engine`. A
//! naive product, one f32 dot product per output, is measured for comparison.

use cpu_engine::{CpuEngine, EngineOptions, KernelChoice};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lm::{LanguageModel, LmConfig, WeightType};

const CONTEXT: usize = 128;

fn forwards(criterion: &mut Criterion) {
    let json = r#"{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
        "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 6144}"#;
    let config = LmConfig::from_json(json, "shape".as_ref()).expect("a valid shape");
    let ids: Vec<u32> = (0..CONTEXT as u32 + 16).collect();
    for kernels in KernelChoice::ALL.into_iter().skip(1) {
        let mut group = criterion.benchmark_group(format!("forward/{kernels}"));
        for weights in [
            WeightType::F32,
            WeightType::Bf16,
            WeightType::Int8,
            WeightType::Int4,
        ] {
            let options = EngineOptions {
                weights,
                threads: 1,
                max_len: ids.len(),
                kernels,
                ..EngineOptions::default()
            };
            // A set that this processor lacks is skipped.
            let Ok(mut engine) = CpuEngine::with_random_weights(&config, options, 1) else {
                continue;
            };
            engine.prefill(&ids[..CONTEXT]).expect("room");
            let mut logits = Vec::new();
            group.throughput(Throughput::Bytes(engine.weight_bytes_per_forward() as u64));
            for m in [1, 5, 9] {
                let id = BenchmarkId::new(weights.to_string(), m);
                group.bench_with_input(id, &m, |bencher, m| {
                    bencher.iter(|| {
                        engine.truncate(CONTEXT);
                        engine
                            .forward(&ids[CONTEXT..CONTEXT + m], &mut logits)
                            .expect("room");
                    });
                });
            }
        }
    }
}

/// As many weights as the model multiplies with, in rows of its width.
fn naive(criterion: &mut Criterion) {
    const WIDTH: usize = 512;
    let row = |seed: usize| (0..WIDTH).map(move |i| ((seed + i) % 17) as f32 * 0.01);
    let outputs = 8 * (3 * 1408 + 3 * WIDTH) + 6144;
    let weights: Vec<f32> = (0..outputs).flat_map(row).collect();
    let mut group = criterion.benchmark_group("forward/naive");
    group.throughput(Throughput::Bytes(size_of_val(weights.as_slice()) as u64));
    for m in [1, 5, 9] {
        let x: Vec<f32> = (0..m).flat_map(row).collect();
        let mut out = vec![0.0; m * outputs];
        group.bench_with_input(BenchmarkId::new("f32", m), &m, |bencher, _| {
            bencher.iter(|| {
                for (x, out) in x.chunks(WIDTH).zip(out.chunks_mut(outputs)) {
                    for (w, out) in weights.chunks(WIDTH).zip(out) {
                        *out = w.iter().zip(x).map(|(w, x)| w * x).sum();
                    }
                }
                std::hint::black_box(&mut out);
            });
        });
    }
}

criterion_group!(benches, forwards, naive);
criterion_main!(benches);
