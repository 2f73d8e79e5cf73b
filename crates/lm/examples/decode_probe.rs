//! Times the CPU engine on random weights: milliseconds of a forward of 1, 5 and 9 tokens, all
//! logits, and what they imply.
//!
//! `cargo run --release -p lm --example decode_probe -- [rounds] [context]`

use std::time::Instant;

use lm::{CpuEngine, DecodeEngine, EngineOptions, KernelChoice, LmConfig, WeightType};

const BATCHES: [usize; 3] = [1, 5, 9];

/// name, layers, hidden, ffn, heads, kv heads, vocabulary
const SHAPES: [(&str, usize, usize, usize, usize, usize, usize); 3] = [
    ("drafter-1m", 2, 128, 352, 4, 4, 4096),
    ("target-6m", 6, 256, 704, 8, 4, 6144),
    ("llama-68m", 2, 768, 3072, 12, 12, 32000),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let rounds = args.next().transpose()?.unwrap_or(200);
    let context = args.next().transpose()?.unwrap_or(128);
    println!(
        "shape       weights threads |  ms m=1     m=5     m=9 | tokens/s  GB/s | ratio5 ratio9"
    );
    for (name, layers, hidden, inner, heads, kv_heads, vocab) in SHAPES {
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
        let checkpoint = lm::random_checkpoint(&config, 1);
        let mut setups = Vec::new();
        for weights in [WeightType::F32, WeightType::Bf16] {
            for threads in [1, 2] {
                let options = EngineOptions {
                    weights,
                    threads,
                    max_len: context + 16,
                    kernels: KernelChoice::Auto,
                };
                setups.push((weights, threads, CpuEngine::new(&checkpoint, options)?));
            }
        }
        let mut samples = vec![[const { Vec::new() }; BATCHES.len()]; setups.len()];
        // Interleaved, so that a disturbance of the machine hits every setting alike; within a
        // round each setting repeats, as decoding does.
        let repeats = 8;
        for _ in 0..rounds.div_ceil(repeats) {
            for ((_, _, engine), samples) in setups.iter_mut().zip(&mut samples) {
                for (batch, samples) in BATCHES.into_iter().zip(samples) {
                    time(engine, context, batch, repeats, samples)?;
                }
            }
        }
        for ((weights, threads, engine), samples) in setups.iter().zip(&mut samples) {
            let [one, five, nine] = samples.each_mut().map(|samples| median(samples));
            let gb = engine.weight_bytes_per_forward() as f64 / one / 1e6;
            println!(
                "{name:<12}{weights:<8?}{threads:>7} | {one:8.4}{five:8.4}{nine:8.4} | {:8.0} {gb:5.1} | {:6.2} {:6.2}",
                1e3 / one,
                five / one,
                nine / one
            );
        }
    }
    Ok(())
}

fn time(
    engine: &mut CpuEngine,
    context: usize,
    batch: usize,
    repeats: usize,
    samples: &mut Vec<f64>,
) -> Result<(), lm::LmError> {
    let ids: Vec<u32> = (0..context as u32).map(|i| i * 7 % 1000).collect();
    engine.truncate(context);
    let missing = &ids[engine.len()..];
    engine.append(missing)?;
    let mut logits = Vec::new();
    for i in 0..=repeats {
        engine.truncate(context);
        let start = Instant::now();
        engine.forward(&ids[..batch], &mut logits)?;
        // The first one finds another engine's weights in the cache.
        if i > 0 {
            samples.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(())
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
