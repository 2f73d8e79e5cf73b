//! Rows as JSON lines, appended while a cell runs.

use crate::{ResultsError, Row};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// Path of a table's journal in `dir`.
pub(crate) fn journal_path(dir: &Path, table: &str) -> PathBuf {
    dir.join(format!("{table}.jsonl"))
}

/// Length of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalLength {
    bytes: u64,
    rows: u64,
}

/// An open journal of rows of one type.
#[derive(Debug)]
pub(crate) struct Journal<R> {
    pub(crate) path: PathBuf,
    file: BufWriter<File>,
    /// Number of rows written.
    pub(crate) rows: u64,
    row: PhantomData<R>,
}

impl<R: Row> Journal<R> {
    /// Creates the table's journal in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self, ResultsError> {
        let path = journal_path(dir, R::TABLE);
        let file =
            File::create(&path).map_err(|source| ResultsError::io("create", &path, source))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            rows: 0,
            row: PhantomData,
        })
    }

    /// Opens the table's journal in `dir` and truncates it to an earlier length.
    pub(crate) fn resume(dir: &Path, length: JournalLength) -> Result<Self, ResultsError> {
        let path = journal_path(dir, R::TABLE);
        let opened = File::options().append(true).open(&path);
        let file = opened.map_err(|source| ResultsError::io("open", &path, source))?;
        let held = file
            .metadata()
            .map_err(|source| ResultsError::io("read", &path, source))?;
        if held.len() < length.bytes {
            let short = std::io::Error::other("it is shorter than it was at the checkpoint");
            return Err(ResultsError::io("resume", &path, short));
        }
        let cut = file.set_len(length.bytes);
        cut.map_err(|source| ResultsError::io("cut", &path, source))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            rows: length.rows,
            row: PhantomData,
        })
    }

    /// Writes the journal to the disk and returns its length.
    pub(crate) fn length(&mut self) -> Result<JournalLength, ResultsError> {
        self.flush()?;
        let file = self.file.get_ref();
        // A checkpoint outlives a power failure, and what it counts has to as well.
        let held = file.sync_data().and_then(|()| file.metadata());
        let held = held.map_err(|source| ResultsError::io("read", &self.path, source))?;
        Ok(JournalLength {
            bytes: held.len(),
            rows: self.rows,
        })
    }

    /// Appends one row.
    pub(crate) fn push(&mut self, row: &R) -> Result<(), ResultsError> {
        serde_json::to_writer(&mut self.file, row)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|source| ResultsError::io("write", &self.path, source))?;
        self.rows += 1;
        Ok(())
    }

    /// Passes everything written so far to the operating system.
    pub(crate) fn flush(&mut self) -> Result<(), ResultsError> {
        let done = self.file.flush();
        done.map_err(|source| ResultsError::io("write", &self.path, source))
    }
}

/// Reads a journal. A last line without a line break, which a dying process leaves, is ignored; any
/// other invalid line is an error.
pub(crate) fn read_journal<R: Row>(path: &Path) -> Result<Vec<R>, ResultsError> {
    let bytes = std::fs::read(path).map_err(|source| ResultsError::io("read", path, source))?;
    let mut rows = Vec::new();
    for (index, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            break;
        }
        let row = serde_json::from_slice(line).map_err(|error| ResultsError::Malformed {
            path: path.to_path_buf(),
            line: index + 1,
            what: "malformed row",
            message: without_position(&error),
        })?;
        rows.push(row);
    }
    Ok(rows)
}

/// The parser's message with the column only: its line number is always 1, since it sees one line
/// at a time.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let text = message.split(" at line ").next().unwrap_or(&message);
    format!("{text} (column {})", error.column())
}
