//! An experiment in a temporary folder, run job by job, and a learner with examples.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use distill_loss::{Chunk, Example, TeacherRow};
use experiment::{ExperimentError, JobConfig, LearnConfig, LoadOptions, Plan};
use lm::{Checkpoint, LmConfig, random_checkpoint};
use online::{JobSetting, Learner, OnlineError, Progress, run_job};
use results::{ArmInfo, BuildInfo, CellInfo, CellReader, Manifest, PromptRow};
use serde::Serialize;
use serde_json::Value;
use streams::DataSource;
use tempfile::TempDir;

/// Folder of the arms' learnt state, inside that of a job.
const STATE: &str = "state";

/// The models of this repository.
pub fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// `[models]` of an experiment: drafter D and some targets by their names in the experiment.
pub fn models_table(targets: &[(&str, &str)]) -> String {
    let folder = models();
    let folder = folder.display();
    let mut text = format!("[models]\ndrafter = \"{folder}/D\"\n");
    for (name, model) in targets {
        text += &format!("targets.{name} = \"{folder}/{model}\"\n");
    }
    text
}

/// A small random drafter.
pub fn drafter() -> Checkpoint {
    let json = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}"#;
    let config = LmConfig::from_json(json, Path::new("config.json")).unwrap();
    random_checkpoint(&config, 3)
}

/// A learner of the losses that `config` names.
pub fn learner(config: LearnConfig, seed: u64) -> Result<Learner, OnlineError> {
    Learner::new(&drafter(), config, seed)
}

/// A text for [`drafter`] with chunks of these draft tokens and numbers of target tokens.
pub fn example(seed: u32, chunks: impl Iterator<Item = (Range<usize>, usize)>) -> Example {
    let ids: Vec<u32> = (0..16).map(|i| (i * 7 + seed * 5) % 50).collect();
    let shared: Arc<[u32]> = (0..50).filter(|id| id % 4 != 3).collect();
    let law = |emitted: u32| {
        let log_prob = move |id: &u32| if *id == emitted { -0.2 } else { -5.5 };
        TeacherRow::new(shared.iter().map(log_prob))
    };
    let chunks = chunks.map(|(draft, targets)| Chunk {
        law: (targets == 1).then(|| law(ids[draft.start])),
        log_prob: -0.3,
        draft,
        targets,
        own: None,
        special: false,
    });
    Example {
        chunks: chunks.collect(),
        ids,
        shared,
        ..Example::default()
    }
}

/// Rows without their times.
pub fn timeless<R: Serialize>(rows: &[R]) -> Vec<Value> {
    let is_time = |key: &str| key == "seconds" || key.ends_with("_s") || key.ends_with("_us");
    let timeless = |row: &R| {
        let mut row = serde_json::to_value(row).unwrap();
        let columns = row.as_object_mut().unwrap();
        columns.retain(|key, _| !is_time(key));
        row
    };
    rows.iter().map(timeless).collect()
}

/// Every file below a folder, by its relative path.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// A folder for experiments and their results.
pub struct Lab(TempDir);

impl Lab {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The plan of an experiment with this text.
    pub fn load(&self, text: &str) -> Result<Plan, ExperimentError> {
        let file = self.path("experiment.toml");
        std::fs::write(&file, text).unwrap();
        Plan::load(&file, &LoadOptions::default())
    }

    /// Runs all jobs of an experiment into the folder `name`.
    pub fn run(&self, name: &str, text: &str) -> Run {
        let plan = self.load(text).unwrap_or_else(|error| panic!("{error}"));
        let run = Run {
            root: self.path(name),
            plan,
        };
        for job in &run.plan.jobs {
            let folder = |stage: &str| run.root.join(stage).join(&job.config.cell);
            let start = job.config.from.as_deref().map(&folder);
            execute(&job.config, &folder(&job.config.stage), start.as_deref())
                .unwrap_or_else(|error| panic!("{}: {error:#}", job.config));
        }
        run
    }
}

/// Runs one job into `out`, from the learnt state of the job in the folder `start`.
pub fn execute(config: &JobConfig, out: &Path, start: Option<&Path>) -> anyhow::Result<Manifest> {
    watched(config, out, start, &mut |_| {})
}

/// Like [`execute`], with a callback for progress.
pub fn watched(
    config: &JobConfig,
    out: &Path,
    start: Option<&Path>,
    watch: &mut dyn FnMut(Progress),
) -> anyhow::Result<Manifest> {
    let data = DataSource::embedded();
    let cell = CellInfo {
        experiment: config.experiment.clone(),
        stage: config.stage.clone(),
        name: config.cell.clone(),
        seed: config.seed,
        exclusive: config.exclusive,
        from: config.from.clone(),
        ..CellInfo::default()
    };
    let build = BuildInfo::unknown("test");
    let mut manifest = Manifest::new(cell, config.to_json(), config.hash(), build);
    let arm = |arm: &experiment::ArmConfig| ArmInfo {
        name: arm.name.clone(),
        is_plain: arm.is_plain(),
        k: arm.decode.k as u32,
        temperature: arm.decode.temperature,
        swept_from: None,
    };
    manifest.arms = config.arms.iter().map(arm).collect();
    let (state, start) = (out.join(STATE), start.map(|folder| folder.join(STATE)));
    let setting = JobSetting {
        data: &data,
        out,
        state: &state,
        start: start.as_deref(),
    };
    Ok(run_job(config, manifest, setting, watch)?)
}

/// A finished run of an experiment.
pub struct Run {
    pub root: PathBuf,
    pub plan: Plan,
}

impl Run {
    /// The cells of a stage, in order.
    pub fn cells(&self, stage: &str) -> Vec<CellReader> {
        let jobs = self.plan.jobs.iter();
        let jobs = jobs.filter(|job| job.config.stage == stage);
        let open = |job: &experiment::Job| {
            CellReader::open(&self.root.join(stage).join(&job.config.cell)).unwrap()
        };
        jobs.map(open).collect()
    }

    /// The only cell of a stage.
    pub fn cell(&self, stage: &str) -> CellReader {
        let mut cells = self.cells(stage);
        assert_eq!(cells.len(), 1, "{stage}");
        cells.remove(0)
    }

    /// Answers of all cells of a stage.
    pub fn prompts(&self, stage: &str) -> Vec<PromptRow> {
        let cells = self.cells(stage);
        cells.iter().flat_map(|c| c.prompts().unwrap()).collect()
    }
}
