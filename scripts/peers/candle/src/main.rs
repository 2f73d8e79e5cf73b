//! Times candle on a checkpoint: one token and calls of several tokens after a context, and reading
//! a prompt. Prints one JSON object, as `peer.py` does; `RAYON_NUM_THREADS` sets the threads.

mod model;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use model::{Model, Storage};

/// Fewest samples of every figure.
const MIN_SAMPLES: usize = 5;
/// Values read between samples, so that no engine finds its weights in a cache.
const EVICTED: usize = 64 << 20;

#[derive(Parser)]
struct Args {
    /// Model folder.
    #[arg(long)]
    model: PathBuf,
    /// f32, bf16, q8_0 or q4_0.
    #[arg(long)]
    weights: String,
    /// Tokens in the cache before a call, and of the prompt.
    #[arg(long)]
    context: usize,
    /// Tokens of the calls.
    #[arg(long, value_delimiter = ',')]
    calls: Vec<usize>,
    /// Seconds of each of the three measurements.
    #[arg(long)]
    seconds: f64,
    /// Write the logits of the longest call instead of timing.
    #[arg(long)]
    logits: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let longest = args.calls.iter().copied().max().unwrap_or(1);
    let storage = Storage::parse(&args.weights)?;
    let mut model = Model::load(&args.model, storage, args.context + longest)?;
    let ids: Vec<u32> = (0..args.context + longest)
        .map(|i| (i * 7919 % model.vocab_size()) as u32)
        .collect();
    if let Some(path) = &args.logits {
        model.forward(&ids[..args.context], true)?;
        let logits = model.forward(&ids[args.context..], false)?;
        std::fs::write(
            path,
            logits
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<u8>>(),
        )?;
        return Ok(());
    }
    let evict = vec![1.0f32; EVICTED];
    let mut report = BTreeMap::new();
    let measures = [
        ("decode", &[1][..]),
        ("verify", &args.calls),
        ("prefill", &[]),
    ];
    for (measure, calls) in measures {
        let mut times = BTreeMap::<usize, Vec<f64>>::new();
        model.truncate(0);
        model.forward(&ids[..args.context], true)?;
        let limit = Duration::from_secs_f64(args.seconds);
        let start = Instant::now();
        let mut samples = 0;
        while samples < MIN_SAMPLES || start.elapsed() < limit {
            if calls.is_empty() {
                model.truncate(0);
                let begin = Instant::now();
                model.forward(&ids[..args.context], true)?;
                times
                    .entry(args.context)
                    .or_default()
                    .push(1e3 * begin.elapsed().as_secs_f64());
            }
            for m in calls {
                times
                    .entry(*m)
                    .or_default()
                    .push(1e3 * call(&mut model, &ids, args.context, *m)?);
            }
            std::hint::black_box(evict.iter().sum::<f32>());
            samples += 1;
        }
        report.insert(measure, times);
    }
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Seconds of a call of `m` tokens after the context, the faster of two.
fn call(model: &mut Model, ids: &[u32], context: usize, m: usize) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        model.truncate(context);
        let begin = Instant::now();
        model.forward(&ids[context..context + m], false)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}
