//! Experiments, recipes, and what runs leave behind.

use std::path::Path;

use anyhow::Context;
use experiment::{LoadOptions, Plan};
use jobs::RunRoot;
use results::{BuildInfo, CellInfo, HeadRow, Manifest, read_table, write_table};
use serde_json::json;

use super::{put, written};
use crate::Reader;
use crate::mutate::Shape;

pub const EXPERIMENT: Reader = Reader {
    name: "experiment",
    what: "an experiment (TOML), and its plan",
    shape: Shape::Toml,
    seeds: || Ok(EXPERIMENTS.map(|text| text.as_bytes().to_vec()).to_vec()),
    read: |folder, bytes| {
        let path = put(folder, "experiment.toml", bytes)?;
        Ok(Plan::load(&path, &LoadOptions::default()).map(drop)?)
    },
};

pub const RECIPE: Reader = Reader {
    name: "recipe",
    what: "a recipe of pretraining (TOML)",
    shape: Shape::Toml,
    seeds: || Ok(vec![RECIPE_TEXT.as_bytes().to_vec()]),
    read: |folder, bytes| {
        let recipe = pretrain::Recipe::load(&put(folder, "recipe.toml", bytes)?)?;
        recipe.lm_config(1, 2)?;
        recipe.steps();
        recipe.learning_rate(1);
        Ok(())
    },
};

pub const PAPER: Reader = Reader {
    name: "paper",
    what: "numbers of the paper (TOML)",
    shape: Shape::Toml,
    seeds: || Ok(vec![PAPER_TEXT.as_bytes().to_vec()]),
    read: |folder, bytes| {
        let path = put(folder, "paper.toml", bytes)?;
        Ok(report::load_paper(&path).map(drop)?)
    },
};

pub const MANIFEST: Reader = Reader {
    name: "manifest",
    what: "manifest.json of a cell",
    shape: Shape::Json,
    seeds: || {
        let cell = CellInfo {
            experiment: "small".into(),
            experiment_sha256: "0".repeat(64),
            stage: "stream".into(),
            name: "seed=1".into(),
            coordinates: vec![("seed".into(), "1".into())],
            seed: 1,
            exclusive: true,
            from: None,
        };
        let build = BuildInfo::unknown("0.1.0");
        let manifest = Manifest::new(cell, json!({"seed": 1}), "0".repeat(64), build);
        Ok(vec![written("manifest.json", |to| manifest.write(to))?])
    },
    read: |folder, bytes| {
        put(folder, "manifest.json", bytes)?;
        Ok(Manifest::read(folder).map(drop)?)
    },
};

pub const RECORD: Reader = Reader {
    name: "record",
    what: "experiment.json of a results folder, and its page",
    shape: Shape::Json,
    seeds: || {
        let record = json!({
            "schema": 1, "name": "small", "hash": "0".repeat(64), "jobs": [], "models": {},
            "title": "Small", "axes": [{"name": "seed", "values": ["1"]}],
            "stages": [{"name": "stream", "from": null, "exclusive": true}],
            "cells": [{"stage": "stream", "cell": "seed=1", "coordinates": [["seed", "1"]]}],
            "arms": [{"name": "plain", "is_plain": true, "k": 0, "temperature": 0.0, "swept_from": null}],
            "report": {"rows": ["arm"], "cell": ["acceptance"], "figures": ["curves"], "formats": ["md"]},
            "paper_data": null,
        });
        Ok(vec![serde_json::to_vec(&record)?])
    },
    read: |folder, bytes| {
        put(folder, "experiment.json", bytes)?;
        let record = RunRoot::new(folder).read_record();
        let _ = report::build(folder);
        record?.context("there is no record")?;
        Ok(())
    },
};

pub const ROWS: Reader = Reader {
    name: "rows",
    what: "rows of a table (parquet)",
    shape: Shape::Bytes,
    seeds: || {
        let row = |step: u32| HeadRow {
            arm: "Joint".into(),
            seed: 1,
            segment: 0,
            step,
            prompts_seen: 2 * step,
            examples: 16,
            loss: 0.5,
            fresh: step % 2,
            fresh_loss: f64::NAN,
            predicted: 0.25,
            accepted: 0.75,
            calibration_error: 0.125,
            seconds: 1e-3 * f64::from(step),
        };
        let rows: Vec<HeadRow> = (0..40).map(row).collect();
        let save = |rows: &[HeadRow]| written("heads.parquet", |to: &Path| write_table(to, rows));
        Ok(vec![save(&rows)?, save(&[])?])
    },
    read: |folder, bytes| {
        put(folder, "heads.parquet", bytes)?;
        read_table::<HeadRow>(folder)?;
        Ok(())
    },
};

const EXPERIMENTS: [&str; 2] = [
    r#"name = "small"
[models]
drafter = "models/D"
targets = { target = "models/L" }
[grid]
task = "mini-math"
seed = [1, 2]
[stage.stream]
prompts = { train = 2, test = 2 }
[decode]
max_new_tokens = 8
k = 4
temperature = 0.0
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "SpD_DM"
[report]
rows = ["task", "arm"]
cell = ["acceptance", "speedup"]
ratios = [["SpD_DM", "autoregressive"]]
"#,
    r#"name = "large"
title = "Everything"
[models]
drafter = { path = "models/D", pad_width = 64 }
targets = { L = "models/L", Q = { path = "models/Q", pad_width = 64 } }
[grid]
target = ["L", "Q"]
task = ["mini-math", "mini-chat"]
"decode.k" = [2, 4]
[learn]
every = 2
lr = 1e-3
[stage.stream]
prompts = { train = 20 }
exclusive = true
[stage.held-out]
from = "stream"
prompts = { test = 5 }
[[when]]
task = "mini-chat"
set = { "decode.max_new_tokens" = 16 }
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "L_DM+L_N-gram"
[[arm]]
preset = "L_DM"
set = { "decode.policy" = "confidence" }
[sweep]
"learn.lambda" = [0.1, 0.2]
[launcher.slurm]
time = "1:00:00"
"#,
];

const RECIPE_TEXT: &str = include_str!("../../../../models/D/recipe.toml");

const PAPER_TEXT: &str = include_str!("../../../../experiments/paper/table5.toml");
