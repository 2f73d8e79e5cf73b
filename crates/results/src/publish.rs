//! Copying the data that pages need.

use crate::common;
use crate::parquet::{table_path, write_table};
use crate::writer::remove;
use crate::{
    CellReader, CellStatus, EXPERIMENT_FILE, HeadRow, JudgedRound, MANIFEST_FILE, Manifest,
    NGRAMS_FILE, PromptRow, ResultsError, RoundRow, Row, Split, UpdateRow, answer_ids, answer_text,
    cell_facts, read_if_there,
};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Number of published digits of an answer's hash: 32 bits distinguish the answers of a run, and
/// hashes do not compress.
const HASH_DIGITS: usize = 8;

/// Copies what pages are made from out of the run in `from`: `experiment.json` and, of every
/// complete cell,
///
/// - the manifest, with arms as differences from the first one;
/// - the rows of prompts, and those of acceptance heads (their losses and means only in the last
///   quarter of the steps);
/// - rounds and updates of timed cells, and of others if something on the page needs them;
/// - the n-gram caches of cells with a stream, if something on the page needs them.
///
/// Times of untimed cells, which mean nothing and do not compress, are replaced by 0. States,
/// journals, locks and pages are left out.
///
/// Answers are kept if the page analyses their text: those of the stage that it shows, on held-out
/// prompts if there are any; none without `answers`. If the rounds of such answers are left out,
/// their rows keep the sums over fresh rounds. Answers of recorded targets are other people's
/// texts: their tokens are replaced by numbers in the order of first occurrence in the cell, which
/// preserves loops, formulas and equality of answers.
///
/// An earlier publication in `to` is replaced: its cells that this run has not are removed. Cells
/// of the run that its experiment does not list are left out.
///
/// # Errors
/// [`ResultsError::IntoItself`], [`ResultsError::OtherExperiment`]; an unreadable or damaged cell; a file that cannot be written.
pub fn publish(from: &Path, to: &Path, answers: bool) -> Result<(), ResultsError> {
    let source = from.canonicalize();
    let source = source.map_err(|source| ResultsError::io("read", from, source))?;
    // A refusal leaves no folder behind.
    let goal = real_path(to)?;
    if goal.starts_with(&source) || source.starts_with(&goal) {
        return Err(ResultsError::IntoItself {
            path: to.to_path_buf(),
        });
    }
    let made = std::fs::create_dir_all(to);
    made.map_err(|source| ResultsError::io("create", to, source))?;
    let experiment = read_if_there(&from.join(EXPERIMENT_FILE))?;
    let earlier = read_if_there(&to.join(EXPERIMENT_FILE))?;
    let names = (name_in(experiment.as_deref()), name_in(earlier.as_deref()));
    if let (Some(own), Some(other)) = names
        && own != other
    {
        return Err(ResultsError::OtherExperiment {
            path: to.to_path_buf(),
            other,
        });
    }
    let mut page = Page::default();
    if let Some(text) = experiment {
        page = Page::of(&text);
        let line = serde_json::from_str::<Value>(&text).map_or(text, |json| format!("{json}\n"));
        let path = to.join(EXPERIMENT_FILE);
        std::fs::write(&path, line).map_err(|source| ResultsError::io("write", &path, source))?;
    }
    let mut kept = Vec::new();
    for dir in cells(from)? {
        let relative = dir.strip_prefix(from).unwrap_or(&dir);
        if !page.lists(relative) {
            continue;
        }
        kept.push(relative.to_path_buf());
        let reader = CellReader::open(&dir)?;
        if reader.manifest().status != CellStatus::Complete {
            continue;
        }
        let stage = &reader.manifest().cell.stage;
        let answers = answers && page.stage.as_ref().is_none_or(|shown| shown == stage);
        publish_cell(&reader, &to.join(relative), answers, &page)?;
    }
    if earlier.is_some() {
        remove_others(to, &kept)?;
    }
    Ok(())
}

/// The real path of a folder, which need not be there yet.
fn real_path(path: &Path) -> Result<PathBuf, ResultsError> {
    let failed = |source| ResultsError::io("read", path, source);
    let whole = std::path::absolute(path).map_err(failed)?;
    let there = whole.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(&whole);
    let mut real = there.canonicalize().map_err(failed)?;
    for part in whole.strip_prefix(there).into_iter().flat_map(Path::iter) {
        if part == ".." {
            real.pop();
        } else {
            real.push(part);
        }
    }
    Ok(real)
}

fn publish_cell(
    reader: &CellReader,
    to: &Path,
    answers: bool,
    page: &Page,
) -> Result<(), ResultsError> {
    let made = std::fs::create_dir_all(to);
    made.map_err(|source| ResultsError::io("create", to, source))?;
    let timed = reader.manifest().cell.exclusive;
    let mut prompts = reader.prompts()?;
    let mut updates = reader.updates()?;
    let mut heads = reader.heads()?;
    shorten(&mut prompts, reader.manifest(), answers);
    if !timed {
        for (place, facts) in cell_facts(&prompts, &reader.rounds::<JudgedRound>()?) {
            if let (Some(row), Some(fresh)) = (prompts.get_mut(place), facts.fresh) {
                fresh.keep(row);
            }
        }
        for row in &mut prompts {
            (row.seconds, row.prefill_s, row.learn_s) = (0.0, 0.0, 0.0);
        }
        updates.iter_mut().for_each(|row| row.seconds = 0.0);
        heads.iter_mut().for_each(|row| row.seconds = 0.0);
    }
    store::<PromptRow>(to, &prompts)?;
    if !(timed || page.updates) {
        updates.clear();
    }
    store::<UpdateRow>(to, &updates)?;
    leave_out_early(&mut heads);
    store::<HeadRow>(to, &heads)?;
    let rounds = table_path::<RoundRow>(&reader.dir);
    let wanted = (timed || page.rounds) && rounds.exists();
    copy_if(wanted, &rounds, &table_path::<RoundRow>(to))?;
    // After held-out prompts alone, a cache is the one that the stream left.
    let streamed = prompts.iter().any(|row| row.split == Split::Train);
    let ngrams = reader.dir.join(NGRAMS_FILE);
    let wanted = page.ngrams && streamed && ngrams.exists();
    copy_if(wanted, &ngrams, &to.join(NGRAMS_FILE))?;
    let manifest = short(&reader.dir.join(MANIFEST_FILE))?;
    let path = to.join(MANIFEST_FILE);
    std::fs::write(&path, manifest).map_err(|source| ResultsError::io("write", &path, source))
}

/// A manifest on one line, with arms as differences from the first one: a fifth of the bytes.
fn short(path: &Path) -> Result<String, ResultsError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| ResultsError::io("read", path, source))?;
    // The text was parsed as a manifest before, so that it is JSON.
    let Ok(mut manifest) = serde_json::from_str::<Value>(&text) else {
        return Ok(text);
    };
    if let Some(config) = manifest.get_mut("config") {
        // In a published run arms are differences already.
        common::put_back(config);
        common::leave_out(config);
    }
    Ok(format!("{manifest}\n"))
}

fn store<R: Row>(to: &Path, rows: &[R]) -> Result<(), ResultsError> {
    if rows.is_empty() && R::TABLE != PromptRow::TABLE {
        return remove(&table_path::<R>(to));
    }
    write_table(to, rows)
}

/// Copies a file, or removes the one that an earlier publication left.
fn copy_if(wanted: bool, from: &Path, to: &Path) -> Result<(), ResultsError> {
    if !wanted {
        return remove(to);
    }
    let copied = std::fs::copy(from, to);
    copied.map_err(|source| ResultsError::io("write", to, source))?;
    Ok(())
}

/// The experiment's name in the text of its record, if it has one.
fn name_in(experiment: Option<&str>) -> Option<String> {
    let json: Value = serde_json::from_str(experiment?).ok()?;
    json["name"].as_str().map(str::to_owned)
}

/// Removes the cells of an earlier publication that are not among `kept`, which are relative paths.
fn remove_others(to: &Path, kept: &[PathBuf]) -> Result<(), ResultsError> {
    for dir in cells(to)? {
        let relative = dir.strip_prefix(to).unwrap_or(&dir);
        if !kept.iter().any(|cell| cell == relative) {
            let removed = std::fs::remove_dir_all(&dir);
            removed.map_err(|source| ResultsError::io("remove", &dir, source))?;
        }
    }
    Ok(())
}

/// Removes the predictions of heads before the last quarter of the steps of their arm and segment.
/// Pages only count these steps.
fn leave_out_early(heads: &mut [HeadRow]) {
    let mut turns: FxHashMap<(String, u32), (usize, usize)> = FxHashMap::default();
    let key = |row: &HeadRow| (row.arm.clone(), row.segment);
    for row in &*heads {
        turns.entry(key(row)).or_default().1 += 1;
    }
    for row in heads {
        let Some((turn, all)) = turns.get_mut(&key(row)) else {
            continue;
        };
        *turn += 1;
        if *turn <= *all - all.div_ceil(4) {
            row.loss = f64::NAN;
            row.fresh_loss = f64::NAN;
            row.predicted = f64::NAN;
            row.accepted = f64::NAN;
            row.calibration_error = f64::NAN;
        }
    }
}

/// Removes data of answers that no page needs or that must not be published.
fn shorten(prompts: &mut [PromptRow], manifest: &Manifest, answers: bool) {
    let held_out = prompts.iter().any(|row| row.split == Split::Test);
    let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
    for row in prompts {
        row.tokens_hash.truncate(HASH_DIGITS);
        if !answers || (held_out && row.split == Split::Train) {
            row.answer.clear();
        } else if manifest.recorded.contains_key(&row.target) {
            let ids = answer_ids(&row.answer).into_iter().map(|id| {
                let next = numbers.len() as u32;
                *numbers.entry(id).or_insert(next)
            });
            row.answer = answer_text(ids);
        }
    }
}

/// The settings of an experiment's page that decide what is published.
#[derive(Default)]
struct Page {
    /// The stage whose answers it analyses; every stage if the experiment does not say.
    stage: Option<String>,
    /// True if it shows entries of the n-gram caches.
    ngrams: bool,
    /// True if it needs the rounds of untimed cells; those of timed ones are always copied.
    rounds: bool,
    /// True if it needs the updates of untimed cells; those of timed ones are always copied.
    updates: bool,
    /// Folders of its cells; none if the experiment lists no jobs.
    cells: Vec<PathBuf>,
}

impl Page {
    fn of(experiment: &str) -> Self {
        let experiment: Value = serde_json::from_str(experiment).unwrap_or_default();
        let report = &experiment["report"];
        let last = experiment["stages"].as_array().and_then(|all| all.last());
        let stage = report["stage"].as_str();
        let figures = report["figures"].as_array();
        let drawn = |names: &[&str]| {
            figures.is_some_and(|figures| {
                let names =
                    |figure: &Value| figure.as_str().is_some_and(|name| names.contains(&name));
                figures.iter().any(names)
            })
        };
        let folder = |job: &Value| {
            let stage = Path::new(job["stage"].as_str()?);
            Some(stage.join(job["cell"].as_str()?))
        };
        let jobs = experiment["jobs"].as_array();
        Self {
            cells: jobs.into_iter().flatten().filter_map(folder).collect(),
            stage: stage.or_else(|| last?["name"].as_str()).map(str::to_owned),
            ngrams: drawn(&["frequencies", "merges"]),
            rounds: drawn(&["positions"]),
            updates: drawn(&["losses", "drift"]),
        }
    }

    /// True if the experiment lists the cell in this folder, or lists none.
    fn lists(&self, folder: &Path) -> bool {
        self.cells.is_empty() || self.cells.iter().any(|cell| cell == folder)
    }
}

/// The folders `STAGE/CELL` with a manifest below a root, sorted.
///
/// # Errors
/// A folder that cannot be listed.
pub fn cells(root: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let mut cells = Vec::new();
    for stage in folders(root)? {
        let mut below = folders(&stage)?;
        below.retain(|cell| cell.join(MANIFEST_FILE).is_file());
        cells.extend(below);
    }
    Ok(cells)
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let failed = |source| ResultsError::io("read", dir, source);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(arm: &str, segment: u32, step: u32) -> HeadRow {
        HeadRow {
            arm: arm.to_owned(),
            segment,
            step,
            fresh: 4,
            ..HeadRow::default()
        }
    }

    #[test]
    fn heads_keep_the_last_quarter_of_the_turns_of_every_arm_and_segment() {
        let mut rows: Vec<HeadRow> = (0..5)
            .flat_map(|step| [turn("a", 0, step), turn("b", 0, step)])
            .chain((5..13).map(|step| turn("a", 1, step)))
            .collect();
        let all = rows.clone();
        leave_out_early(&mut rows);
        for (row, was) in rows.iter().zip(&all) {
            let last = if row.segment == 0 { 3 } else { 11 };
            let kept = row.step >= last;
            assert_eq!(row == was, kept, "{row:?}");
            assert_eq!(row.loss.is_nan(), !kept);
            assert_eq!((row.step, row.fresh), (was.step, was.fresh));
        }
    }
}
