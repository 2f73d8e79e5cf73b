//! The four public tasks of the hub, converted once into the folders of a data directory.
//!
//! The hub converts every dataset to parquet at one revision, and this module reads that revision.
//! The records become `train.jsonl`, `test.jsonl` and `paper_split.json` under
//! `$HF_HOME/omnidraft/datasets`, with the ids and splits of the published results. Two tasks are
//! split by a rule, the other two by the embedded ids of [`PublishedSplit`].

mod convert;
mod published;
mod row;
mod split;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hf_hub::RepoType;
use parquet::errors::ParquetError;
use serde_json::json;

use crate::client::Snapshot;
use crate::parquet::read_rows;
use crate::{FileFault, Hub, HubError};
use streams::{PaperSplit, SourceError, TaskSource};

pub use convert::convert;
pub use row::{Converted, Read, Record, Row, Table};
pub use split::{Published, PublishedSplit, fingerprint};

/// Revision at which the hub keeps a dataset's conversion to parquet.
const REVISION: &str = "refs/convert/parquet";

/// A task that the hub has data for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubTask {
    /// Grade-school mathematics: GSM8K.
    Gsm8k,
    /// Python functions: MBPP and HumanEval, mixed.
    MbppHumaneval,
    /// Instructions: Alpaca.
    Alpaca,
    /// One-sentence summaries of news articles: XSum.
    Xsum,
}

impl HubTask {
    const ALL: [Self; 4] = [Self::Gsm8k, Self::MbppHumaneval, Self::Alpaca, Self::Xsum];

    /// The name of the task and of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gsm8k => "gsm8k",
            Self::MbppHumaneval => "mbpp_humaneval",
            Self::Alpaca => "alpaca",
            Self::Xsum => "xsum",
        }
    }
}

/// The tasks of a hub, each downloaded and converted when it is first asked for.
#[derive(Debug, Clone)]
pub struct Datasets {
    hub: Hub,
    alpaca: PublishedSplit,
    xsum: PublishedSplit,
}

impl Datasets {
    /// The tasks of `hub`, with the splits of the published results.
    pub fn new(hub: Hub) -> Self {
        Self {
            hub,
            alpaca: PublishedSplit::alpaca(),
            xsum: PublishedSplit::xsum(),
        }
    }

    /// The same tasks with other id lists for Alpaca and XSum, the two whose splits follow no rule.
    pub fn with_splits(mut self, alpaca: PublishedSplit, xsum: PublishedSplit) -> Self {
        (self.alpaca, self.xsum) = (alpaca, xsum);
        self
    }

    /// Path of the task's folder, downloaded and converted first if it is not there yet.
    ///
    /// # Errors
    /// A download fails, a table has another form, or the disk is full. A task's folder is never
    /// left unfinished; files already downloaded are used by the next attempt.
    pub fn prepare(&self, task: HubTask) -> Result<PathBuf, HubError> {
        let folder = self.folder().join(task.name());
        if folder.is_dir() {
            return Ok(folder);
        }
        tracing::info!("{}: preparing from the hub, once", task.name());
        let mut open: Vec<(&'static str, Snapshot)> = Vec::new();
        let converted = convert(
            task,
            &self.alpaca,
            &self.xsum,
            &mut |table, each: &mut dyn FnMut(Row) -> Result<(), HubError>| {
                if !open.iter().any(|(repo, _)| *repo == table.repo) {
                    let snapshot = self.hub.snapshot(RepoType::Dataset, table.repo, REVISION)?;
                    open.push((table.repo, snapshot));
                }
                let found = open.iter().find(|(repo, _)| *repo == table.repo);
                found.map_or(Ok(()), |(_, snapshot)| read_table(snapshot, table, each))
            },
        )?;
        if converted.lost > 0 {
            tracing::warn!(
                "{}: {} records of the published split are not in the hub's data and are left out",
                task.name(),
                converted.lost
            );
        }
        // Outside the folder of tasks, so that nobody takes it for one of them.
        let part = format!("{}.{}.part", task.name(), std::process::id());
        let part = self.hub.own_folder().join(part);
        let written = write_task(&part, &converted).and_then(|()| move_into_place(&part, &folder));
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&part);
        }
        written.map(|()| folder)
    }
}

impl TaskSource for Datasets {
    fn folder(&self) -> PathBuf {
        self.hub.own_folder().join("datasets")
    }

    fn prepare(&self, task: &str) -> Result<Option<PathBuf>, SourceError> {
        let Some(task) = HubTask::ALL.into_iter().find(|own| own.name() == task) else {
            return Ok(None);
        };
        let failed = |error: HubError| SourceError {
            hint: error.hint(),
            message: error.to_string(),
        };
        Datasets::prepare(self, task).map(Some).map_err(failed)
    }
}

/// Reads every row of a table, shard by shard.
fn read_table(
    snapshot: &Snapshot,
    table: &Table,
    each: &mut dyn FnMut(Row) -> Result<(), HubError>,
) -> Result<(), HubError> {
    for shard in shards(snapshot, table)? {
        let path = snapshot.fetch(&shard)?;
        let wrong = |e: ParquetError| FileFault::Table(e.to_string()).of(table.repo, &shard);
        let rows = read_rows(&path, table.columns).map_err(wrong)?;
        for (index, fields) in rows.enumerate() {
            let fields = fields.map_err(wrong)?;
            each(Row::new(table, &shard, index, fields))?;
        }
    }
    Ok(())
}

/// The parquet files of a table, in order. If no folder has the configuration's name and only one
/// configuration has the split, that one is used.
fn shards(snapshot: &Snapshot, table: &Table) -> Result<Vec<String>, HubError> {
    let wanted = format!("{}/{}", table.config, table.split);
    let ending = format!("/{}", table.split);
    let mut folders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let files = snapshot.files.iter();
    for file in files.filter(|file| file.ends_with(".parquet")) {
        if let Some((folder, _)) = file.rsplit_once('/')
            && folder.ends_with(&ending)
        {
            folders.entry(folder).or_default().push(file.clone());
        }
    }
    let found = match folders.len() {
        1 => folders.pop_first().map(|(_, files)| files),
        _ => folders.remove(&*wanted),
    };
    let mut files = found.ok_or_else(|| HubError::MissingFile {
        repo: table.repo.to_owned(),
        file: format!("{wanted}/*.parquet"),
    })?;
    files.sort_unstable();
    Ok(files)
}

fn write_task(folder: &Path, converted: &Converted) -> Result<(), HubError> {
    fs::create_dir_all(folder).map_err(HubError::io(folder))?;
    for (name, records) in [("train", &converted.train), ("test", &converted.test)] {
        let path = folder.join(format!("{name}.jsonl"));
        write_lines(&path, records).map_err(HubError::io(&path))?;
    }
    let split = json!({
        "rule": converted.rule,
        "train": converted.train_ids,
        "test": converted.test_ids,
    });
    let path = folder.join(PaperSplit::FILE);
    fs::write(&path, format!("{split:#}\n")).map_err(HubError::io(&path))
}

fn write_lines(path: &Path, records: &[Record]) -> std::io::Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    for record in records {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
    }
    out.into_inner()?.sync_all()
}

fn move_into_place(part: &Path, folder: &Path) -> Result<(), HubError> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).map_err(HubError::io(parent))?;
    }
    match fs::rename(part, folder) {
        // Another process was faster; its folder is as good.
        Err(_) if folder.is_dir() => fs::remove_dir_all(part).map_err(HubError::io(part)),
        other => other.map_err(HubError::io(folder)),
    }
}
