//! Runs a job, from its configuration to its folder.

use std::path::Path;

use anyhow::Result;
use cpu_engine::{KernelChoice, MemoryProbe};
use experiment::{ArmConfig, Job, JobConfig};
use online::{JobSetting, Progress, run_job};
use results::{ArmInfo, CellInfo, Manifest, SweptFrom};
use streams::DataSource;

use crate::build;

/// Folder of the arms' learnt state, inside a job's folder.
pub(crate) const STATE: &str = "state";
/// Bytes read to measure bandwidth: several times the largest cache of common machines.
const PROBE_BYTES: usize = 256 << 20;
/// Number of reads; the fastest counts.
const PROBE_PASSES: usize = 8;

/// Runs a job into the folder `out`, starting from the learnt state of the job in the folder
/// `from`.
///
/// # Errors
/// Errors of [`run_job`].
pub fn execute(
    job: &Job,
    experiment_sha256: &str,
    data: &DataSource,
    out: &Path,
    from: Option<&Path>,
    watch: &mut dyn FnMut(Progress),
) -> Result<()> {
    let start = from.map(|folder| folder.join(STATE));
    let state = out.join(STATE);
    let setting = JobSetting {
        data,
        out,
        state: &state,
        start: start.as_deref(),
    };
    run_job(
        &job.config,
        manifest(job, experiment_sha256),
        setting,
        watch,
    )?;
    Ok(())
}

fn manifest(job: &Job, experiment_sha256: &str) -> Manifest {
    let config = &job.config;
    let cell = CellInfo {
        experiment: config.experiment.clone(),
        experiment_sha256: experiment_sha256.to_owned(),
        stage: config.stage.clone(),
        name: config.cell.clone(),
        coordinates: job.coordinates.clone(),
        seed: config.seed,
        exclusive: config.exclusive,
        from: config.from.clone(),
    };
    let hash = job.hash.clone();
    let mut manifest = Manifest::new(cell, config.to_json(), hash, build::info());
    manifest.arms = config.arms.iter().map(arm_info).collect();
    manifest.machine.kernels = Some(KernelChoice::widest().to_string());
    if config.exclusive {
        manifest.machine.bandwidth_gbs = bandwidth(config);
    }
    manifest
}

/// The facts about an arm for pages.
pub fn arm_info(arm: &ArmConfig) -> ArmInfo {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ArmInfo {
        name: arm.name.clone(),
        is_plain: arm.is_plain(),
        k: match arm.is_plain() {
            true => 0,
            false => u32::try_from(arm.decode.k).unwrap_or(u32::MAX),
        },
        temperature: arm.decode.temperature,
        swept_from: arm.swept_from.as_ref().map(|from| SweptFrom {
            arm: from.arm.clone(),
            values: from
                .values
                .iter()
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
        }),
    }
}

/// Memory bandwidth of the job's threads, in GB per second: the main reason why the same program is
/// faster on one machine than on another.
fn bandwidth(config: &JobConfig) -> Option<f64> {
    let probe = MemoryProbe::new(PROBE_BYTES, config.decode().threads).ok()?;
    let passes = (0..PROBE_PASSES).map(|_| probe.pass());
    let best = passes.fold(0.0, f64::max);
    Some((best / 1e8).round() / 10.0)
}
