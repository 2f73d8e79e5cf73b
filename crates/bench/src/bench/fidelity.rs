//! `omnidraft bench fidelity`: changes of a model's next-token distribution by narrower weights.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use cpu_engine::{CpuEngine, EngineOptions};
use lm::{LanguageModel, WeightType};
use serde::Serialize;
use vocab_align::TargetId;

use crate::print_as;
use models::ModelFolder;
use streams::MiniTask;
use streams::{DataSource, Split};

/// Formats that are compared with f32.
const FORMATS: [WeightType; 4] = [
    WeightType::F16,
    WeightType::Bf16,
    WeightType::Int8,
    WeightType::Int4,
];

/// Arguments of `fidelity`.
#[derive(Debug, Args)]
pub struct FidelityArgs {
    /// Model folders, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR", required = true, num_args = 1..)]
    model: Vec<PathBuf>,
    /// Held-out prompts of each embedded stream.
    #[arg(long, default_value_t = 20)]
    prompts: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One model and format against f32, over all positions of the prompts.
#[derive(Debug, Default, Serialize)]
struct Row {
    model: String,
    weights: String,
    positions: usize,
    /// Mean of KL(f32 || format), nats.
    kl: f64,
    /// Largest KL divergence, nats.
    kl_max: f64,
    /// Share of positions with the same most probable token.
    same_greedy: f64,
}

impl FidelityArgs {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        let mut rows = Vec::new();
        for model in &self.model {
            self.compare(model, &mut rows)?;
        }
        print_as(self.json, &rows, |rows| {
            let mut text =
                "| model | weights | positions | KL from f32, nats | largest | same greedy token |\n|---|---|--:|--:|--:|--:|\n"
                    .to_owned();
            for row in rows {
                text += &format!(
                    "| {} | {} | {} | {:.2e} | {:.2e} | {:.2}% |\n",
                    row.model,
                    row.weights,
                    row.positions,
                    row.kl,
                    row.kl_max,
                    100.0 * row.same_greedy
                );
            }
            text
        })
    }

    fn compare(&self, model: &Path, rows: &mut Vec<Row>) -> Result<()> {
        let folder: ModelFolder<TargetId> = ModelFolder::load(model)?;
        let engine = |weights| {
            let options = EngineOptions {
                weights,
                ..EngineOptions::default()
            };
            CpuEngine::new(folder.weights(), options)
        };
        let mut reference = engine(WeightType::F32)?;
        let mut texts = Vec::new();
        for task in MiniTask::ALL {
            let prompts = DataSource::embedded().load(task.name(), Split::Test)?;
            for prompt in prompts.iter().take(self.prompts) {
                let mut ids = folder.encode(&folder.template.render(&prompt.prompt)?)?;
                ids.truncate(reference.max_len());
                texts.push(ids.iter().map(|id| id.0).collect::<Vec<u32>>());
            }
        }
        for weights in FORMATS {
            let mut narrow = engine(weights)?;
            let mut row = Row {
                model: model.display().to_string(),
                weights: weights.to_string(),
                ..Row::default()
            };
            let (mut exact, mut found) = (Vec::new(), Vec::new());
            for ids in &texts {
                reference.truncate(0);
                narrow.truncate(0);
                reference.forward(ids, &mut exact)?;
                narrow.forward(ids, &mut found)?;
                let vocab = reference.vocab_size();
                for (p, q) in exact.chunks_exact(vocab).zip(found.chunks_exact(vocab)) {
                    let kl = divergence(p, q);
                    row.positions += 1;
                    row.kl += kl;
                    row.kl_max = row.kl_max.max(kl);
                    row.same_greedy += f64::from(u8::from(greedy(p) == greedy(q)));
                }
            }
            row.kl /= row.positions.max(1) as f64;
            row.same_greedy /= row.positions.max(1) as f64;
            rows.push(row);
        }
        Ok(())
    }
}

/// KL(p || q) of two rows of logits, in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let (log_p, log_q) = (distill_loss::log_sum_exp(p), distill_loss::log_sum_exp(q));
    let term = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - log_p, f64::from(*q) - log_q);
        p.exp() * (p - q)
    };
    p.iter().zip(q).map(term).sum::<f64>().max(0.0)
}

fn greedy(row: &[f32]) -> Option<usize> {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_by_hand() {
        // Distributions (1/2, 1/2) and (1/4, 3/4); the logits of the second are shifted by a
        // constant.
        let p = [0.0, 0.0];
        let q = [1.0, 1.0 + 3.0f32.ln()];
        let expected = 0.5 * (2.0f64.ln() + (2.0f64 / 3.0).ln());
        assert!((divergence(&p, &q) - expected).abs() < 1e-6);
        assert!(divergence(&q, &q) < 1e-12);
        assert_eq!(greedy(&q), Some(1));
    }
}
