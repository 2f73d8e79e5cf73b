//! Times one online update (Algorithm 2) with the paper's losses on synthetic lessons.
//!
//! ```text
//! cargo run --release -p runner --example online_update
//! ```

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use lm::{Checkpoint, LmConfig, random_checkpoint};
use runner::learn::{LearnConfig, ObjectiveName};
use runner::online::{Chunk, Learner, Lesson, TeacherRow};
use runner::streams::StreamRng;

/// Prompts an update learns from.
const LESSONS: usize = 8;

/// What the lessons look like.
struct Shape {
    name: &'static str,
    tokens: usize,
    /// Tokens of the response, all of them scored.
    response: usize,
    shared: usize,
}

/// Random text of which every tenth stretch is an n-gram of three draft tokens.
fn lesson(shape: &Shape, vocab: usize, rng: &mut StreamRng) -> Lesson {
    let ids: Vec<u32> = (0..shape.tokens).map(|_| rng.below(vocab) as u32).collect();
    let shared: Arc<[u32]> = (0..shape.shared as u32).collect();
    let mut chunks = Vec::new();
    let mut start = shape.tokens - shape.response;
    while start < shape.tokens {
        let len = if chunks.len() % 10 == 9 { 3 } else { 1 };
        let end = (start + len).min(shape.tokens);
        let law = (0..shape.shared).map(|_| -(rng.below(1 << 16) as f32) / 4096.0);
        chunks.push(Chunk {
            draft: start..end,
            targets: 1,
            log_prob: -0.5,
            law: (end - start == 1).then(|| TeacherRow::new(law)),
        });
        start = end;
    }
    Lesson {
        ids,
        shared,
        chunks,
    }
}

fn time(checkpoint: &Checkpoint, shape: &Shape, objective: ObjectiveName) -> Result<()> {
    let config = LearnConfig {
        every: LESSONS,
        lr: 1e-4,
        objective,
        ..LearnConfig::default()
    };
    let mut learner = Learner::new(checkpoint, config, 1)?;
    let mut rng = StreamRng::new(1, "online_update");
    let mut seconds = Vec::new();
    for _ in 0..5 {
        for _ in 0..LESSONS {
            let lesson = lesson(shape, checkpoint.config.vocab_size, &mut rng);
            if let Some((update, _)) = learner.push(lesson)? {
                seconds.push(update.seconds);
            }
        }
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "{:10} {objective:?}: median {:.4} s, least {:.4} s of {} updates; {LESSONS} x {} tokens, {} shared",
        shape.name,
        seconds[seconds.len() / 2],
        seconds[0],
        seconds.len(),
        shape.tokens,
        shape.shared,
    );
    Ok(())
}

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/D");
    let drafter = Checkpoint::load(&folder).with_context(|| folder.display().to_string())?;
    let small = Shape {
        name: "drafter",
        tokens: 110,
        response: 60,
        shared: 2000,
    };
    // Shape of Llama-68M: 2 layers, hidden size 768, 12 heads, 32000 tokens.
    let json = r#"{"model_type": "llama", "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 2, "num_attention_heads": 12, "vocab_size": 32000}"#;
    let config = LmConfig::from_json(json, "config.json".as_ref())?;
    let large = Shape {
        name: "68M",
        tokens: 128,
        response: 127,
        shared: 22_000,
    };
    for objective in [ObjectiveName::Hybrid, ObjectiveName::Alm] {
        time(&drafter, &small, objective)?;
    }
    let random = random_checkpoint(&config, 1);
    for objective in [ObjectiveName::Hybrid, ObjectiveName::Alm] {
        time(&random, &large, objective)?;
    }
    Ok(())
}
