//! Reading a cell's folder.

use crate::journal::{journal_path, read_journal};
use crate::parquet::{read_table, table_path};
use crate::{
    CellStatus, HeadRow, Manifest, NGRAMS_FILE, NgramRow, PromptRow, ResultsError, RoundRow, Row,
    UpdateRow, read_if_there,
};
use std::path::{Path, PathBuf};

/// A cell's folder opened for reading. Tables are read on request: from parquet if the cell is
/// complete, otherwise from the journals.
#[derive(Debug)]
pub struct CellReader {
    pub(crate) dir: PathBuf,
    manifest: Manifest,
}

impl CellReader {
    /// Opens a folder and reads its manifest.
    ///
    /// # Errors
    /// As [`Manifest::read`].
    pub fn open(dir: &Path) -> Result<Self, ResultsError> {
        Ok(Self {
            dir: dir.to_path_buf(),
            manifest: Manifest::read(dir)?,
        })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// One row per speculative round, with the columns of `R`: [`RoundRow`] has all of them,
    /// [`JudgedRound`](crate::JudgedRound) the few that acceptance rates need. Published folders
    /// keep the rounds of timed cells, and of others only if the page needs them; without the table
    /// the result is empty.
    ///
    /// # Errors
    /// A damaged or incomplete table, named with its file and line or column.
    pub fn rounds<R: Row>(&self) -> Result<Vec<R>, ResultsError> {
        debug_assert_eq!(R::TABLE, RoundRow::TABLE);
        self.optional(self.manifest.rows.map(|rows| rows.rounds))
    }

    /// One row per prompt.
    ///
    /// # Errors
    /// A missing, damaged or incomplete table, named with its file and line or column.
    pub fn prompts(&self) -> Result<Vec<PromptRow>, ResultsError> {
        self.table(self.manifest.rows.map(|rows| rows.prompts))
    }

    /// One row per optimiser update; empty if nothing learnt.
    ///
    /// # Errors
    /// As [`rounds`](Self::rounds).
    pub fn updates(&self) -> Result<Vec<UpdateRow>, ResultsError> {
        self.optional(self.manifest.rows.map(|rows| rows.updates))
    }

    /// One row per training step of an acceptance head; empty if no arm trained one.
    ///
    /// # Errors
    /// As [`rounds`](Self::rounds).
    pub fn heads(&self) -> Result<Vec<HeadRow>, ResultsError> {
        self.optional(self.manifest.rows.map(|rows| rows.heads))
    }

    /// Entries of the arms' n-gram caches at the end of the cell; empty if they were not written.
    ///
    /// # Errors
    /// An unreadable file, or an invalid line.
    pub fn ngrams(&self) -> Result<Vec<NgramRow>, ResultsError> {
        let path = self.dir.join(NGRAMS_FILE);
        let text = read_if_there(&path)?.unwrap_or_default();
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let row = serde_json::from_str(line).map_err(|error| ResultsError::Malformed {
                path: path.clone(),
                line: index + 1,
                what: "malformed row",
                message: error.to_string(),
            })?;
            rows.push(row);
        }
        Ok(rows)
    }

    fn optional<R: Row>(&self, expected: Option<u64>) -> Result<Vec<R>, ResultsError> {
        match self.table(expected) {
            Err(ResultsError::MissingTable { .. }) => Ok(Vec::new()),
            table => table,
        }
    }

    fn table<R: Row>(&self, expected: Option<u64>) -> Result<Vec<R>, ResultsError> {
        let path = table_path::<R>(&self.dir);
        let journal = journal_path(&self.dir, R::TABLE);
        // The journal of an unfinished cell is complete, a table is not.
        if self.manifest.status != CellStatus::Complete && journal.exists() {
            return read_journal(&journal);
        }
        if !path.exists() {
            return Err(ResultsError::MissingTable { path });
        }
        let rows = read_table::<R>(&self.dir)?;
        match expected {
            Some(expected) if expected != rows.len() as u64 => Err(ResultsError::RowCount {
                path,
                found: rows.len() as u64,
                expected,
            }),
            _ => Ok(rows),
        }
    }
}
