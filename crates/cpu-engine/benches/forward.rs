//! Forwards of 1, 5 and 9 tokens on a model of 25 million parameters (out of cache in f32), one
//! thread, for every storage of the weights and every kernel set: `cargo bench -p cpu-engine`.

use cpu_engine::{CpuEngine, EngineOptions, KernelChoice};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lm::{DecodeEngine, LmConfig, WeightType};

const CONTEXT: usize = 128;

fn forwards(criterion: &mut Criterion) {
    let json = r#"{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
        "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 6144}"#;
    let config = LmConfig::from_json(json, "shape".as_ref()).expect("a valid shape");
    let ids: Vec<u32> = (0..CONTEXT as u32 + 16).collect();
    let sets = [
        KernelChoice::Amx,
        KernelChoice::Avx512,
        KernelChoice::Avx2,
        KernelChoice::Portable,
    ];
    for kernels in sets {
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
            // A set that this processor lacks is passed over.
            let Ok(mut engine) = CpuEngine::with_random_weights(&config, options, 1) else {
                continue;
            };
            engine.append(&ids[..CONTEXT]).expect("room");
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

criterion_group!(benches, forwards);
criterion_main!(benches);
