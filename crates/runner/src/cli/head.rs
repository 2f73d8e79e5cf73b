//! `omnidraft head`: an acceptance head, trained offline before a run.

use std::path::PathBuf;

use adaptive_draft::{Head, HeadConfig, HeadTrainer, LabelRecorder};
use anyhow::{Result, bail};
use clap::Args;
use spec_decode::ConstantLength;

use super::{DataArgs, print};
use bench::args::ExperimentArgs;
use online::{Probe, ProbeOptions};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft head experiments/table2.toml --data-dir DATA --out head.safetensors
  omnidraft head experiments/table2.toml --only task=xsum --prompts 400 --out head.safetensors
  omnidraft run experiments/table2.toml --set head.path=head.safetensors

Trains an acceptance head offline: on what the experiment's drafter, untouched, drafts for prompts
behind those that a run streams.")]
pub struct HeadArgs {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// File to write (safetensors).
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Number of prompts to draft for.
    #[arg(long, default_value_t = 200)]
    prompts: usize,
    /// Training prompts skipped before them [default: those that the segment streams]
    #[arg(long)]
    skip: Option<usize>,
    /// Passes over the examples.
    #[arg(long, default_value_t = 8)]
    epochs: usize,
    #[command(flatten)]
    data: DataArgs,
}

impl HeadArgs {
    /// Collects examples, trains the head and writes it.
    pub fn execute(self) -> Result<()> {
        if self.prompts < 10 || self.epochs == 0 {
            bail!("--prompts must be at least 10 and --epochs at least 1");
        }
        let job = self.experiment.first_job()?;
        let seed = job.config.seed;
        let Some(arm) = job.config.arms.iter().find(|arm| !arm.is_plain()) else {
            bail!("no arm of the experiment drafts");
        };
        let options = ProbeOptions {
            prompts: self.prompts,
            skip: self.skip,
            padded: false,
        };
        let mut probe = Probe::load(&job.config, &self.data.source()?, options)?;
        let prompts = probe.len();
        let mut collect = |prompts: std::ops::Range<usize>| -> Result<Vec<_>> {
            let mut examples = Vec::new();
            for prompt in prompts {
                let policy = ConstantLength(arm.decode.k);
                let mut watch = LabelRecorder::new(policy, None, &mut [], Some(&mut examples));
                probe.draft(prompt, &mut watch)?;
            }
            Ok(examples)
        };
        // Every tenth prompt is held out, to evaluate the head.
        let held_out = (prompts / 10).max(1);
        let test = collect(0..held_out)?;
        let train = collect(held_out..prompts)?;
        if test.is_empty() || train.is_empty() {
            bail!("nothing was judged: the drafter proposed nothing");
        }
        let training = HeadConfig {
            buffer: (train.len() + test.len()).max(HeadConfig::default().buffer),
            steps: 1,
            ..HeadConfig::default()
        };
        let features = train[0].features.len();
        let head = Head::new(features, training.hidden, seed);
        let mut trainer = HeadTrainer::new(head, training, seed);
        let steps = (self.epochs * train.len()).div_ceil(training.batch);
        let examples = train.len();
        trainer.extend(train);
        for _ in 0..steps {
            trainer.step_on_buffer()?;
        }
        trainer.head().save(&self.out)?;
        trainer.extend(test);
        let Some(report) = trainer.step_on_fresh()? else {
            bail!("nothing was held out");
        };
        print(&format!(
            "{}: {features} features, {} hidden units, {examples} examples, {steps} steps\n\
             held out ({} judged tokens): cross-entropy {:.3} nats, predicted acceptance {:.3}, \
             true {:.3}, calibration error {:.3}\n",
            self.out.display(),
            training.hidden,
            report.fresh,
            report.fresh_loss,
            report.predicted,
            report.accepted,
            report.calibration_error,
        ))
    }
}
