//! The results of a cell of an experiment: rows, manifest, journals.
//!
//! ```text
//! ROOT/experiment.json                  the experiment as it was run, with its report section
//! ROOT/STAGE/CELL/manifest.json         configuration, machine, inputs; `complete` last
//!                 prompts.parquet       one row per prompt                  (PromptRow)
//!                 rounds.parquet        one row per speculative round       (RoundRow)
//!                 updates.parquet       one row per optimiser update        (UpdateRow)
//!                 heads.parquet         one row per step of a head          (HeadRow)
//!                 ngrams.jsonl          the arms' n-gram caches at the end  (NgramRow)
//! ```
//!
//! A table without rows has no file, except `prompts`. While a cell runs, its rows are in journals
//! (`prompts.jsonl`, ..., one JSON object per line). [`CellWriter`] writes them, [`CellReader`]
//! reads either form.
//!
//! [`metrics`] defines every measured quantity, [`text`] the properties of answers that some of
//! them need, [`bootstrap`] their intervals. [`publish`](fn@publish) copies the data for pages.
//!
//! The row structs in [`rows`] are the only description of the tables: parquet columns, journal
//! keys and the documentation of each column come from them.

pub mod bootstrap;
mod column;
mod common;
mod error;
mod flat;
mod input;
mod journal;
mod machine;
mod manifest;
mod measure;
pub mod metrics;
mod parquet;
mod publish;
mod reader;
mod record;
pub mod rows;
mod schema;
pub mod text;
mod writer;

pub use bootstrap::{Estimate, Interval};
pub use column::{Column, ColumnData, ColumnKind};
pub use error::ResultsError;
pub use flat::{FlatColumn, FlatKind, FlatTable};
pub use input::InputFile;
pub use machine::{BuildInfo, MachineInfo};
pub use manifest::{
    ArmInfo, CellInfo, CellStatus, MANIFEST_FILE, MANIFEST_SCHEMA, Manifest, Padding,
    RecordedTarget, RowCounts, SpecialInfo, StepLatency, StepTimes, SweptFrom, TorchTarget,
    is_complete,
};
pub use measure::{Answer, Sums};
pub use metrics::Metric;
pub use parquet::{read_table, write_flat, write_table};
pub use publish::{cells, publish};
pub use reader::CellReader;
pub use record::{CellSpec, EXPERIMENT_FILE, RECORD_SCHEMA, RunRecord, StageSpec};
pub use rows::{
    Finish, HeadRow, JudgedRound, NgramRow, PromptRow, RoundRow, Split, UpdateRow, answer_ids,
    answer_text,
};
pub use schema::Row;
pub use text::{TextFacts, cell_facts, looping};
pub use writer::{CellLengths, CellWriter};

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// File of the arms' n-gram caches in a cell's folder.
pub const NGRAMS_FILE: &str = "ngrams.jsonl";

/// Writes a file through a temporary one beside it, both synced to disk, so that a reader sees the
/// old content or the new, never a part of it. Two processes may write the same path at the same
/// time: the last one wins.
///
/// # Errors
/// An I/O error naming the file, which then has its old content.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}-{count}.part", std::process::id()));
    let part = PathBuf::from(part);
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|source| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&part);
        ResultsError::io("write", path, source)
    })?;
    if let Some(Ok(folder)) = path.parent().map(File::open) {
        // Some file systems refuse; the rename is then as durable as they make it.
        let _ = folder.sync_all();
    }
    Ok(())
}

/// The text of a file; `None` if there is none.
fn read_if_there(path: &Path) -> Result<Option<String>, ResultsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ResultsError::io("read", path, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::write_atomically;

    #[test]
    fn a_file_may_be_written_by_many_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.md");
        std::thread::scope(|scope| {
            for writer in b"abcd" {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        write_atomically(path, &[*writer; 4096]).unwrap();
                        let found = std::fs::read(path).unwrap();
                        assert!(found.len() == 4096 && found.iter().all(|b| *b == found[0]));
                    }
                });
            }
        });
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        std::fs::create_dir_all(path.join("inside")).unwrap();
        let error = write_atomically(&path, b"x").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
