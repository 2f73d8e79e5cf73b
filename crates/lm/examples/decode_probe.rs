//! Times the CPU engine on random weights: milliseconds of a forward of 1, 5 and 9 tokens, all
//! logits, and what they imply. `omnidraft bench verify` measures one shape more thoroughly.
//!
//! `cargo run --release -p lm --example decode_probe -- [shape] [milliseconds a setting] [context]`

use std::time::{Duration, Instant};

use lm::{CpuEngine, DecodeEngine, EngineOptions, KernelChoice, LmConfig, WeightType};

const BATCHES: [usize; 3] = [1, 5, 9];

/// name, layers, hidden, ffn, heads, kv heads, vocabulary
const SHAPES: [(&str, usize, usize, usize, usize, usize, usize); 5] = [
    ("drafter-1m", 2, 128, 352, 4, 4, 4096),
    ("target-6m", 6, 256, 704, 8, 4, 6144),
    ("target-25m", 8, 512, 1408, 8, 4, 6144),
    ("llama-68m", 2, 768, 3072, 12, 12, 32000),
    ("llama-242m", 12, 1024, 2816, 16, 8, 49152),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let only = args.next().unwrap_or_default();
    let mut numbers = args.map(|arg| arg.parse::<usize>());
    let millis = numbers.next().transpose()?.unwrap_or(400);
    let context = numbers.next().transpose()?.unwrap_or(128);
    println!(
        "shape       weights threads |  ms m=1     m=5     m=9 | tokens/s  GB/s | ratio5 ratio9"
    );
    for (name, layers, hidden, inner, heads, kv_heads, vocab) in SHAPES {
        if !name.contains(&only) {
            continue;
        }
        let json = serde_json::json!({
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": vocab,
        });
        let config = LmConfig::from_json(&json.to_string(), "shape".as_ref())?;
        for weights in WEIGHTS {
            for threads in [1, 2] {
                let options = EngineOptions {
                    weights,
                    threads,
                    max_len: context + 16,
                    kernels: KernelChoice::Auto,
                };
                let mut engine = CpuEngine::with_random_weights(&config, options, 1)?;
                let mut samples = [const { Vec::new() }; BATCHES.len()];
                let start = Instant::now();
                // Interleaved, so that a disturbance of the machine hits every batch alike.
                while start.elapsed() < Duration::from_millis(millis as u64)
                    || samples[0].len() < 15
                {
                    for (batch, samples) in BATCHES.into_iter().zip(&mut samples) {
                        time(&mut engine, context, batch, samples)?;
                    }
                }
                let [one, five, nine] = samples.each_mut().map(|samples| quartile(samples));
                let gb = engine.weight_bytes_per_forward() as f64 / one / 1e6;
                println!(
                    "{name:<12}{weights:<8?}{threads:>7} | {one:8.4}{five:8.4}{nine:8.4} | {:8.0} {gb:5.1} | {:6.2} {:6.2}",
                    1e3 / one,
                    five / one,
                    nine / one
                );
            }
        }
    }
    Ok(())
}

const WEIGHTS: [WeightType; 4] = [
    WeightType::F32,
    WeightType::Bf16,
    WeightType::Int8,
    WeightType::Int4,
];

fn time(
    engine: &mut CpuEngine,
    context: usize,
    batch: usize,
    samples: &mut Vec<f64>,
) -> Result<(), lm::LmError> {
    let ids: Vec<u32> = (0..context as u32).map(|i| i * 7 % 1000).collect();
    engine.truncate(context);
    let missing = &ids[engine.len()..];
    engine.append(missing)?;
    let mut logits = Vec::new();
    logits.resize(16 * engine.vocab_size(), 0.0);
    for _ in 0..2 {
        engine.truncate(context);
        let start = Instant::now();
        engine.forward(&ids[..batch], &mut logits)?;
        samples.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

/// The first quartile: other programs only ever add time.
fn quartile(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 4]
}
