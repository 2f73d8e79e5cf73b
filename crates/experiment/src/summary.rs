//! An experiment without its jobs.

use crate::arm::ArmConfig;
use crate::report::{LauncherConfig, ReportConfig};
use crate::settings::ModelsConfig;
use serde::Serialize;

/// An experiment without its jobs, from which the record of a run (`results::RunRecord`) and
/// launchers are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Short name; the results folder.
    pub name: String,
    /// Title of the page, if it has one.
    pub title: Option<String>,
    /// Axes of the grid, in order.
    pub axes: Vec<Axis>,
    /// Stages, in order of the plan.
    pub stages: Vec<Stage>,
    /// Arms of the first job, in table order, with expanded sweeps.
    pub arms: Vec<ArmConfig>,
    /// The drafter and all targets, before any patch.
    pub models: ModelsConfig,
    /// The page made from the rows.
    pub report: ReportConfig,
    /// Options of launchers.
    pub launcher: LauncherConfig,
    /// SHA-256 over the merged files and the jobs made from them. Spaces, comments and the order of
    /// keys do not change it.
    pub hash: String,
}

/// An axis of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// `seed`, `target`, `task`, a dotted key, or a word that a `[[when]]` names.
    pub name: String,
    /// Its values, as written, in order.
    pub values: Vec<String>,
}

/// A stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name, which is the folder of its jobs.
    pub name: String,
    /// The stage whose learnt states its jobs start from.
    pub from: Option<String>,
    /// True if its jobs run alone on their machine.
    pub exclusive: bool,
}

impl Experiment {
    /// The arms that `name` stands for: the one with this name, or the variants of a swept arm.
    pub fn arms_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ArmConfig> + 'a {
        let exact = self.arms.iter().any(|arm| arm.name == name);
        self.arms.iter().filter(move |arm| match &arm.swept_from {
            Some(from) if !exact => from.arm == name,
            _ => arm.name == name,
        })
    }
}
