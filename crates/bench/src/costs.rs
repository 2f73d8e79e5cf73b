//! `omnidraft costs`: costs of drafts and of verification, in steps of the target.

use adaptive_draft::{AcceptanceStop, Head, SCALARS};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};

use crate::args::ExperimentArgs;
use crate::{DataArgs, print_as};
use experiment::CostsConfig;
use lm::WeightType;
use models::step::median;
use online::{Probe, ProbeOptions};

/// Arguments of `costs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft costs experiments/table2.toml --data-dir DATA
  omnidraft costs experiments/ablations/adaptive-cross.toml --data-dir DATA --only task=xsum --prompts 40
  omnidraft costs experiments/table2.toml --data-dir DATA --processes 5
  omnidraft costs experiments/real/pair-clock.toml --draft-weights int4 --data-dir DATA

Prints [decode.costs] for the experiment: medians over real rounds of every draft length, host work
and an acceptance head included. Run it alone on the machine.

How much of a model stays in a processor's cache may differ by process, and with it what further
positions cost: with --processes the one whose plain step is in the middle counts.")]
pub struct CostsArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Weight format of the drafter: as `--set decode.draft_weights=...`.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightType>,
    /// Maximum draft length that is measured.
    #[arg(long, short, default_value_t = 8)]
    k: usize,
    /// Prompts to answer, once for each length.
    #[arg(long, default_value_t = 20)]
    prompts: usize,
    /// Fresh processes, one after the other, each of which repeats all measurements.
    #[arg(long, default_value_t = 1, overrides_with = "processes")]
    processes: usize,
    /// Print JSON.
    #[arg(long, overrides_with = "json")]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    /// Seconds of one plain target step, median over prompts.
    target_step_s: f64,
    /// The same of every process, in ascending order.
    steps_s: Vec<f64>,
    #[serde(flatten)]
    costs: CostsConfig,
}

impl CostsArgs {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        if !(2..=64).contains(&self.k) || self.prompts == 0 {
            bail!("-k must be 2 to 64 and --prompts at least 1");
        }
        if !(1..=99).contains(&self.processes) {
            bail!("--processes must be 1 to 99");
        }
        let mut experiment = self.experiment;
        let stored = self.draft_weights.iter();
        let stored = stored.map(|stored| format!("decode.draft_weights={stored}"));
        experiment.overrides.extend(stored);
        let job = experiment.first_job()?;
        let measured = if self.processes == 1 {
            let options = ProbeOptions {
                prompts: self.prompts,
                skip: Some(0),
                padded: true,
            };
            let mut probe = Probe::load(&job.config, &self.data.source()?, options)?;
            measure(&mut probe, self.k)?
        } else {
            median_process(
                (0..self.processes)
                    .map(|_| measure_in_child())
                    .collect::<Result<_>>()?,
            )
        };
        print_as(self.json, &measured, Measured::text)
    }
}

impl Measured {
    fn text(&self) -> String {
        let among = match self.steps_s.as_slice() {
            [] | [_] => String::new(),
            steps => {
                let steps: Vec<f64> = steps.iter().map(|step| 1e3 * step).collect();
                format!(", of {}", list(&steps))
            }
        };
        format!(
            "# A plain target step takes {:.3} ms{among}.\n[decode.costs]\ndraft = [{}]\nverify = [{}]\nround = {:.3}\n",
            1e3 * self.target_step_s,
            list(&self.costs.draft),
            list(&self.costs.verify),
            self.costs.round,
        )
    }
}

/// Measurement in a child process with the same arguments.
fn measure_in_child() -> Result<Measured> {
    let program = std::env::current_exe().context("where this program is")?;
    let done = Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--processes", "1", "--json"])
        .stderr(Stdio::inherit())
        .output()
        .context("a process to measure in")?;
    if !done.status.success() {
        bail!("a process to measure in: {}", done.status);
    }
    serde_json::from_slice(&done.stdout).context("what a process measured")
}

/// The measurement with the median plain step; of an even number the slower one, since fast ones
/// are too favourable.
fn median_process(mut measured: Vec<Measured>) -> Measured {
    measured.sort_by(|a, b| a.target_step_s.total_cmp(&b.target_step_s));
    let steps_s = measured.iter().map(|one| one.target_step_s).collect();
    let chosen = measured.swap_remove(measured.len() / 2);
    Measured { steps_s, ..chosen }
}

/// Answers every prompt plainly and with each draft length in turn, so that a disturbance of the
/// machine affects all of them.
fn measure(probe: &mut Probe, longest: usize) -> Result<Measured> {
    let head = Head::new(probe.width() + SCALARS, 32, 0);
    let mut single = Vec::new();
    // Seconds by draft length, and by number of positions, from 1.
    let mut draft = vec![Vec::new(); longest];
    let mut verify = vec![Vec::new(); longest + 1];
    let mut rest = Vec::new();
    for prompt in 0..probe.len() {
        let plain = probe.plain(prompt)?;
        single.push(plain.decode_seconds / plain.tokens.len().max(1) as f64);
        for k in 1..=longest {
            // The policy never stops early, but evaluating the head is part of the cost of a
            // drafter step.
            let mut policy = AcceptanceStop::new(&head, k, 1.0, false)?;
            let done = probe.draft(prompt, &mut policy)?;
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
        steps_s: vec![step],
        costs: CostsConfig {
            draft: rising(0.0, draft, step),
            verify: rising(1.0, verify, step),
            round: median(rest) / step,
            measured: false,
        },
    })
}

/// Medians in steps, up to the first count without samples. None is below `least` or the one
/// before, since noise must not make more tokens cheaper than fewer, nor a single position cheaper
/// than a plain step.
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

fn list(numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|one| format!("{one:.3}")).collect();
    numbers.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_process_counts() {
        let one = |step: f64| Measured {
            target_step_s: step,
            steps_s: vec![step],
            costs: CostsConfig {
                round: step,
                ..CostsConfig::default()
            },
        };
        let chosen = median_process(vec![one(3.0), one(1.0), one(2.0)]);
        assert_eq!((chosen.target_step_s, chosen.costs.round), (2.0, 2.0));
        assert_eq!(chosen.steps_s, [1.0, 2.0, 3.0]);
        assert_eq!(median_process(vec![one(3.0), one(1.0)]).target_step_s, 3.0);
    }

    #[test]
    fn medians_rise_and_end_where_nothing_was_seen() {
        let seconds = vec![vec![4.0], vec![9.0, 6.0, 5.0], vec![5.0], vec![], vec![9.0]];
        assert_eq!(rising(1.0, seconds, 5.0), [1.0, 1.2, 1.2]);
    }
}
