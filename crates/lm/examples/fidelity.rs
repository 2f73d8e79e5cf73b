//! How far narrower weights move a model: Kullback-Leibler divergence of the next-token
//! distribution from f32's, and how often the most likely token is the same, on text that the f32
//! model samples at temperature 1.
//!
//! `cargo run --release -p lm --example fidelity -- MODEL_DIR [sequences] [tokens]`

use lm::{Checkpoint, CpuEngine, DecodeEngine, EngineOptions, WeightType};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("give a model folder")?;
    let mut numbers = args.map(|arg| arg.parse::<usize>());
    let sequences = numbers.next().transpose()?.unwrap_or(32);
    let length = numbers.next().transpose()?.unwrap_or(128);
    let checkpoint = Checkpoint::load(folder.as_ref())?;
    let engine = |weights| {
        let options = EngineOptions {
            weights,
            threads: 1,
            max_len: length,
            ..EngineOptions::default()
        };
        CpuEngine::new(&checkpoint, options)
    };
    let mut exact = engine(WeightType::F32)?;
    let texts = (0..sequences as u64)
        .map(|seed| sample(&mut exact, length, seed))
        .collect::<Result<Vec<_>, _>>()?;
    println!("weights      mean KL   worst KL  same argmax  positions");
    for weights in [WeightType::Bf16, WeightType::Int8, WeightType::Int4] {
        let mut other = engine(weights)?;
        let (mut total, mut worst, mut same, mut count) = (0.0, 0.0_f64, 0_usize, 0_usize);
        let (mut p, mut q) = (Vec::new(), Vec::new());
        for text in &texts {
            exact.truncate(0);
            other.truncate(0);
            exact.forward(text, &mut p)?;
            other.forward(text, &mut q)?;
            let vocab = exact.vocab_size();
            for (p, q) in p.chunks_exact(vocab).zip(q.chunks_exact(vocab)) {
                let divergence = divergence(p, q);
                total += divergence;
                worst = worst.max(divergence);
                same += usize::from(argmax(p) == argmax(q));
                count += 1;
            }
        }
        println!(
            "{weights:<8} {:>11.2e} {worst:>10.2e} {:>11.2}% {count:>10}",
            total / count as f64,
            100.0 * same as f64 / count as f64
        );
    }
    Ok(())
}

/// A text of `length` tokens, the first one token 0.
fn sample(engine: &mut CpuEngine, length: usize, seed: u64) -> Result<Vec<u32>, lm::LmError> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut text, mut logits) = (vec![0], Vec::new());
    engine.truncate(0);
    while text.len() < length {
        engine.forward(&text[text.len() - 1..], &mut logits)?;
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut rest = (state >> 11) as f64 / (1_u64 << 53) as f64;
        let log_sum = log_sum(&logits);
        let chosen = logits.iter().position(|logit| {
            rest -= (f64::from(*logit) - log_sum).exp();
            rest < 0.0
        });
        text.push(chosen.unwrap_or(0) as u32);
    }
    Ok(text)
}

fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    p.iter()
        .zip(q)
        .map(|(p, q)| {
            let (p, q) = (f64::from(*p) - p_sum, f64::from(*q) - q_sum);
            p.exp() * (p - q)
        })
        .sum()
}

fn log_sum(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
    f64::from(max) + sum.ln()
}

fn argmax(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
}
