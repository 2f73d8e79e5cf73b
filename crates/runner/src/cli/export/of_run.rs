//! The learnt state of an arm of a run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use experiment::JobConfig;
use jobs::RunRoot;
use online::SavedState;
use results::{CellReader, PromptRow, Split};

use super::found::{Chosen, Found, one};
use crate::execute::STATE;

/// Number of answers at either end of a stream whose mean acceptance rate is shown; fewer in a
/// short one.
const ANSWERS: usize = 10;

/// A cell with the learnt state of its arms.
struct Cell {
    folder: PathBuf,
    config: JobConfig,
    reader: CellReader,
    /// Arms whose drafters learnt, with their states.
    arms: Vec<(String, SavedState)>,
}

/// The learnt state of the chosen cell and arm, in the folder of a run or of a cell; `None` if
/// nothing was learnt.
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
    let mut arms = Vec::new();
    for arm in &config.arms {
        let saved = SavedState::folder_of(&state, &arm.name);
        if !saved.is_dir() {
            continue;
        }
        let saved = SavedState::of_arm(&saved)?;
        if !saved.names()?.is_empty() {
            arms.push((arm.name.clone(), saved));
        }
    }
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
        let names: BTreeSet<&String> = segments.map(pick).collect();
        names.into_iter().cloned().collect::<Vec<_>>()
    };
    let (targets, tasks) = (names(|own| &own.target), names(|own| &own.task));
    if let Some(target) = chosen.target {
        one(&targets, Some(target), ("target", "--target"), root)?;
    }
    if let Some(task) = chosen.task {
        one(&tasks, Some(task), ("task", "--task"), root)?;
    }
    let meant = |cell: &Cell| cell.config.segments.iter().any(|own| chosen.fits(own));
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
        mut arms,
    } = cell;
    let names: Vec<String> = arms.iter().map(|(arm, _)| arm.clone()).collect();
    let arm = one(&names, chosen.arm, ("arm", "--arm"), &folder)?;
    let index = names.iter().position(|own| own == arm).unwrap_or_default();
    let (_, saved) = arms.swap_remove(index);
    let own = config.arms.iter().find(|own| own.name == *arm);
    let own = own.with_context(|| format!("there is no arm `{arm}`"))?;
    let segments = config.segments.iter().filter(|own| chosen.fits(own));
    let segments: Vec<_> = segments.collect();
    // The names that are in use for these prompts.
    let used = |key: &dyn Fn(&experiment::Segment) -> String, known: &[String]| -> Vec<String> {
        let all: BTreeSet<String> = segments.iter().map(|own| key(own)).collect();
        all.into_iter().filter(|key| known.contains(key)).collect()
    };
    let lora = |segment: &experiment::Segment| own.learn.lora.key(&segment.target, &segment.task);
    let option = ("adapter", "--target and --task");
    let name = one(&used(&lora, &saved.names()?), None, option, &folder)?.clone();
    let mut heads = saved.heads()?;
    heads.extend(saved.known().chains.keys().cloned());
    let head = |segment: &experiment::Segment| own.head.per.key(&segment.target, &segment.task);
    let heads = used(&head, &heads);
    // Weights learn from the whole stream, an adapter from the prompts of its own.
    let read: Vec<&experiment::Segment> = match saved.part().rank {
        0 => config.segments.iter().collect(),
        _ => segments,
    };
    let listed = |pick: fn(&experiment::Segment) -> &String| {
        let mut names: Vec<String> = read.iter().map(|own| pick(own).clone()).collect();
        names.dedup();
        names
    };
    let (targets, tasks) = (listed(|own| &own.target), listed(|own| &own.task));
    let meant = |row: &PromptRow| {
        row.arm == *arm && row.split == Split::Train && targets.contains(&row.target)
    };
    let mut rows = reader.prompts()?;
    rows.retain(|row| meant(row) && tasks.contains(&row.task));
    Ok(Found {
        saved,
        name,
        heads,
        place: format!("arm {arm} of {}", folder.display()),
        targets,
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
