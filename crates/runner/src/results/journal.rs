//! Rows as JSON lines, appended while a run is going.

use super::{ResultsError, Row};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// Name of a table's journal.
pub(super) fn journal_name(table: &str) -> String {
    format!("{table}.jsonl")
}

/// An open journal of rows of one type.
#[derive(Debug)]
pub(super) struct Journal<R> {
    path: PathBuf,
    file: BufWriter<File>,
    rows: u64,
    row: PhantomData<R>,
}

impl<R: Row> Journal<R> {
    /// Creates the table's journal in `dir`.
    pub(super) fn create(dir: &Path) -> Result<Self, ResultsError> {
        let path = dir.join(journal_name(R::TABLE));
        let file = File::create_new(&path).map_err(|source| io("create", &path, source))?;
        Self::on(path, file, 0)
    }

    /// Opens the table's journal in `dir` to go on after its first `rows` rows; what follows them is cut off.
    pub(super) fn resume(dir: &Path, rows: u64) -> Result<Self, ResultsError> {
        let path = dir.join(journal_name(R::TABLE));
        let open = OpenOptions::new().read(true).write(true).open(&path);
        let file = open.map_err(|source| io("open", &path, source))?;
        let mut journal = Self::on(path, file, rows)?;
        let failed = |source| io("shorten", &journal.path, source);
        let mut lines = BufReader::new(journal.file.get_ref());
        let (mut line, mut end) = (Vec::new(), 0);
        for row in 0..rows {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).map_err(failed)?;
            if line.last() != Some(&b'\n') {
                return Err(ResultsError::RowCount {
                    path: journal.path.clone(),
                    found: row,
                    expected: rows,
                });
            }
            end += length as u64;
        }
        let file = journal.file.get_mut();
        file.set_len(end)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(|source| io("shorten", &journal.path, source))?;
        Ok(journal)
    }

    /// Two processes must not write one journal: the lock goes with the process, however it ends.
    fn on(path: PathBuf, file: File, rows: u64) -> Result<Self, ResultsError> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ResultsError::Busy { path }),
            Err(TryLockError::Error(source)) => return Err(io("lock", &path, source)),
        }
        Ok(Self {
            path,
            file: BufWriter::new(file),
            rows,
            row: PhantomData,
        })
    }

    /// Appends one row.
    pub(super) fn push(&mut self, row: &R) -> Result<(), ResultsError> {
        serde_json::to_writer(&mut self.file, row)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|source| io("write", &self.path, source))?;
        self.rows += 1;
        Ok(())
    }

    /// Hands everything written so far to the operating system.
    pub(super) fn flush(&mut self) -> Result<(), ResultsError> {
        self.file
            .flush()
            .map_err(|source| io("write", &self.path, source))
    }

    /// Rows written.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Path of the journal.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// What was read of a journal.
#[derive(Debug)]
pub(super) struct JournalRows<R> {
    pub(super) rows: Vec<R>,
    /// Line that was cut off when the process died, if the last one was.
    pub(super) cut_line: Option<usize>,
}

/// Reads a journal. A last line without its line break is what a dying process leaves behind: it is dropped and
/// reported. Any other line that is not a row is an error.
pub(super) fn read_journal<R: Row>(path: &Path) -> Result<JournalRows<R>, ResultsError> {
    let bytes = std::fs::read(path).map_err(|source| io("read", path, source))?;
    let mut rows = Vec::new();
    let mut cut_line = None;
    for (index, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            cut_line = Some(index + 1);
            break;
        }
        let row = serde_json::from_slice(line).map_err(|error| ResultsError::Journal {
            path: path.to_path_buf(),
            line: index + 1,
            message: without_position(&error),
        })?;
        rows.push(row);
    }
    Ok(JournalRows { rows, cut_line })
}

/// The reader's message with the column only: its line number is always 1, since it sees one line at a time.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let text = message.split(" at line ").next().unwrap_or(&message);
    format!("{text} (column {})", error.column())
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> ResultsError {
    ResultsError::Io {
        action,
        path: path.to_path_buf(),
        source,
    }
}
