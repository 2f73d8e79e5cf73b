//! `omnidraft costs`.

use std::path::PathBuf;

use adaptive_draft::{AcceptanceStop, Head, SCALARS};
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::{DataArgs, print};
use crate::config::{CostsConfig, RunConfig};
use crate::online::{Rehearsal, Rehearsed};

/// Arguments of `costs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft costs experiments/table2.toml --data-dir DATA
  omnidraft costs experiments/adaptive-cross.toml --data-dir DATA --target Q --prompts 40

Prints [decode.costs] for the experiment: medians over real rounds of every draft length, host work
and an acceptance head included. Run it alone on the machine.")]
pub struct CostsArgs {
    /// The experiment.
    config: PathBuf,
    /// Override a key of the configuration; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Target by name [default: that of the first segment]
    #[arg(long)]
    target: Option<String>,
    /// Longest draft measured.
    #[arg(long, short, default_value_t = 8)]
    k: usize,
    /// Prompts answered, once for each length.
    #[arg(long, default_value_t = 20)]
    prompts: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, Serialize)]
struct Measured {
    /// Seconds of one plain target step, median over prompts.
    target_step_s: f64,
    #[serde(flatten)]
    costs: CostsConfig,
}

impl CostsArgs {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        if !(2..=64).contains(&self.k) || self.prompts == 0 {
            bail!("-k must be 2 to 64 and --prompts at least 1");
        }
        let config = RunConfig::load(&self.config, &self.overrides)?;
        let what = Rehearsed {
            task: None,
            target: self.target.clone(),
            prompts: self.prompts,
            skip: Some(0),
            padded: true,
        };
        let mut rehearsal = Rehearsal::load(&config, &self.data.source()?, &what)?;
        let measured = measure(&mut rehearsal, self.k)?;
        if self.json {
            return print(&format!("{:#}\n", serde_json::to_value(&measured)?));
        }
        let Measured {
            target_step_s,
            costs,
        } = measured;
        let verify: Vec<String> = costs.verify.iter().map(|v| format!("{v:.3}")).collect();
        print(&format!(
            "# A plain target step takes {:.3} ms.\n[decode.costs]\ndraft = {:.4}\nverify = [{}]\nround = {:.4}\n",
            1e3 * target_step_s,
            costs.draft,
            verify.join(", "),
            costs.round,
        ))
    }
}

/// Answers every prompt plainly and with each draft length in turn, so that whatever disturbs the
/// machine disturbs all of them.
fn measure(rehearsal: &mut Rehearsal, longest: usize) -> Result<Measured> {
    let head = Head::new(rehearsal.width() + SCALARS, 32, 0);
    let mut single = Vec::new();
    // By draft length and by positions, from 1.
    let mut draft = vec![Vec::new(); longest];
    let mut verify = vec![Vec::new(); longest + 1];
    let mut rest = Vec::new();
    for prompt in 0..rehearsal.len() {
        let plain = rehearsal.plain(prompt)?;
        single.push(plain.decode_seconds / plain.tokens.len().max(1) as f64);
        for k in 1..=longest {
            // Never stops early: what the head's opinion costs is part of a drafter step.
            let mut policy = AcceptanceStop::new(&head, k, 1.0, false)?;
            let done = rehearsal.draft(prompt, false, &mut policy)?;
            for round in &done.rounds {
                let timings = &round.timings;
                if let Some(seconds) = draft.get_mut(round.draft.len().wrapping_sub(1)) {
                    seconds.push(timings.draft);
                }
                if let Some(seconds) = verify.get_mut(round.proposed()) {
                    seconds.push(timings.target + timings.verify);
                }
                rest.push(timings.translate + timings.commit);
            }
        }
    }
    let step = median(&mut single);
    let drafts: Vec<(f64, f64)> = draft
        .iter_mut()
        .enumerate()
        .filter(|(_, seconds)| !seconds.is_empty())
        .map(|(i, seconds)| (i as f64 + 1.0, median(seconds) / step))
        .collect();
    let (slope, offset) = line(&drafts);
    let mut costs = CostsConfig {
        draft: slope.max(0.0),
        verify: Vec::new(),
        round: (median(&mut rest) / step + offset).max(0.0),
    };
    // A single position is a plain step. Noise must not make more positions cheaper than fewer.
    let mut least = 1.0f64;
    for (i, seconds) in verify.iter_mut().enumerate() {
        let found = match i {
            0 => 1.0,
            _ if seconds.is_empty() => break,
            _ => median(seconds) / step,
        };
        least = least.max(found);
        costs.verify.push(least);
    }
    Ok(Measured {
        target_step_s: step,
        costs,
    })
}

/// Slope and offset of the least squares line.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len().max(1) as f64;
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let spread = mean(&|p| (p.0 - x).powi(2));
    if spread == 0.0 {
        return (y / x.max(1.0), 0.0);
    }
    let slope = mean(&|p| (p.0 - x) * (p.1 - y)) / spread;
    (slope, y - slope * x)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n => 0.5 * (values[(n - 1) / 2] + values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_through_points_of_a_line() {
        let (slope, offset) = line(&[(1.0, 0.3), (2.0, 0.5), (4.0, 0.9)]);
        assert!((slope - 0.2).abs() < 1e-12 && (offset - 0.1).abs() < 1e-12);
        assert_eq!(line(&[(2.0, 0.4)]), (0.2, 0.0));
    }
}
