//! What a page is made by: `experiment.json`, which the program writes into the root of an
//! experiment's results. Only the fields below are read.

use crate::ReportError;
use crate::paper::PaperData;
use experiment::{FigureName, ReportConfig};
use results::{ArmInfo, EXPERIMENT_FILE, Metric, SweptFrom};
use serde::{Deserialize, Deserializer};
use std::path::Path;

/// The fields of `experiment.json` that pages need.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Experiment {
    /// Name of the experiment.
    pub name: String,
    /// Title of the page; the name where there is none.
    #[serde(default)]
    pub title: Option<String>,
    /// SHA-256 of the experiment file with everything it includes.
    #[serde(default)]
    pub hash: Option<String>,
    /// Stages in the file's order.
    pub stages: Vec<StageSpec>,
    /// Cells of every stage in order of the plan.
    #[serde(default)]
    pub cells: Vec<CellSpec>,
    /// Arms in table order.
    #[serde(deserialize_with = "arms")]
    pub arms: Vec<ArmInfo>,
    /// The page.
    #[serde(default)]
    pub report: ReportConfig,
    /// The paper's numbers, read from the file that the report section names.
    #[serde(default)]
    pub paper_data: Option<PaperData>,
}

/// One stage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StageSpec {
    /// Name, that of its folder.
    pub name: String,
    /// Stage whose learnt state its cells start from.
    #[serde(default)]
    pub from: Option<String>,
    /// Whether its cells ran alone on their machine, so that their times count.
    #[serde(default)]
    pub exclusive: bool,
}

/// A cell that a stage should have.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CellSpec {
    /// Stage.
    pub stage: String,
    /// Name, that of its folder.
    pub cell: String,
    /// Axis and value of every axis.
    #[serde(default)]
    pub coordinates: Vec<(String, String)>,
}

/// An arm as the experiment names it; what pages do not need may be left out.
#[derive(Deserialize)]
struct Arm {
    name: String,
    #[serde(default, alias = "plain")]
    is_plain: bool,
    #[serde(default)]
    k: u32,
    #[serde(default)]
    temperature: f64,
    #[serde(default)]
    swept_from: Option<Swept>,
}

/// Values of a sweep, as JSON has them.
#[derive(Deserialize)]
struct Swept {
    arm: String,
    values: Vec<(String, serde_json::Value)>,
}

fn arms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ArmInfo>, D::Error> {
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let arm = |arm: Arm| ArmInfo {
        name: arm.name,
        is_plain: arm.is_plain,
        k: arm.k,
        temperature: arm.temperature,
        swept_from: arm.swept_from.map(|swept| SweptFrom {
            arm: swept.arm,
            values: swept
                .values
                .into_iter()
                .map(|(key, v)| (key, text(v)))
                .collect(),
        }),
    };
    let arms = Vec::<Arm>::deserialize(deserializer)?;
    Ok(arms.into_iter().map(arm).collect())
}

/// Refuses a `report.cell` that names no metric; `path` is the file that holds it.
///
/// # Errors
/// [`ReportError::Unknown`] with the metrics there are.
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

impl Experiment {
    /// Reads `experiment.json` of a root folder and checks the names in its report section.
    ///
    /// # Errors
    /// [`ReportError::NotARoot`], [`ReportError::Experiment`] with the line, [`ReportError::Unknown`]
    /// with the key.
    pub fn read(root: &Path) -> Result<Self, ReportError> {
        let path = root.join(EXPERIMENT_FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ReportError::NotARoot {
                dir: root.to_path_buf(),
            },
            _ => ReportError::io(&path, source),
        })?;
        let mut experiment: Self =
            serde_json::from_str(&text).map_err(|error| ReportError::Experiment {
                path: path.clone(),
                line: error.line(),
                message: error.to_string(),
            })?;
        let rows = &mut experiment.report.rows;
        if !rows.iter().any(|axis| axis == "arm") {
            rows.push("arm".to_owned());
        }
        experiment.check(&path)?;
        Ok(experiment)
    }

    fn check(&self, path: &Path) -> Result<(), ReportError> {
        let report = &self.report;
        check_metrics(report, path)?;
        let known = |key, value, allowed| known(path, key, value, allowed);
        let arms = || {
            let swept = self.arms.iter().filter_map(|arm| arm.swept_from.as_ref());
            let names = self.arms.iter().map(|arm| arm.name.as_str());
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
            let stages = self.stages.iter().map(|stage| stage.name.as_str());
            known("stage", stage, stages.collect())?;
        }
        if self.stages.is_empty() {
            return known("stage", "", Vec::new());
        }
        Ok(())
    }

    /// Title of the page.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// The stage the tables are made from.
    pub fn table_stage(&self) -> Option<&StageSpec> {
        match &self.report.stage {
            Some(name) => self.stage(name),
            None => self.stages.last(),
        }
    }

    /// A stage by name.
    pub fn stage(&self, name: &str) -> Option<&StageSpec> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// The cells of a stage in order of the plan.
    pub fn cells<'a>(&'a self, stage: &'a str) -> impl Iterator<Item = &'a CellSpec> {
        self.cells.iter().filter(move |cell| cell.stage == stage)
    }

    /// Metrics of a table cell. A modelled speed never stands without the dearer one.
    pub fn metrics(&self) -> Vec<Metric> {
        let names = self.report.cell.iter();
        let mut metrics: Vec<Metric> = names.filter_map(|name| Metric::parse(name)).collect();
        let modelled = metrics.iter().position(|m| *m == Metric::ModelledSpeedup);
        if let Some(at) = modelled.filter(|_| !metrics.contains(&Metric::ImpliedSpeedup)) {
            metrics.insert(at + 1, Metric::ImpliedSpeedup);
        }
        metrics
    }

    /// Whether a figure is asked for.
    pub fn wants(&self, figure: FigureName) -> bool {
        self.report.figures.contains(&figure)
    }

    /// Whether an arm is shown.
    pub fn shows(&self, arm: &str) -> bool {
        let chosen = &self.report.arms;
        chosen.is_empty() || chosen.iter().any(|name| name == arm)
    }
}
