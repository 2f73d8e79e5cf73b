//! The description of a page: `experiment.json`, which the program writes into the root of an
//! experiment's results.

use crate::ReportError;
use crate::paper::PaperData;
use experiment::ReportConfig;
use results::{EXPERIMENT_FILE, Metric, RunRecord, StageSpec};
use std::path::Path;

/// The record of a run for pages, which do not need its jobs.
pub type Experiment = RunRecord<serde_json::Value, ReportConfig, PaperData>;

/// Refuses a `report.cell` that is not a metric; `path` is its file.
///
/// # Errors
/// [`ReportError::Unknown`] with the known metrics.
pub fn check_metrics(report: &ReportConfig, path: &Path) -> Result<(), ReportError> {
    let names = || Metric::ALL.iter().map(|metric| metric.name()).collect();
    let mut cell = report.cell.iter();
    cell.try_for_each(|name| known(path, "cell", name, names()))
}

fn known(path: &Path, key: &str, value: &str, allowed: Vec<&str>) -> Result<(), ReportError> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(ReportError::Unknown {
        path: path.to_path_buf(),
        key: format!("report.{key}"),
        value: value.to_owned(),
        allowed: allowed.join(", "),
    })
}

/// Reads `experiment.json` of a root folder and checks the names in its report section.
///
/// # Errors
/// [`ReportError::NotARoot`], errors of [`RunRecord::read`], [`ReportError::Unknown`] with the key.
pub fn read(root: &Path) -> Result<Experiment, ReportError> {
    let mut experiment = Experiment::read(root)?.ok_or_else(|| ReportError::NotARoot {
        dir: root.to_path_buf(),
    })?;
    let rows = &mut experiment.report.rows;
    if !rows.iter().any(|axis| axis == "arm") {
        rows.push("arm".to_owned());
    }
    check(&experiment, &root.join(EXPERIMENT_FILE))?;
    Ok(experiment)
}

/// Refuses unknown names in the report section; `path` is its file.
fn check(experiment: &Experiment, path: &Path) -> Result<(), ReportError> {
    let report = &experiment.report;
    check_metrics(report, path)?;
    let known = |key, value, allowed| known(path, key, value, allowed);
    let arms = || {
        let arms = experiment.arms.iter();
        let swept = arms.clone().filter_map(|arm| arm.swept_from.as_ref());
        let names = arms.map(|arm| arm.name.as_str());
        names.chain(swept.map(|swept| swept.arm.as_str())).collect()
    };
    for name in &report.arms {
        known("arms", name, arms())?;
    }
    for (above, below) in &report.ratios {
        known("ratios", above, arms())?;
        known("ratios", below, arms())?;
    }
    if let Some(stage) = &report.stage {
        let stages = experiment.stages.iter().map(|stage| stage.name.as_str());
        known("stage", stage, stages.collect())?;
    }
    if experiment.stages.is_empty() {
        return known("stage", "", Vec::new());
    }
    Ok(())
}

pub fn table_stage(experiment: &Experiment) -> Option<&StageSpec> {
    match &experiment.report.stage {
        Some(name) => experiment.stage(name),
        None => experiment.stages.last(),
    }
}

/// Metrics of a table cell. A modelled speedup is always accompanied by the one with overhead.
pub fn metrics(report: &ReportConfig) -> Vec<Metric> {
    let names = report.cell.iter();
    let mut metrics: Vec<Metric> = names.filter_map(|name| Metric::parse(name)).collect();
    let modelled = metrics.iter().position(|m| *m == Metric::ModelledSpeedup);
    if let Some(at) = modelled.filter(|_| !metrics.contains(&Metric::ImpliedSpeedup)) {
        metrics.insert(at + 1, Metric::ImpliedSpeedup);
    }
    metrics
}

/// True if the page shows an arm, by its own name or by that of the arm that was swept.
pub fn shows(experiment: &Experiment, arm: &str) -> bool {
    let chosen = &experiment.report.arms;
    let named = |arm: &str| chosen.iter().any(|name| name == arm);
    let own = experiment.arms.iter().find(|own| own.name == arm);
    let swept = own.and_then(|own| own.swept_from.as_ref());
    chosen.is_empty() || named(arm) || swept.is_some_and(|swept| named(&swept.arm))
}
