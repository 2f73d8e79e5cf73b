//! Reading a results folder.

use super::journal::{journal_name, read_journal};
use super::parquet::{read_table, table_path};
use super::{HeadRow, Manifest, PromptRow, ResultsError, RoundRow, Row, UpdateRow};
use std::path::{Path, PathBuf};

/// A results folder opened for reading. Tables are read when asked for.
#[derive(Debug)]
pub struct RunReader {
    dir: PathBuf,
    manifest: Manifest,
}

/// Rows of a table with what had to be said about reading them.
#[derive(Debug, Clone)]
pub struct Table<R> {
    /// The rows in the order they were recorded.
    pub rows: Vec<R>,
    /// Set when a line cut off by a dying process was left out: file and line.
    pub warning: Option<String>,
}

impl RunReader {
    /// Opens a folder and reads its manifest.
    ///
    /// # Errors
    /// [`ResultsError::NotAResultsFolder`] without a manifest; a malformed or foreign manifest is named with its line.
    pub fn open(dir: &Path) -> Result<Self, ResultsError> {
        Ok(Self {
            dir: dir.to_path_buf(),
            manifest: Manifest::read(dir)?,
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// One row per speculative round.
    ///
    /// # Errors
    /// A missing, damaged or incomplete table, named with its file and line or column.
    pub fn rounds(&self) -> Result<Table<RoundRow>, ResultsError> {
        self.table(self.manifest.rows.map(|rows| rows.rounds))
    }

    /// One row per prompt.
    ///
    /// # Errors
    /// As [`rounds`](Self::rounds).
    pub fn prompts(&self) -> Result<Table<PromptRow>, ResultsError> {
        self.table(self.manifest.rows.map(|rows| rows.prompts))
    }

    /// One row per optimiser update.
    ///
    /// # Errors
    /// As [`rounds`](Self::rounds).
    pub fn updates(&self) -> Result<Table<UpdateRow>, ResultsError> {
        self.table(self.manifest.rows.map(|rows| rows.updates))
    }

    /// One row per step of an acceptance head; empty where no arm trained one.
    ///
    /// # Errors
    /// As [`rounds`](Self::rounds).
    pub fn heads(&self) -> Result<Table<HeadRow>, ResultsError> {
        let expected = self.manifest.rows.map(|rows| rows.heads);
        let missing = match self.table(expected) {
            Err(error @ ResultsError::MissingTable { .. }) => error,
            table => return table,
        };
        match expected {
            None | Some(0) => Ok(Table {
                rows: Vec::new(),
                warning: None,
            }),
            Some(_) => Err(missing),
        }
    }

    fn table<R: Row>(&self, expected: Option<u64>) -> Result<Table<R>, ResultsError> {
        let path = table_path::<R>(&self.dir);
        let journal = self.dir.join(journal_name(R::TABLE));
        // A journal beside a parquet file means that finishing was cut short: the journal is the one that is whole.
        let (path, rows, warning) = if journal.exists() {
            let read = read_journal(&journal)?;
            let warning = read
                .cut_line
                .map(|line| format!("{}:{line}: cut off, left out", journal_name(R::TABLE)));
            (journal, read.rows, warning)
        } else if path.exists() {
            let rows = read_table(&self.dir)?;
            (path, rows, None)
        } else {
            return Err(ResultsError::MissingTable {
                path,
                journal: journal_name(R::TABLE),
            });
        };
        match expected {
            Some(expected) if expected != rows.len() as u64 => Err(ResultsError::RowCount {
                path,
                found: rows.len() as u64,
                expected,
            }),
            _ => Ok(Table { rows, warning }),
        }
    }
}
