//! Arguments and output that several commands share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use experiment::{Job, LoadOptions, Plan};
use hub::{Hub, datasets::Datasets};
use lm::Device;
use models::{DeviceError, check_device};
use spec_decode::{SamplingError, VerifyMode};
use streams::DataSource;

/// What `--data-dir` says in place of a folder for the Hugging Face hub; a folder of that name is
/// `./hub`.
pub const DATA_HUB: &str = "hub";

/// Where prompts and texts come from.
#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    /// Folder with one subfolder per task, or `hub`: gsm8k, mbpp_humaneval, alpaca and xsum are
    /// downloaded from the Hugging Face hub when first used (default: $OMNIDRAFT_SHARED/datasets,
    /// if that is set).
    #[arg(long, value_name = "DIR|hub")]
    data_dir: Option<PathBuf>,
}

impl DataArgs {
    /// These arguments as words of a command line, for a command elsewhere.
    ///
    /// # Errors
    /// A folder that is not UTF-8, or no working directory.
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

    /// The source these arguments name.
    ///
    /// # Errors
    /// The hub is wanted, but there is nowhere to keep downloads.
    pub fn source(&self) -> Result<DataSource> {
        if self.data_dir.as_deref() == Some(DATA_HUB.as_ref()) {
            let datasets = Datasets::new(Hub::from_env()?);
            return Ok(DataSource::from_source(Arc::new(datasets)));
        }
        Ok(DataSource::resolve(self.data_dir.clone()))
    }
}

/// Where models are decoded.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct DeviceArgs {
    /// Where models are decoded: cpu, gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Cpu)]
    device: Device,
    /// Where the drafter is decoded, if that is another device.
    #[arg(long, value_name = "DEVICE")]
    drafter_device: Option<Device>,
}

impl DeviceArgs {
    /// Where the target is decoded.
    ///
    /// # Errors
    /// A device that this program cannot compute on.
    pub fn target(&self) -> Result<Device, DeviceError> {
        check_device(self.device)?;
        Ok(self.device)
    }

    /// Where the drafter is decoded.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn drafter(&self) -> Result<Device, DeviceError> {
        let device = self.drafter_device.unwrap_or(self.device);
        check_device(device)?;
        Ok(device)
    }
}

/// Writes to stdout; a closed pipe is no failure.
///
/// # Errors
/// As [`write_out`].
pub fn print(text: &str) -> Result<()> {
    write_out(text).map(drop)
}

/// Writes to stdout; false where nobody reads it any more.
///
/// # Errors
/// Anything else that stops the writing, such as a full disk.
pub fn write_out(text: &str) -> Result<bool> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // What stays in the buffer is lost without a word when the program ends.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e).context("standard output"),
    }
}

/// The flag of a sampling option.
pub fn flag(error: SamplingError) -> anyhow::Error {
    let SamplingError {
        option,
        value,
        range,
    } = error;
    anyhow!("--{} {value}: must be in {range}", option.replace('_', "-"))
}

/// Drafting from the context instead of by a model, among the names of verification modes.
const LOOKUP: &str = "prompt-lookup";

/// A verification mode by name, and whether drafts are looked up instead of drafted by a model.
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

/// An experiment and what of it is meant.
#[derive(Debug, Clone, clap::Args)]
pub struct ExperimentArgs {
    /// The experiment.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Override a key of the experiment, for example decode.k=3; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Where models are decoded that name no device of their own (`models.device`): cpu, gpu, or gpu:N
    /// for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Read this file behind those the experiment includes, for example other models; may be
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

    /// The whole experiment.
    ///
    /// # Errors
    /// Those of [`Plan::load`].
    pub fn plan(&self) -> Result<Plan> {
        let options = LoadOptions {
            overrides: self.overrides(),
            extra_includes: self.includes.clone(),
        };
        Ok(Plan::load(&self.file, &options)?)
    }

    /// The jobs of a plan that are meant.
    ///
    /// # Errors
    /// A filter that leaves nothing.
    pub fn filter(&self, plan: Plan) -> Result<Plan> {
        let split = |text: &String| {
            let (axis, value) = text.split_once('=')?;
            Some((axis.to_owned(), value.to_owned()))
        };
        let mut pairs = Vec::new();
        for text in &self.only {
            let pair = split(text);
            pairs.push(pair.ok_or_else(|| anyhow!("--only {text}: expected AXIS=VALUE"))?);
        }
        let mut plan = plan;
        if !pairs.is_empty() {
            let pairs: Vec<(&str, &str)> = pairs
                .iter()
                .map(|(a, v)| (a.as_str(), v.as_str()))
                .collect();
            plan = plan.only(&pairs)?;
        }
        if let Some(stage) = &self.stage {
            plan = plan.stage(stage)?;
        }
        Ok(plan)
    }

    /// The first job that is meant.
    ///
    /// # Errors
    /// Those of the plan; a filter that leaves nothing.
    pub fn first_job(&self) -> Result<Job> {
        let plan = self.filter(self.plan()?)?;
        let first = plan.jobs.into_iter().next();
        first.ok_or_else(|| anyhow!("the experiment has no jobs"))
    }
}
