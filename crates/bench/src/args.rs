//! Arguments and output that several commands share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::RangedU64ValueParser;
use cpu_engine::default_threads;
use experiment::{Job, LoadOptions, Plan};
use hub::{Hub, datasets::Datasets};
use lm::Device;
use models::{DeviceError, TORCH_PREFIX, TargetFolder, TorchSettings, check_device, torch_model};
use serde::Serialize;
use spec_decode::{SamplingError, VerifyMode};
use streams::DataSource;
use torch_engine::Dtype;

/// Value of `--data-dir` that stands for the Hugging Face hub; a folder with that name is `./hub`.
pub const DATA_HUB: &str = "hub";
/// Largest number of threads: beyond any machine's cores, below what a system refuses.
const MOST_THREADS: u64 = 1024;

/// Source of prompts and texts.
#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    /// Folder with one subfolder per task, or `hub`: gsm8k, mbpp_humaneval, alpaca and xsum are
    /// downloaded from the Hugging Face hub when first used (default: $OMNIDRAFT_SHARED/datasets,
    /// if that is set).
    #[arg(long, value_name = "DIR|hub")]
    data_dir: Option<PathBuf>,
}

impl DataArgs {
    /// These arguments as words of a command line, for a command in another folder.
    ///
    /// # Errors
    /// A folder whose path is not UTF-8, or no working directory.
    pub fn words(&self) -> Result<Vec<String>> {
        let Some(folder) = &self.data_dir else {
            return Ok(Vec::new());
        };
        let folder = match folder.as_path() == Path::new(DATA_HUB) {
            true => folder.clone(),
            false => std::path::absolute(folder)?,
        };
        let text = folder.to_str();
        let text = text.ok_or_else(|| anyhow!("--data-dir {}: not UTF-8", folder.display()))?;
        Ok(vec!["--data-dir".to_owned(), text.to_owned()])
    }

    /// The data source that these arguments name.
    ///
    /// # Errors
    /// The hub is requested, but there is no folder for downloads.
    pub fn source(&self) -> Result<DataSource> {
        if self.data_dir.as_deref() == Some(DATA_HUB.as_ref()) {
            let datasets = Datasets::new(Hub::from_env()?);
            return Ok(DataSource::from_source(Arc::new(datasets)));
        }
        Ok(DataSource::resolve(self.data_dir.clone()))
    }
}

/// Threads of a command.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ThreadArgs {
    /// Threads that compute (default: one a core; cores that save energy are left out).
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_THREADS))]
    threads: Option<usize>,
}

impl ThreadArgs {
    /// Number of threads.
    pub fn count(self) -> usize {
        self.threads.unwrap_or_else(default_threads)
    }
}

/// Devices for decoding.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct DeviceArgs {
    /// Device that decodes models: cpu, gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Cpu)]
    device: Device,
    /// Device that decodes the drafter, if that is another one.
    #[arg(long, value_name = "DEVICE")]
    drafter_device: Option<Device>,
}

impl DeviceArgs {
    /// Device of the target.
    ///
    /// # Errors
    /// A device that this program does not support.
    pub fn target(&self) -> Result<Device, DeviceError> {
        check_device(self.device)?;
        Ok(self.device)
    }

    /// Device of the drafter.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn drafter(&self) -> Result<Device, DeviceError> {
        let device = self.drafter_device.unwrap_or(self.device);
        check_device(device)?;
        Ok(device)
    }

    /// Device of the drafter, where the target is on another machine.
    ///
    /// # Errors
    /// As [`target`](Self::target); a device for the target.
    pub fn drafter_alone(&self) -> Result<Device> {
        if self.drafter_device.is_some() && !self.device.is_cpu() {
            bail!(
                "--device {}: a target on another machine has no device here\nhint: leave it out; --drafter-device says where the drafter decodes",
                self.device
            );
        }
        Ok(self.drafter()?)
    }
}

/// Options of the PyTorch worker that decodes a target `torch:DIR` or `torch:hf:owner/name`.
#[derive(Debug, Clone, clap::Args)]
pub struct TorchArgs {
    /// Number format of a target torch:DIR: float32, float16, bfloat16, or auto for that of its
    /// files (the default).
    #[arg(long, value_name = "DTYPE")]
    torch_dtype: Option<Dtype>,
    /// Device of a target torch:DIR: cpu, cuda, cuda:N, mps; or auto (the default), which spreads it
    /// if accelerate is installed, and otherwise takes the first of cuda, mps and cpu.
    #[arg(long, value_name = "DEVICE")]
    torch_device: Option<String>,
    /// Seconds that a call of the worker of a target torch:DIR may take (600 by default); loading
    /// may take ten times as long.
    #[arg(long, value_name = "SECONDS")]
    torch_timeout: Option<u64>,
}

impl TorchArgs {
    /// The settings of workers for `targets`, with as many threads as are given.
    ///
    /// # Errors
    /// Options of a worker without a target that has one.
    pub fn settings<'a>(
        &self,
        targets: impl IntoIterator<Item = &'a Path>,
        threads: ThreadArgs,
    ) -> Result<TorchSettings> {
        let set = [
            ("--torch-dtype", self.torch_dtype.is_some()),
            ("--torch-device", self.torch_device.is_some()),
            ("--torch-timeout", self.torch_timeout.is_some()),
        ];
        let set = set.into_iter().find(|(_, set)| *set);
        if let Some((flag, _)) = set
            && !targets
                .into_iter()
                .any(|target| torch_model(target).is_some())
        {
            bail!(
                "{flag} goes with a target that a worker of PyTorch decodes\nhint: {TORCH_PREFIX}DIR names one"
            );
        }
        let usual = TorchSettings::default();
        Ok(TorchSettings {
            dtype: self.torch_dtype.unwrap_or_default(),
            device: self.torch_device.clone().unwrap_or(usual.device),
            threads: threads.threads,
            timeout: self
                .torch_timeout
                .map_or(usual.timeout, |seconds| Duration::from_secs(seconds.max(1))),
            ..usual
        })
    }

    /// Loads a target.
    ///
    /// # Errors
    /// As for [`TargetFolder::load`]; options of a worker for another target.
    pub fn load(&self, target: &Path, threads: ThreadArgs) -> Result<TargetFolder> {
        Ok(TargetFolder::load(
            target,
            &self.settings([target], threads)?,
        )?)
    }
}

/// Writes to stdout; a closed pipe is not an error.
///
/// # Errors
/// As [`write_out`].
pub fn print(text: &str) -> Result<()> {
    write_out(text).map(drop)
}

/// Writes to stdout; false if the pipe is closed.
///
/// # Errors
/// Other errors of writing, such as a full disk.
pub fn write_out(text: &str) -> Result<bool> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // Output that stays in the buffer would be lost silently when the program ends.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e).context("standard output"),
    }
}

/// Prints a value as JSON, or its text.
///
/// # Errors
/// As [`write_out`].
pub fn print_as<T: Serialize>(json: bool, value: &T, text: fn(&T) -> String) -> Result<()> {
    match json {
        true => print(&format!("{:#}\n", serde_json::to_value(value)?)),
        false => print(&text(value)),
    }
}

/// An error of a sampling option, with its flag.
pub fn flag(error: SamplingError) -> anyhow::Error {
    let SamplingError {
        option,
        value,
        range,
    } = error;
    anyhow!("--{} {value}: must be in {range}", option.replace('_', "-"))
}

/// Name of the mode that takes drafts from the context instead of from a model.
const LOOKUP: &str = "prompt-lookup";

/// A verification mode by name, and true if drafts are looked up instead of drafted by a model.
///
/// # Errors
/// An unknown name, with the known ones.
pub fn parse_verify(name: &str) -> Result<(VerifyMode, bool)> {
    if name == LOOKUP {
        return Ok((VerifyMode::Tli, true));
    }
    let modes = VerifyMode::ALL.map(VerifyMode::name).join(", ");
    let unknown = |_| anyhow!("unknown verification mode `{name}` (one of {modes}, {LOOKUP})");
    Ok((name.parse().map_err(unknown)?, false))
}

/// An experiment and a selection of its cells.
#[derive(Debug, Clone, clap::Args)]
pub struct ExperimentArgs {
    /// The experiment.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Override a key of the experiment, for example decode.k=3; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Device for models that name none themselves (`models.device`): cpu, gpu, or gpu:N for one of
    /// several, counted from 0.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Read this file after those that the experiment includes, for example other models; may be
    /// repeated.
    #[arg(long = "include", value_name = "FILE")]
    pub includes: Vec<PathBuf>,
    /// Only cells with this value on an axis of the grid, for example target=L; may be repeated.
    #[arg(long = "only", value_name = "AXIS=VALUE")]
    pub only: Vec<String>,
    /// Only this stage.
    #[arg(long, value_name = "NAME")]
    pub stage: Option<String>,
}

impl ExperimentArgs {
    /// The overrides of keys, `--device` among them.
    pub fn overrides(&self) -> Vec<String> {
        let device = self.device.map(|device| format!("models.device={device}"));
        self.overrides.iter().cloned().chain(device).collect()
    }

    /// True if options change the experiment of the file, or select a part of it.
    pub fn changes(&self) -> bool {
        let selects = !self.only.is_empty() || self.stage.is_some();
        selects || !self.includes.is_empty() || !self.overrides().is_empty()
    }

    /// The whole experiment.
    ///
    /// # Errors
    /// As for [`Plan::load`].
    pub fn plan(&self) -> Result<Plan> {
        let options = LoadOptions {
            overrides: self.overrides(),
            extra_includes: self.includes.clone(),
        };
        Ok(Plan::load(&self.file, &options)?)
    }

    /// The selected jobs of a plan.
    ///
    /// # Errors
    /// A filter that no job passes.
    pub fn filter(&self, mut plan: Plan) -> Result<Plan> {
        let mut pairs = Vec::new();
        for text in &self.only {
            let pair = text.split_once('=');
            pairs.push(pair.ok_or_else(|| anyhow!("--only {text}: expected AXIS=VALUE"))?);
        }
        if !pairs.is_empty() {
            plan = plan.only(&pairs)?;
        }
        if let Some(stage) = &self.stage {
            plan = plan.stage(stage)?;
        }
        Ok(plan)
    }

    /// The first selected job.
    ///
    /// # Errors
    /// Errors of the plan; a filter that no job passes.
    pub fn first_job(&self) -> Result<Job> {
        let plan = self.filter(self.plan()?)?;
        let first = plan.jobs.into_iter().next();
        first.ok_or_else(|| anyhow!("the experiment has no jobs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        threads: ThreadArgs,
    }

    #[test]
    fn threads_are_as_many_as_asked_for_or_the_default() {
        let count = |words: &[&str]| {
            let line = std::iter::once("bench").chain(words.iter().copied());
            Line::try_parse_from(line).map(|line| line.threads.count())
        };
        assert_eq!(count(&["--threads", "3"]).unwrap(), 3);
        assert_eq!(count(&[]).unwrap(), default_threads());
        assert!(count(&["--threads", "0"]).is_err());
    }
}
