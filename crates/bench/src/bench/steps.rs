//! `omnidraft bench steps`: a drafter's step time over its target's, in every weight format of
//! both.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use lm::{EngineSettings, WeightType};
use models::ModelFolder;
use models::step::{StepTimes, Stepper, measure, shape_engine};
use serde::Serialize;
use vocab_align::{DraftId, TargetId};

use crate::args::{DeviceArgs, ThreadArgs};
use crate::print_as;

/// Arguments of `steps`.
#[derive(Debug, Args)]
pub struct StepsArgs {
    /// Model folder of the target, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    drafter: PathBuf,
    /// Weight formats of the target, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "int8,int4")]
    weights: Vec<WeightType>,
    /// Weight formats of the drafter, separated by commas; each is measured with each of the
    /// target.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "int8,int4",
        value_name = "WEIGHTS"
    )]
    draft_weights: Vec<WeightType>,
    /// Also measure a random drafter of the same shape whose head has so many columns, to see the
    /// gain of a smaller vocabulary.
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<usize>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    /// Tokens in the caches of both models.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One pair of weight formats. Times are medians.
#[derive(Debug, Serialize)]
struct Row {
    weights: String,
    draft_weights: String,
    /// Number of columns of the drafter's head.
    columns: usize,
    /// Drafter step over target step, the paper's c.
    ratio: f64,
    /// Time of five tokens at once, in target steps.
    verify_cost: f64,
    #[serde(flatten)]
    times: StepTimes,
}

#[derive(Debug, Serialize)]
struct Report {
    target: String,
    drafter: String,
    threads: usize,
    context: usize,
    rows: Vec<Row>,
}

impl StepsArgs {
    /// Measures and prints.
    pub(super) fn execute(self) -> Result<()> {
        if self.context == 0 || self.columns == Some(0) {
            bail!("--context and --columns must be at least 1");
        }
        print_as(self.json, &self.measure()?, Report::text)
    }

    fn measure(&self) -> Result<Report> {
        let target = ModelFolder::<TargetId>::load(&self.target)?;
        let drafter = ModelFolder::<DraftId>::load(&self.drafter)?;
        let threads = self.threads.count();
        let settings = |weights: WeightType| EngineSettings::new(weights, threads);
        let (scores, drafts) = (self.devices.target()?, self.devices.drafter()?);
        let mut rows = Vec::new();
        for weights in &self.weights {
            let mut large = Stepper::new(&target, settings(*weights).on(scores), self.context)?;
            for draft_weights in &self.draft_weights {
                let stored = settings(*draft_weights).on(drafts);
                let mut small = Stepper::new(&drafter, stored, self.context)?;
                let mut row = |small: &mut Stepper, columns| -> Result<()> {
                    let times = measure(small, &mut large)?;
                    rows.push(Row {
                        weights: weights.to_string(),
                        draft_weights: draft_weights.to_string(),
                        columns,
                        ratio: times.ratio(),
                        verify_cost: times.verify_s / times.target_s,
                        times,
                    });
                    Ok(())
                };
                row(&mut small, drafter.config().vocab_size)?;
                if let Some(columns) = self.columns {
                    let shape = drafter.path.display().to_string();
                    let engine = shape_engine(&shape, Some(columns), stored)?;
                    row(&mut Stepper::of(engine, columns, self.context)?, columns)?;
                }
            }
        }
        Ok(Report {
            target: self.target.display().to_string(),
            drafter: self.drafter.display().to_string(),
            threads,
            context: self.context,
            rows,
        })
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{} drafts for {}: {} threads, context {}\n\n\
             | target | drafter | columns | target step | five tokens | drafter step | c |\n\
             |---|---|---:|---:|---:|---:|---:|\n",
            self.drafter, self.target, self.threads, self.context
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.3} ms | {:.2} steps | {:.3} ms | {:.4} |",
                row.weights,
                row.draft_weights,
                row.columns,
                1e3 * row.times.target_s,
                row.verify_cost,
                1e3 * row.times.draft_s,
                row.ratio,
            );
        }
        text
    }
}
