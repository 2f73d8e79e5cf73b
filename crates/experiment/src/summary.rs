//! An experiment without its jobs.

use crate::arm::{ArmConfig, SweptFrom};
use crate::count::PromptCounts;
use crate::file::OnStream;
use crate::report::{LauncherConfig, ReportConfig};
use crate::settings::ModelsConfig;

/// An experiment without its jobs: what the record of a run (`results::RunRecord`) and a launcher are made from.
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
    /// Arms, in table order, sweeps spelled out.
    pub arms: Vec<ArmSummary>,
    /// The drafter and all targets, before any patch.
    pub models: ModelsConfig,
    /// What is made of the rows.
    pub report: ReportConfig,
    /// Options of launchers.
    pub launcher: LauncherConfig,
    /// SHA-256 over the merged files and the jobs made from them. Spaces, comments and the order of
    /// keys do not change it.
    pub hash: String,
}

/// An axis of the grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// `seed`, `target`, `task`, a dotted key, or a word that some `[[when]]` names.
    pub name: String,
    /// Its values, as written, in order.
    pub values: Vec<String>,
}

/// A stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name; the folder of its jobs.
    pub name: String,
    /// The stage whose states its jobs start from.
    pub from: Option<String>,
    /// Whether its jobs run alone on their machine.
    pub exclusive: bool,
    /// Which arms answer streamed prompts.
    pub on_stream: OnStream,
    /// Prompts, before `[[when]]` and `[[segment]]`.
    pub prompts: PromptCounts,
}

/// An arm as the report section may name it.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmSummary {
    /// Label.
    pub name: String,
    /// Whether it is plain decoding, the reference of speedups.
    pub plain: bool,
    /// The arm it borrows what was learnt from.
    pub learnt_by: Option<String>,
    /// Where a sweep made it.
    pub swept_from: Option<SweptFrom>,
}

impl Experiment {
    /// The arms that `name` stands for: the one of this name, or those a sweep made from it.
    pub fn arms_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ArmSummary> + 'a {
        let exact = self.arms.iter().any(|arm| arm.name == name);
        self.arms.iter().filter(move |arm| match &arm.swept_from {
            Some(from) if !exact => from.arm == name,
            _ => arm.name == name,
        })
    }
}

impl From<&ArmConfig> for ArmSummary {
    fn from(arm: &ArmConfig) -> Self {
        Self {
            name: arm.name.clone(),
            plain: arm.is_plain(),
            learnt_by: arm.learnt_by.clone(),
            swept_from: arm.swept_from.clone(),
        }
    }
}
