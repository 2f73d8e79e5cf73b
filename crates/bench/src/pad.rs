//! `omnidraft pad`: the padding of a target at which a drafter's step takes a wanted share of the
//! target's.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use vocab_align::{DraftId, TargetId};

use crate::args::ThreadArgs;
use crate::print;
use lm::{EngineSettings, WeightType};
use models::ModelFolder;
use models::step::{StepTimes, Stepper, measure};

/// Maximum number of units of padding, each of [`COLUMNS`] inner columns.
const MOST: usize = 1024;
/// Number of inner columns of a unit.
const COLUMNS: usize = 64;
/// Maximum number of measurements of the search.
const MEASUREMENTS: usize = 10;

/// Arguments of `pad`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft pad --drafter models/D --target models/L
  omnidraft pad --drafter models/D --target models/L --weights bf16 --threads 2
  omnidraft pad --drafter models/D --target models/L --ratio 0.1 --json | jq .pad_width
  omnidraft pad --drafter models/D --draft-pad 1536 --target models/L --threads 2

The number found goes into an experiment: targets = { big = { path = \"models/L\", pad_width = N } }")]
pub struct PadArgs {
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, alias = "draft", value_name = "DIR")]
    drafter: PathBuf,
    /// Model folder of the target, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// Inner columns of every MLP of the drafter, added first: both models can be too large for the
    /// processor's caches, as the models they stand for are.
    #[arg(long, value_name = "N", default_value_t = 0)]
    draft_pad: usize,
    /// Ratio of drafter step over target step to reach; the default is the paper's on an A100.
    #[arg(long, default_value_t = 0.07)]
    ratio: f64,
    /// Weight format of both models.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Tokens in the caches of both models.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One measured padding.
#[derive(Debug, Serialize)]
struct Measured {
    /// Number of units of columns.
    #[serde(skip)]
    units: usize,
    pad_width: usize,
    parameters: usize,
    ratio: f64,
    #[serde(flatten)]
    times: StepTimes,
}

impl PadArgs {
    /// Measures and prints.
    pub fn execute(self) -> Result<()> {
        if !(self.ratio.is_finite() && self.ratio > 0.0) {
            bail!("--ratio = {} must be positive", self.ratio);
        }
        let drafter: ModelFolder<DraftId> = ModelFolder::load(&self.drafter)?;
        let target: ModelFolder<TargetId> = ModelFolder::load(&self.target)?;
        let settings = EngineSettings::new(self.weights, self.threads.count());
        let drafter = drafter.padded(self.draft_pad);
        let mut draft = Stepper::new(&drafter, settings, self.context)?;
        let mut one = |units: usize| -> Result<Measured> {
            let pad_width = units * COLUMNS;
            let padded = target.padded(pad_width);
            let parameters = padded.config().num_params();
            let mut stepper = Stepper::new(&padded, settings, self.context)?;
            let times = measure(&mut draft, &mut stepper)?;
            Ok(Measured {
                units,
                pad_width,
                parameters,
                ratio: times.ratio(),
                times,
            })
        };
        let mut table = search(self.ratio, &mut one)?;
        table.sort_by_key(|row| row.units);
        let best = closest(&table, self.ratio);
        let best = best.ok_or_else(|| anyhow::anyhow!("nothing was measured"))?;
        if self.json {
            let json = serde_json::json!({
                "draft_pad": self.draft_pad,
                "pad_width": best.pad_width,
                "ratio": best.ratio,
                "wanted": self.ratio,
                "weights": self.weights,
                "threads": self.threads.count(),
                "context": self.context,
                "measured": table,
            });
            return print(&format!("{json:#}\n"));
        }
        print(&self.text(&table, best))
    }

    fn text(&self, table: &[Measured], best: &Measured) -> String {
        let mut text = String::from(
            "| pad        | parameters | drafter step | target step | 5 tokens | ratio |\n\
             |-----------:|-----------:|-------------:|------------:|---------:|------:|\n",
        );
        for row in table {
            let t = &row.times;
            text.push_str(&format!(
                "| {:>10} | {:>9.1}M | {:>9.3} ms | {:>8.3} ms | {:>7.2}x | {:.4} |\n",
                row.pad_width,
                row.parameters as f64 / 1e6,
                1e3 * t.draft_s,
                1e3 * t.target_s,
                t.verify_s / t.target_s,
                row.ratio,
            ));
        }
        text.push_str(&format!(
            "\npad_width = {} gives a drafter step of {:.4} target steps ({} wanted).\n",
            best.pad_width, best.ratio, self.ratio
        ));
        if best.units == 0 && best.ratio < self.ratio {
            text.push_str("The target is that dear already without padding.\n");
        }
        text
    }
}

/// Secant search in the target's step time over the number of units: the time grows by about as
/// much with every unit, except where the weights outgrow a cache.
fn search(ratio: f64, one: &mut impl FnMut(usize) -> Result<Measured>) -> Result<Vec<Measured>> {
    let mut table = vec![one(0)?];
    if table[0].ratio <= ratio {
        return Ok(table);
    }
    table.push(one(8)?);
    while table.len() < MEASUREMENTS {
        let Some(next) = proposal(&table, ratio) else {
            break;
        };
        if next > MOST {
            bail!(
                "more padding than {} columns would be needed for a ratio of {ratio}: the drafter's step is too dear",
                MOST * COLUMNS
            );
        }
        table.push(one(next)?);
    }
    Ok(table)
}

/// The next padding to measure, at which the line through the nearest two measured paddings meets
/// the ratio. `None` once it has been measured.
fn proposal(table: &[Measured], ratio: f64) -> Option<usize> {
    // Both steps were measured together; the wanted target time follows from the drafter's in that
    // run.
    let excess = |row: &Measured| row.times.target_s - row.times.draft_s / ratio;
    let below = table
        .iter()
        .filter(|row| excess(row) < 0.0)
        .max_by_key(|row| row.units)?;
    let above = table
        .iter()
        .filter(|row| excess(row) >= 0.0 && row.units > below.units)
        .min_by_key(|row| row.units);
    let other = match above {
        Some(row) => row,
        None => table
            .iter()
            .filter(|row| row.units < below.units)
            .max_by_key(|row| row.units)?,
    };
    let slope = (excess(other) - excess(below)) / (other.units as f64 - below.units as f64);
    let step = -excess(below) / slope;
    // Noise may make the line flat; with a bounded stride the search still ends.
    let stride = if slope > 0.0 && step.is_finite() {
        step.clamp(1.0, 4.0 * (below.units + 8) as f64)
    } else {
        (below.units + 8) as f64
    };
    let mut next = below.units + stride.round() as usize;
    if let Some(above) = above {
        next = next.min(above.units);
    }
    table.iter().all(|row| row.units != next).then_some(next)
}

fn closest(table: &[Measured], ratio: f64) -> Option<&Measured> {
    let distance = |row: &Measured| (row.ratio / ratio).ln().abs();
    table
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(units: usize, target_s: f64) -> Measured {
        let times = StepTimes {
            draft_s: 0.07,
            target_s,
            verify_s: target_s,
        };
        Measured {
            units,
            pad_width: units * COLUMNS,
            parameters: 0,
            ratio: times.ratio(),
            times,
        }
    }

    #[test]
    fn the_search_finds_the_ratio_of_a_target_that_leaves_its_cache() {
        // Up to 20 units fit into the cache; each further one costs twice as much.
        let seconds = |n: usize| 0.2 + 0.02 * n as f64 + 0.02 * n.saturating_sub(20) as f64;
        let mut asked = 0;
        let table = search(0.07, &mut |n| {
            asked += 1;
            Ok(at(n, seconds(n)))
        })
        .unwrap();
        // 0.2 + 0.02 * 30 + 0.02 * 10 = 1
        assert_eq!(closest(&table, 0.07).unwrap().units, 30);
        assert!(asked <= 6, "{asked} measurements");
    }

    #[test]
    fn a_target_that_is_dear_enough_is_left_alone() {
        let table = search(0.07, &mut |n| Ok(at(n, 2.0))).unwrap();
        assert_eq!(closest(&table, 0.07).unwrap().units, 0);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_hopeless_drafter_is_told() {
        let error = search(0.07, &mut |n| Ok(at(n, 0.1 + 1e-5 * n as f64))).unwrap_err();
        assert!(error.to_string().contains("more padding"), "{error}");
    }
}
