//! Building the plan from files: all stages, cells and arms.

use std::path::Path;

use serde_json::json;

use crate::canonical;
use crate::error::ExperimentError;
use crate::expand::Parts;
use crate::file::Heading;
use crate::grid::{self, is_folder_name};
use crate::lineup;
use crate::load::{self, Faults, LoadOptions, Node, read, read_or_default};
use crate::plan::Plan;
use crate::report::LauncherConfig;
use crate::settings::{CacheOptions, DecodeConfig, HeadOptions, LearnConfig, ModelsConfig};
use crate::stage::{self, StageDef};
use crate::summary::{Experiment, Stage};
use crate::when;
use crate::{report_check, segments};

/// Names of the sections and keys at the top of a file.
const TOP: [&str; 16] = [
    "name", "title", "include", "models", "decode", "learn", "cache", "head", "grid", "when",
    "segment", "stage", "arm", "sweep", "report", "launcher",
];

impl Plan {
    /// Reads an experiment with all its includes, applies the overrides, expands grid, stages, arms
    /// and sweeps, and checks every arm of every job.
    ///
    /// # Errors
    /// Unreadable files, cycles of includes, or all faults at once, each with file, line and key.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, ExperimentError> {
        let mut faults = Faults::default();
        let root = load::load(path, options, &mut faults)?;
        // Values that could not be parsed would be reported as missing below.
        let plan = match faults.is_empty() {
            true => assemble(&root, path, &mut faults),
            false => None,
        };
        faults.into_result(path, plan)
    }
}

fn assemble(root: &Node, path: &Path, faults: &mut Faults) -> Option<Plan> {
    unknown_sections(root, faults);
    let heading = heading(root, faults);
    let models = models(root, faults);
    let defaults = defaults(root, faults);
    let words = when::words(root.at("when"));
    let grid = match &models {
        Some(models) => grid::read(root.at("grid"), models, &words, faults),
        None => None,
    };
    let whens = when::read_all(root.at("when"), faults);
    let stages = stage::read_all(root.at("stage"), faults);
    let segments = segments::read_all(root.at("segment"), faults);
    let arms = lineup::read_all(root, &defaults, faults);
    let launcher: Option<LauncherConfig> = read_or_default(root.at("launcher"), "launcher", faults);
    let report = report_check::read(root, path, faults);
    if let (Some(grid), Some(stages)) = (&grid, &stages) {
        let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        for (i, when) in whens.iter().enumerate() {
            when.check(i, grid, &names, faults);
        }
    }
    let parts = Parts {
        root,
        name: heading
            .as_ref()
            .map(|heading| heading.name.clone())
            .unwrap_or_default(),
        models: models?,
        defaults,
        grid: grid?,
        whens,
        segments: segments?,
        stages: stages?,
        arms: arms?,
    };
    let (jobs, learn) = parts.jobs(faults)?;
    let heading = heading?;
    let mut experiment = Experiment {
        name: heading.name,
        title: heading.title,
        axes: parts.grid.axes,
        stages: parts.stages.iter().map(stage_summary).collect(),
        arms: jobs.first()?.config.arms.clone(),
        models: parts.models,
        report: report?,
        launcher: launcher?,
        hash: String::new(),
    };
    report_check::check(&mut experiment, root, faults);
    let hashes: Vec<&str> = jobs.iter().map(|job| job.hash.as_str()).collect();
    experiment.hash = canonical::hash(json!({ "files": root.to_json(), "jobs": hashes }));
    Some(Plan {
        experiment,
        jobs,
        places: root.places(),
        learn,
    })
}

fn unknown_sections(root: &Node, faults: &mut Faults) {
    for (key, node) in root.as_table().into_iter().flatten() {
        if !TOP.contains(&key.as_str()) {
            let known = TOP.map(|key| format!("`{key}`")).join(", ");
            let message = format!("unknown key, expected one of {known}");
            faults.add(node.place.as_ref(), key, message);
        }
    }
}

fn heading(root: &Node, faults: &mut Faults) -> Option<Heading> {
    let mut node = Node::table(None);
    for key in ["name", "title"] {
        if let Some(value) = root.at(key) {
            node.put(key, value.clone());
        }
    }
    node.place = None;
    let heading: Heading = read(&node, "", faults)?;
    if !is_folder_name(&heading.name) {
        let message = format!(
            "`{}` cannot name a folder: use letters, digits, . _ + -",
            heading.name
        );
        faults.add(root.place_at("name"), "name", message);
    }
    Some(heading)
}

fn models(root: &Node, faults: &mut Faults) -> Option<ModelsConfig> {
    let Some(node) = root.at("models") else {
        let hint = "write [models] drafter = \"models/D\", targets = { L = \"models/L\" }, or \
                    include a file that does";
        faults.advise(None, "models", "there is no such section", hint);
        return None;
    };
    let models: ModelsConfig = read(node, "models", faults)?;
    if models.targets.is_empty() {
        faults.add(
            node.place.as_ref(),
            "models.targets",
            "at least one is needed",
        );
        return None;
    }
    Some(models)
}

/// The sections that arms start from, checked as far as possible here.
fn defaults(root: &Node, faults: &mut Faults) -> Node {
    let mut defaults = Node::table(None);
    for section in grid::SECTIONS {
        let Some(node) = root.at(section) else {
            continue;
        };
        // Only for the faults: arms read the merged sections again.
        match section {
            "decode" => drop(read::<DecodeConfig>(node, section, faults)),
            "learn" => drop(read::<LearnConfig>(node, section, faults)),
            "cache" => drop(read::<CacheOptions>(node, section, faults)),
            "head" => drop(read::<HeadOptions>(node, section, faults)),
            _ => {}
        }
        defaults.put(section, node.clone());
    }
    defaults.place = None;
    defaults
}

fn stage_summary(stage: &StageDef) -> Stage {
    Stage {
        name: stage.name.clone(),
        from: stage.file.from.clone(),
        exclusive: stage.file.exclusive,
    }
}
