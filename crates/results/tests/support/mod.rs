//! Synthetic experiments with the shape of real ones: cells that learn, switches of the stream,
//! timing noise, plain decoding beside the arms, answers with loops and formulas.
//!
//! [`Experiment::write`] makes a root folder that `report::write_report` reads. Other crates
//! include this file by its path.

#![allow(dead_code, reason = "every test file uses its part")]

mod cell;

use results::{ArmInfo, BuildInfo, CellInfo, CellWriter, MachineInfo, Manifest, SweptFrom};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Draft length of every synthetic arm.
pub const K: u32 = 4;

/// An arm: its name, initial acceptance, gain from learning, and n-gram hits per round.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    pub name: &'static str,
    pub start: f64,
    pub gain: f64,
    pub hits: f64,
    pub learns: bool,
    /// The swept arm, and the swept key with its value.
    pub swept_from: Option<(&'static str, &'static str, &'static str)>,
}

/// The arm without drafts.
pub const PLAIN: &str = "autoregressive";

/// The arms of the paper's Table 1 in order.
pub fn arms() -> Vec<Arm> {
    let arm = |name, start, gain, hits, learns| Arm {
        name,
        start,
        gain,
        hits,
        learns,
        swept_from: None,
    };
    vec![
        arm(PLAIN, 0.0, 0.0, 0.0, false),
        arm("SpD_DM", 0.11, 0.0, 0.0, false),
        arm("N-gram_pp", 0.12, 0.035, 0.3, false),
        arm("L_DM", 0.11, 0.2, 0.0, true),
        arm("L_DM+L_N-gram", 0.11, 0.3, 0.55, true),
    ]
}

/// One segment of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    pub task: &'static str,
    pub target: &'static str,
    pub train: u32,
    pub test: u32,
    /// Ease of learning, 1 for the easiest.
    pub ease: f64,
}

/// One stage of a synthetic experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub name: &'static str,
    pub from: Option<&'static str>,
    pub exclusive: bool,
    pub train: bool,
    pub test: bool,
}

/// A synthetic experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    pub name: &'static str,
    pub title: &'static str,
    pub seeds: Vec<u64>,
    pub arms: Vec<Arm>,
    pub stages: Vec<Stage>,
    /// Cells of one segment each, or one cell with all of them.
    pub segments: Vec<Segment>,
    pub drift: bool,
    /// The `report` object of `experiment.json`.
    pub report: Value,
    /// The paper's numbers, as in a file of `experiments/paper`.
    pub paper: Value,
    /// Cells left unwritten: (stage, cell).
    pub missing: Vec<(&'static str, String)>,
}

/// A cell of a synthetic experiment.
#[derive(Debug, Clone)]
pub struct Job {
    pub name: String,
    pub seed: u64,
    pub coordinates: Vec<(String, String)>,
    pub segments: Vec<Segment>,
}

impl Experiment {
    /// Two targets, two tasks, two seeds, a stream and held-out prompts: Table 1 in small.
    pub fn table1() -> Self {
        let mut segments = Vec::new();
        for (target, skill) in [("L", 1.0), ("Q", 0.8)] {
            for (task, ease) in [("gsm8k", 1.0), ("xsum", 0.5)] {
                let ease = ease * skill;
                segments.push(segment(task, target, 60, 12, ease));
            }
        }
        let stage = |name, from, exclusive, train, test| Stage {
            name,
            from,
            exclusive,
            train,
            test,
        };
        Self {
            name: "table1",
            title: "Cross-vocabulary distillation",
            seeds: vec![1, 2],
            arms: arms(),
            stages: vec![
                stage("stream", None, false, true, false),
                stage("held-out", Some("stream"), true, false, true),
            ],
            segments,
            drift: false,
            report: json!({
                "stage": "held-out",
                "rows": ["target", "arm"],
                "columns": "task",
                "cell": ["acceptance", "tokens_per_round", "speedup", "speedup_end_to_end"],
                "ratios": [["L_DM+L_N-gram", "L_DM"]],
                "paper": "paper/table1.toml",
                "figures": ["curves", "losses", "cache", "hits", "frequencies", "merges"],
                "formats": ["md", "csv", "tex", "html", "svg"],
            }),
            paper: json!({
                "source": "Table 1",
                "names": { "L": "Llama3-8B", "Q": "Qwen2-7B", "gsm8k": "GSM8K", "xsum": "XSum" },
                "value": [
                    { "where": { "target": "L", "task": "gsm8k", "arm": "SpD_DM" }, "acceptance": 0.10, "speedup": 0.94 },
                    { "where": { "target": "L", "task": "gsm8k", "arm": "L_DM" }, "acceptance": 0.32, "speedup": 1.58 },
                    { "where": { "target": "L", "task": "gsm8k", "arm": "L_DM+L_N-gram" }, "acceptance": 0.42, "speedup": 1.70 },
                    { "where": { "target": "Q", "task": "xsum", "arm": "L_DM+L_N-gram" }, "acceptance": 0.22, "speedup": 1.22 },
                ],
                "claim": [
                    { "text": "The hybrid loss is accepted more often than the direct loss alone.",
                      "order": { "metric": "acceptance", "above": "L_DM+L_N-gram", "below": "L_DM" } },
                    { "text": "An untrained drafter is faster than a trained one.",
                      "order": { "metric": "speedup", "above": "SpD_DM", "below": "L_DM" } },
                    // Left out of the page, which has no such arm.
                    { "text": "Training all weights beats LoRA.",
                      "order": { "metric": "acceptance", "above": "L_DM", "below": "L_DM LoRA" } },
                ],
            }),
            missing: Vec::new(),
        }
    }

    /// Two tasks streamed one after the other, timed, one seed: the quickstart.
    pub fn quickstart() -> Self {
        Self {
            name: "quickstart",
            title: "Task drift in small",
            seeds: vec![1],
            stages: vec![Stage {
                name: "stream",
                from: None,
                exclusive: true,
                train: true,
                test: true,
            }],
            segments: vec![
                segment("arithmetic", "mini-llama", 160, 24, 1.0),
                segment("code", "mini-llama", 160, 24, 0.75),
            ],
            drift: true,
            report: json!({
                "rows": ["arm"],
                "columns": "task",
                "cell": ["acceptance", "tokens_per_round", "speedup"],
                "figures": ["curves", "drift", "losses", "cache"],
                "formats": ["md", "csv", "tex", "html", "svg"],
            }),
            paper: Value::Null,
            ..Self::table1()
        }
    }

    /// A target that changes and comes back, three seeds: Figure 6 in small.
    pub fn target_drift() -> Self {
        let part = |target, ease| segment("gsm8k", target, 120, 0, ease);
        let mut experiment = Self::quickstart();
        experiment.name = "figure6";
        experiment.title = "Target drift";
        experiment.seeds = vec![1, 2, 3];
        experiment.arms.retain(|arm| arm.name != "N-gram_pp");
        experiment.segments = vec![part("large", 1.0), part("small", 0.9), part("large", 1.0)];
        experiment.report = json!({
            "rows": ["arm"], "columns": "segment", "cell": ["acceptance"],
            "figures": ["drift"], "formats": ["md", "html", "svg"],
        });
        experiment
    }

    /// One arm at four draft lengths, two seeds.
    pub fn sweep() -> Self {
        let mut experiment = Self::table1();
        experiment.name = "sweep";
        experiment.title = "Draft length";
        experiment.arms = vec![experiment.arms.remove(0)];
        let values = [("1", 0.34), ("2", 0.30), ("4", 0.24), ("8", 0.12)];
        for (value, gain) in values {
            experiment.arms.push(Arm {
                name: Box::leak(format!("L_DM decode.k={value}").into_boxed_str()),
                start: 0.11,
                gain,
                hits: 0.0,
                learns: true,
                swept_from: Some(("L_DM", "decode.k", value)),
            });
        }
        experiment.segments.truncate(2);
        experiment.report = json!({
            "stage": "held-out", "rows": ["arm"], "columns": "task",
            "cell": ["acceptance", "speedup"], "figures": ["sweep", "curves"],
            "formats": ["md", "html", "svg"],
        });
        experiment.paper = Value::Null;
        experiment
    }

    /// The cells of every stage.
    pub fn jobs(&self) -> Vec<Job> {
        let job = |coordinates: Vec<(&str, String)>, seed, segments: &[Segment]| {
            let text = coordinates
                .iter()
                .map(|(axis, value)| format!("{axis}={value}"));
            let name = text.collect::<Vec<_>>().join(",");
            let own = coordinates.into_iter();
            Job {
                name,
                seed,
                coordinates: own.map(|(axis, value)| (axis.to_owned(), value)).collect(),
                segments: segments.to_vec(),
            }
        };
        let mut jobs = Vec::new();
        if self.drift {
            for &seed in &self.seeds {
                jobs.push(job(vec![("seed", seed.to_string())], seed, &self.segments));
            }
            return jobs;
        }
        for segment in &self.segments {
            for &seed in &self.seeds {
                let coordinates = vec![
                    ("target", segment.target.to_owned()),
                    ("task", segment.task.to_owned()),
                    ("seed", seed.to_string()),
                ];
                jobs.push(job(coordinates, seed, std::slice::from_ref(segment)));
            }
        }
        jobs
    }

    /// `experiment.json`, as the program writes it beside the stages.
    pub fn json(&self) -> Value {
        let jobs = self.jobs();
        let cell = |stage: &Stage| {
            let name = stage.name;
            let cells = jobs.iter().map(move |job| {
                json!({ "stage": name, "cell": job.name, "coordinates": job.coordinates })
            });
            cells.collect::<Vec<Value>>()
        };
        let cells: Vec<Value> = self.stages.iter().flat_map(cell).collect();
        let stages: Vec<Value> = self
            .stages
            .iter()
            .map(|stage| {
                json!({ "name": stage.name, "from": stage.from, "exclusive": stage.exclusive })
            })
            .collect();
        let arms: Vec<Value> = self
            .arm_infos()
            .iter()
            .map(|arm| serde_json::to_value(arm).unwrap())
            .collect();
        let mut experiment = json!({
            "schema": 1, "name": self.name, "title": self.title, "hash": "feedc0de".repeat(8),
            "jobs": [], "axes": [], "models": null, "stages": stages, "cells": cells, "arms": arms, "report": self.report,
        });
        if !self.paper.is_null() {
            experiment["paper_data"] = self.paper.clone();
        }
        experiment
    }

    /// The arms for manifests.
    pub fn arm_infos(&self) -> Vec<ArmInfo> {
        let info = |arm: &Arm| {
            let swept = arm.swept_from;
            let k = swept.map_or(K, |(_, _, value)| value.parse().unwrap_or(K));
            ArmInfo {
                name: arm.name.into(),
                is_plain: arm.name == PLAIN,
                k: if arm.name == PLAIN { 0 } else { k },
                temperature: 0.01,
                swept_from: swept.map(|(arm, key, value)| SweptFrom {
                    arm: arm.into(),
                    values: vec![(key.into(), value.into())],
                }),
            }
        };
        self.arms.iter().map(info).collect()
    }

    /// The manifest of a cell, with fixed machine, build and clock.
    pub fn manifest(&self, stage: &Stage, job: &Job) -> Manifest {
        let cell = CellInfo {
            experiment: self.name.into(),
            experiment_sha256: "feedc0de".repeat(8),
            stage: stage.name.into(),
            name: job.name.clone(),
            coordinates: job.coordinates.clone(),
            seed: job.seed,
            exclusive: stage.exclusive,
            from: stage.from.map(str::to_owned),
        };
        let build = BuildInfo {
            version: "0.1.0".into(),
            git_commit: "0123456789abcdef0123456789abcdef01234567".into(),
            git_dirty: Some(false),
            rustc: "rustc 1.95.0".into(),
            features: Vec::new(),
        };
        let config = json!({ "experiment": self.name });
        let mut manifest = Manifest::new(cell, config, "c0ffee00".repeat(8), build);
        manifest.arms = self.arm_infos();
        manifest.machine = MachineInfo {
            cpu: "Synthetic CPU".into(),
            cores: 2,
            memory_bytes: 24_000_000_000,
            os: "linux 6.1 x86_64".into(),
            bandwidth_gbs: Some(17.0),
            kernels: Some("avx512".into()),
        };
        manifest.started = "2026-01-02T03:04:05Z".into();
        manifest
    }

    /// The folder of a cell.
    pub fn cell_dir(root: &Path, stage: &Stage, job: &Job) -> PathBuf {
        root.join(stage.name).join(&job.name)
    }

    /// Writes every cell and `experiment.json` below `root`.
    pub fn write(&self, root: &Path) {
        std::fs::create_dir_all(root).unwrap();
        let text = serde_json::to_string_pretty(&self.json()).unwrap();
        std::fs::write(root.join("experiment.json"), text + "\n").unwrap();
        for stage in &self.stages {
            for job in self.jobs() {
                let missing = |(s, cell): &(&str, String)| *s == stage.name && *cell == job.name;
                if !self.missing.iter().any(missing) {
                    self.begin(root, stage, &job).finish().unwrap();
                }
            }
        }
    }

    /// Records a cell without finishing it.
    pub fn begin(&self, root: &Path, stage: &Stage, job: &Job) -> CellWriter {
        let dir = Self::cell_dir(root, stage, job);
        let mut writer = CellWriter::create(&dir, &self.manifest(stage, job)).unwrap();
        cell::record(self, stage, job, &mut writer);
        writer
    }
}

/// A segment of a stream.
pub fn segment(
    task: &'static str,
    target: &'static str,
    train: u32,
    test: u32,
    ease: f64,
) -> Segment {
    Segment {
        task,
        target,
        train,
        test,
        ease,
    }
}
