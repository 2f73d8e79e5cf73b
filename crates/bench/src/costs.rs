//! `omnidraft costs`.

use adaptive_draft::{AcceptanceStop, Head, SCALARS};
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::args::ExperimentArgs;
use crate::{DataArgs, print};
use experiment::CostsConfig;
use models::step::median;
use online::{Probe, ProbeOptions};

/// Arguments of `costs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft costs experiments/table2.toml --data-dir DATA
  omnidraft costs experiments/ablations/adaptive-cross.toml --data-dir DATA --only task=xsum --prompts 40

Prints [decode.costs] for the experiment: medians over real rounds of every draft length, host work
and an acceptance head included. Run it alone on the machine.")]
pub struct CostsArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
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
        let job = self.experiment.first_job()?;
        let options = ProbeOptions {
            prompts: self.prompts,
            skip: Some(0),
            padded: true,
        };
        let mut probe = Probe::load(&job.config, &self.data.source()?, options)?;
        let measured = measure(&mut probe, self.k)?;
        if self.json {
            return print(&format!("{:#}\n", serde_json::to_value(&measured)?));
        }
        let Measured {
            target_step_s,
            costs,
        } = measured;
        print(&format!(
            "# A plain target step takes {:.3} ms.\n[decode.costs]\ndraft = [{}]\nverify = [{}]\nround = {:.3}\n",
            1e3 * target_step_s,
            list(&costs.draft),
            list(&costs.verify),
            costs.round,
        ))
    }
}

/// Answers every prompt plainly and with each draft length in turn, so that whatever disturbs the
/// machine disturbs all of them.
fn measure(probe: &mut Probe, longest: usize) -> Result<Measured> {
    let head = Head::new(probe.width() + SCALARS, 32, 0);
    let mut single = Vec::new();
    // By draft length and by positions, from 1.
    let mut draft = vec![Vec::new(); longest];
    let mut verify = vec![Vec::new(); longest + 1];
    let mut rest = Vec::new();
    for prompt in 0..probe.len() {
        let plain = probe.plain(prompt)?;
        single.push(plain.decode_seconds / plain.tokens.len().max(1) as f64);
        for k in 1..=longest {
            // Never stops early: what the head's opinion costs is part of a drafter step.
            let mut policy = AcceptanceStop::new(&head, k, 1.0, false)?;
            let done = probe.draft(prompt, false, &mut policy)?;
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
    let step = median(single);
    verify[0] = vec![step];
    Ok(Measured {
        target_step_s: step,
        costs: CostsConfig {
            draft: rising(0.0, draft, step),
            verify: rising(1.0, verify, step),
            round: median(rest) / step,
            measured: false,
        },
    })
}

/// Medians in steps, up to the first count that was not seen. None is below `least` or the one
/// before: noise must not make more tokens cheaper than fewer, nor a single position than a plain
/// step.
fn rising(mut least: f64, seconds: Vec<Vec<f64>>, step: f64) -> Vec<f64> {
    let seen = seconds
        .into_iter()
        .take_while(|seconds| !seconds.is_empty());
    seen.map(|seconds| {
        least = least.max(median(seconds) / step);
        least
    })
    .collect()
}

fn list(costs: &[f64]) -> String {
    let costs: Vec<String> = costs.iter().map(|cost| format!("{cost:.3}")).collect();
    costs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_rise_and_end_where_nothing_was_seen() {
        let seconds = vec![vec![4.0], vec![9.0, 6.0, 5.0], vec![5.0], vec![], vec![9.0]];
        assert_eq!(rising(1.0, seconds, 5.0), [1.0, 1.2, 1.2]);
    }
}
