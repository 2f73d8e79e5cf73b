//! The learnt state of an arm of a run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use experiment::JobConfig;
use jobs::RunRoot;
use online::SavedDrafter;
use results::{CellReader, PromptRow, Split};

use super::found::{Chosen, Found, Proof, one};
use crate::execute::STATE;

/// Number of answers at either end of a stream whose mean acceptance rate is shown; fewer in a
/// short one.
const ANSWERS: usize = 10;

/// A cell with the learnt state of its arms.
struct Cell {
    folder: PathBuf,
    config: JobConfig,
    reader: CellReader,
    /// Arms whose drafters learnt.
    arms: Vec<String>,
}

/// The learnt state of the chosen cell and arm, in the folder of a run or of a cell; `None` if
/// nothing was learnt.
///
/// # Errors
/// Files that cannot be read; no match or several.
pub(super) fn find(root: &Path, chosen: Chosen<'_>) -> Result<Option<Found>> {
    let run = RunRoot::new(root);
    let folders = match root.join(results::MANIFEST_FILE).is_file() {
        true => vec![root.to_owned()],
        false => {
            let cells = run.cells()?.into_iter();
            cells.map(|id| run.folder(&id).path().to_owned()).collect()
        }
    };
    let mut cells = Vec::new();
    for folder in folders {
        cells.extend(cell(folder)?);
    }
    if cells.is_empty() {
        return Ok(None);
    }
    let cell = choose(root, cells, chosen)?;
    of_cell(cell, chosen).map(Some)
}

/// A cell, if its arms' learnt state was kept.
fn cell(folder: PathBuf) -> Result<Option<Cell>> {
    let state = folder.join(STATE);
    if !state.is_dir() {
        return Ok(None);
    }
    let reader = CellReader::open(&folder)?;
    let named = || folder.display().to_string();
    let config = JobConfig::from_json(&reader.manifest().config).with_context(named)?;
    let arms = config.arms.iter().map(|arm| arm.name.clone());
    let learnt = |arm: &String| SavedDrafter::folder_of(&state, arm).is_dir();
    let arms: Vec<String> = arms.filter(learnt).collect();
    Ok((!arms.is_empty()).then_some(Cell {
        folder,
        config,
        reader,
        arms,
    }))
}

/// The chosen cell.
fn choose(root: &Path, cells: Vec<Cell>, chosen: Chosen<'_>) -> Result<Cell> {
    let names = |pick: fn(&experiment::Segment) -> &String| {
        let segments = cells.iter().flat_map(|cell| &cell.config.segments);
        let mut names: Vec<String> = segments.map(|segment| pick(segment).clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let (targets, tasks) = (names(|own| &own.target), names(|own| &own.task));
    if let Some(target) = chosen.target {
        one(&targets, Some(target), ("target", "--target"), root)?;
    }
    if let Some(task) = chosen.task {
        one(&tasks, Some(task), ("task", "--task"), root)?;
    }
    let meant = |cell: &Cell| {
        let segments = &cell.config.segments;
        let fits = |wanted: Option<&str>, own: &String| wanted.is_none_or(|name| name == own);
        segments
            .iter()
            .any(|own| fits(chosen.target, &own.target) && fits(chosen.task, &own.task))
    };
    let mut cells: Vec<Cell> = cells.into_iter().filter(meant).collect();
    match cells.len() {
        1 => Ok(cells.remove(0)),
        0 => bail!(
            "{}: no cell has learnt for this target on this task",
            root.display()
        ),
        _ => {
            let folders = cells.iter().map(|cell| cell.folder.display().to_string());
            bail!(
                "{}: more than one cell is meant:\n  {}\nhint: choose with --target and --task, or name the folder of one in place of the run's",
                root.display(),
                folders.collect::<Vec<_>>().join("\n  ")
            )
        }
    }
}

fn of_cell(cell: Cell, chosen: Chosen<'_>) -> Result<Found> {
    let Cell {
        folder,
        config,
        reader,
        arms,
    } = &cell;
    let arm = one(arms, chosen.arm, ("arm", "--arm"), folder)?;
    let learnt = SavedDrafter::folder_of(&folder.join(STATE), arm);
    let segments = config.segments.iter().filter(|own| {
        let fits = |wanted: Option<&str>, own: &String| wanted.is_none_or(|name| name == own);
        fits(chosen.target, &own.target) && fits(chosen.task, &own.task)
    });
    let segments: Vec<_> = segments.collect();
    let adapter = match SavedDrafter::adapters(&learnt)? {
        None => None,
        Some(names) => {
            let lora = config.arms.iter().find(|own| own.name == *arm);
            let lora = lora.map(|own| &own.learn.lora);
            let key = |own: &experiment::Segment| {
                lora.map_or_else(String::new, |lora| lora.key(&own.target, &own.task))
            };
            let mut meant: Vec<String> = segments.iter().map(|own| key(own)).collect();
            meant.retain(|name| names.contains(name));
            meant.sort();
            meant.dedup();
            let option = ("adapter", "--target and --task");
            Some(one(&meant, None, option, &learnt)?.clone())
        }
    };
    // Weights learn from the whole stream, an adapter from the prompts of its own.
    let read: Vec<&experiment::Segment> = match &adapter {
        None => config.segments.iter().collect(),
        Some(_) => segments,
    };
    let name = |pick: fn(&experiment::Segment) -> &String| {
        let mut names: Vec<String> = read.iter().map(|own| pick(own).clone()).collect();
        names.dedup();
        names
    };
    let (targets, tasks) = (name(|own| &own.target), name(|own| &own.task));
    let meant = |row: &PromptRow| {
        row.arm == *arm && row.split == Split::Train && targets.contains(&row.target)
    };
    let mut rows = reader.prompts()?;
    rows.retain(|row| meant(row) && tasks.contains(&row.task));
    let drafter = reader.manifest().inputs.iter();
    Ok(Found {
        learnt,
        adapter,
        drafter: Some(config.models.drafter.path.clone()),
        proof: Proof::Files(
            drafter
                .filter(|input| input.role == "drafter")
                .cloned()
                .collect(),
        ),
        place: format!("arm {arm} of {}", folder.display()),
        target: targets.join(", "),
        tasks,
        answers: Some(rows.len() as u64),
        acceptance: acceptance(&rows),
    })
}

/// Mean acceptance rates of the first and the last answers.
fn acceptance(rows: &[PromptRow]) -> Option<([f64; 2], usize)> {
    let judged: Vec<f64> = rows
        .iter()
        .filter(|row| row.judged_rounds > 0)
        .map(|row| row.acceptance_rate)
        .collect();
    let count = ANSWERS.min(judged.len() / 2);
    let mean = |some: &[f64]| some.iter().sum::<f64>() / some.len() as f64;
    (count > 0).then(|| {
        let (first, last) = (&judged[..count], &judged[judged.len() - count..]);
        ([mean(first), mean(last)], count)
    })
}
