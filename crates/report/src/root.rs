//! The cells of a stage in memory, with their numbers and without texts.

use crate::ReportError;
use crate::paper::implied_overhead;
use crate::positions::{Positions, positions};
use crate::spec::Experiment;
use experiment::FigureName;
use results::{
    Answer, CellReader, CellSpec, CellStatus, HeadRow, JudgedRound, Manifest, NgramRow, PromptRow,
    Split, StageSpec, StepLatency, UpdateRow, cell_facts,
};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// A complete cell.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Path of its folder relative to the root, with forward slashes.
    pub path: String,
    pub manifest: Manifest,
    pub answers: Vec<Answer>,
    pub updates: Vec<UpdateRow>,
    /// Training steps of its acceptance heads.
    pub heads: Vec<HeadRow>,
    /// Acceptance by position in the draft, where the page shows it and rounds are there.
    pub positions: Vec<Positions>,
    /// Its n-gram caches at the end, where they were asked for.
    pub ngrams: Vec<NgramRow>,
}

/// A planned cell that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub stage: String,
    pub cell: String,
    /// `not run`, `failed`, `interrupted`, `running`.
    pub state: &'static str,
}

/// A stage's cells.
#[derive(Debug, Clone)]
pub struct Stage {
    pub spec: StageSpec,
    /// Its cells in order of the plan.
    pub planned: Vec<CellSpec>,
    /// Complete cells in grid order.
    pub cells: Vec<Cell>,
    pub missing: Vec<Missing>,
}

/// The data to read of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Properties of the answers' text.
    pub text: bool,
    pub ngrams: bool,
}

impl Stage {
    /// Reads the cells of a stage below `root`, in order of the plan.
    ///
    /// # Errors
    /// A damaged cell.
    pub fn read(
        root: &Path,
        experiment: &Experiment,
        spec: &StageSpec,
        wanted: Wanted,
    ) -> Result<Self, ReportError> {
        let own = experiment.cells.iter();
        let own = own.filter(|cell| cell.stage == spec.name);
        let mut stage = Self {
            spec: spec.clone(),
            planned: own.cloned().collect(),
            cells: Vec::new(),
            missing: Vec::new(),
        };
        let round_overhead = implied_overhead()?;
        for cell in stage.planned.clone() {
            let dir = root.join(&spec.name).join(&cell.cell);
            let missing = |state| Missing {
                stage: spec.name.clone(),
                cell: cell.cell.clone(),
                state,
            };
            if !dir.join(results::MANIFEST_FILE).exists() {
                stage.missing.push(missing("not run"));
                continue;
            }
            let reader = CellReader::open(&dir)?;
            match reader.manifest().status {
                CellStatus::Complete => {
                    let path = format!("{}/{}", spec.name, cell.cell);
                    let cell = read_cell(&reader, path, experiment, wanted, round_overhead)?;
                    stage.cells.push(cell);
                }
                status => stage.missing.push(missing(status.as_str())),
            }
        }
        Ok(stage)
    }

    /// True if a cell has answers of the split.
    pub fn has(&self, split: Split) -> bool {
        let answers = self.cells.iter().flat_map(|cell| &cell.answers);
        answers.into_iter().any(|answer| answer.row.split == split)
    }

    /// The split for its tables: held-out prompts if it has any, else streamed ones.
    pub fn split(&self) -> Split {
        if self.has(Split::Test) {
            Split::Test
        } else {
            Split::Train
        }
    }

    pub fn seeds(&self) -> BTreeSet<u64> {
        let cells = self.cells.iter();
        cells.map(|cell| cell.manifest.cell.seed).collect()
    }
}

fn read_cell(
    reader: &CellReader,
    path: String,
    experiment: &Experiment,
    wanted: Wanted,
    round_overhead: f64,
) -> Result<Cell, ReportError> {
    let mut rows = reader.prompts()?;
    let (mut facts, mut by_position) = (HashMap::new(), Vec::new());
    if wanted.text {
        let rounds = reader.rounds::<JudgedRound>()?;
        facts = cell_facts(&rows, &rounds);
        if experiment.report.figures.contains(&FigureName::Positions) {
            by_position = positions(&rounds);
        }
    }
    rows.iter_mut().for_each(|row| row.answer = String::new());
    let manifest = reader.manifest();
    let is_plain = |name: &str| {
        let arms = manifest.arms.iter().chain(&experiment.arms);
        arms.into_iter().any(|arm| arm.is_plain && arm.name == name)
    };
    let mut plain = HashMap::new();
    // Rows of one segment show the end of the segment; others the end of the stream.
    let report = &experiment.report;
    let mut axes = report.rows.iter().chain(&report.columns);
    let by_segment = axes.any(|axis| axis == "segment");
    let end = |row: &PromptRow| (row.arm.clone(), by_segment.then_some(row.segment));
    let place = |row: &PromptRow| (row.segment, row.split, row.prompt_index);
    let mut ends: HashMap<_, (u32, u64)> = HashMap::new();
    for row in &rows {
        if is_plain(&row.arm) {
            plain.insert(place(row), Arc::new(row.clone()));
        }
        ends.insert(end(row), (row.cache_ngrams, row.cache_bytes));
    }
    let arms: BTreeSet<String> = rows.iter().map(|row| row.arm.clone()).collect();
    let looking_up: BTreeSet<_> = arms.iter().filter(|arm| manifest.looks_up(arm)).collect();
    let answer = |(index, row): (usize, PromptRow)| {
        let (end_ngrams, end_bytes) = ends.get(&end(&row)).copied().unwrap_or_default();
        Answer {
            plain: plain.get(&place(&row)).cloned(),
            text: facts.get(&index).copied(),
            is_plain: is_plain(&row.arm),
            plain_step: manifest.plain_step(&row.arm),
            timed: manifest.cell.exclusive,
            looks_up: looking_up.contains(&row.arm),
            latency_ratio: StepLatency::paper().ratio(),
            round_overhead,
            end_ngrams,
            end_bytes,
            row,
        }
    };
    let answers = rows.into_iter().enumerate().map(answer).collect();
    Ok(Cell {
        path,
        answers,
        updates: reader.updates()?,
        heads: reader.heads()?,
        positions: by_position,
        ngrams: if wanted.ngrams {
            reader.ngrams()?
        } else {
            Vec::new()
        },
        manifest: manifest.clone(),
    })
}

impl Cell {
    /// Threads, formats and models of its first arm, which set the time of a step.
    pub fn decoding(&self) -> Value {
        let config = &self.manifest.config;
        let decode = &config["arms"][0]["decode"];
        json!([
            decode["threads"],
            decode["weights"],
            decode["kv"],
            config["models"]
        ])
    }

    /// The value of an answer of this cell on an axis; `segment` counts from 1.
    pub fn value_on(&self, axis: &str, answer: &Answer) -> Option<String> {
        match axis {
            "arm" => Some(answer.row.arm.clone()),
            "task" => Some(answer.row.task.clone()),
            "target" => Some(answer.row.target.clone()),
            "segment" => Some((answer.row.segment + 1).to_string()),
            "stage" => Some(self.manifest.cell.stage.clone()),
            "seed" => Some(self.manifest.cell.seed.to_string()),
            _ => self.manifest.cell.coordinate(axis).map(str::to_owned),
        }
    }
}
