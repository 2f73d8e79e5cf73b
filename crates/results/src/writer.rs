//! Recording of a cell.

use crate::journal::{Journal, JournalLength, journal_path, read_journal};
use crate::machine::utc_now;
use crate::parquet::{table_path, write_table};
use crate::{
    CellStatus, HeadRow, Manifest, NGRAMS_FILE, NgramRow, PromptRow, ResultsError, RoundRow, Row,
    RowCounts, UpdateRow, write_atomically,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Lengths of a cell's journals at some time, with the seconds until then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CellLengths {
    rounds: JournalLength,
    prompts: JournalLength,
    updates: JournalLength,
    heads: JournalLength,
    seconds: f64,
}

/// Writes the folder of one cell.
///
/// Rows go to journals, which are passed to the operating system after every prompt, so that a
/// running cell can be watched. [`finish`](Self::finish) converts them to parquet and writes the
/// manifest last: a folder whose manifest says `complete` has all results. [`create`](Self::create)
/// removes the files of an unfinished cell; [`resume`](Self::resume) continues it from known
/// [lengths](Self::lengths) of its journals. If the writer is dropped without `finish` or
/// [`fail`](Self::fail), the folder is marked `interrupted`.
#[derive(Debug)]
pub struct CellWriter {
    dir: PathBuf,
    manifest: Manifest,
    begun: Instant,
    /// Seconds of earlier processes.
    earlier_s: f64,
    rounds: Journal<RoundRow>,
    prompts: Journal<PromptRow>,
    updates: Journal<UpdateRow>,
    heads: Journal<HeadRow>,
    ended: bool,
}

impl CellWriter {
    /// Creates the folder, removes the files of an unfinished attempt, and writes the manifest with
    /// status `running`. Other files in the folder (locks, logs, states) are left alone.
    ///
    /// # Errors
    /// [`ResultsError::Complete`] if the cell is complete; a manifest of another version; other I/O
    /// errors.
    pub fn create(dir: &Path, manifest: &Manifest) -> Result<Self, ResultsError> {
        if crate::is_complete(dir)? {
            return Err(ResultsError::Complete {
                path: dir.to_path_buf(),
            });
        }
        let made = std::fs::create_dir_all(dir);
        made.map_err(|source| ResultsError::io("create", dir, source))?;
        clear::<RoundRow>(dir)?;
        clear::<PromptRow>(dir)?;
        clear::<UpdateRow>(dir)?;
        clear::<HeadRow>(dir)?;
        remove(&dir.join(NGRAMS_FILE))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            manifest: running(manifest, dir)?,
            begun: Instant::now(),
            earlier_s: 0.0,
            rounds: Journal::create(dir)?,
            prompts: Journal::create(dir)?,
            updates: Journal::create(dir)?,
            heads: Journal::create(dir)?,
            ended: false,
        })
    }

    /// Continues a cell whose journals are truncated to `lengths`.
    ///
    /// # Errors
    /// As [`create`](Self::create), and journals that are missing or shorter.
    pub fn resume(
        dir: &Path,
        manifest: &Manifest,
        lengths: CellLengths,
    ) -> Result<Self, ResultsError> {
        if crate::is_complete(dir)? {
            return Err(ResultsError::Complete {
                path: dir.to_path_buf(),
            });
        }
        Ok(Self {
            rounds: Journal::resume(dir, lengths.rounds)?,
            prompts: Journal::resume(dir, lengths.prompts)?,
            updates: Journal::resume(dir, lengths.updates)?,
            heads: Journal::resume(dir, lengths.heads)?,
            dir: dir.to_path_buf(),
            manifest: running(manifest, dir)?,
            begun: Instant::now(),
            earlier_s: lengths.seconds,
            ended: false,
        })
    }

    /// Lengths of the journals; everything recorded so far is on the disk then.
    ///
    /// # Errors
    /// An I/O error naming the journal.
    pub fn lengths(&mut self) -> Result<CellLengths, ResultsError> {
        Ok(CellLengths {
            rounds: self.rounds.length()?,
            prompts: self.prompts.length()?,
            updates: self.updates.length()?,
            heads: self.heads.length()?,
            seconds: self.seconds(),
        })
    }

    fn seconds(&self) -> f64 {
        self.earlier_s + self.begun.elapsed().as_secs_f64()
    }

    /// The manifest, for facts that become known later (inputs, padding).
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Records a round. It reaches the disk with the next prompt.
    ///
    /// # Errors
    /// An I/O error naming the journal.
    pub fn push_round(&mut self, row: &RoundRow) -> Result<(), ResultsError> {
        self.rounds.push(row)
    }

    /// Records a prompt and passes everything recorded so far to the operating system.
    ///
    /// # Errors
    /// An I/O error naming the journal.
    pub fn push_prompt(&mut self, row: &PromptRow) -> Result<(), ResultsError> {
        self.prompts.push(row)?;
        self.flush()
    }

    /// Records an optimiser update.
    ///
    /// # Errors
    /// An I/O error naming the journal.
    pub fn push_update(&mut self, row: &UpdateRow) -> Result<(), ResultsError> {
        self.updates.push(row)
    }

    /// Records a step of an acceptance head.
    ///
    /// # Errors
    /// An I/O error naming the journal.
    pub fn push_head(&mut self, row: &HeadRow) -> Result<(), ResultsError> {
        self.heads.push(row)
    }

    /// Writes the entries of the arms' n-gram caches, [`NGRAMS_FILE`], replacing earlier ones.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn write_ngrams(&self, rows: &[NgramRow]) -> Result<(), ResultsError> {
        let path = self.dir.join(NGRAMS_FILE);
        let mut text = String::new();
        for row in rows {
            let line = serde_json::to_string(row)
                .map_err(|error| ResultsError::io("write", &path, error.into()))?;
            text.push_str(&line);
            text.push('\n');
        }
        write_atomically(&path, text.as_bytes())
    }

    /// Converts the journals to parquet, writes the manifest as `complete` and returns it.
    ///
    /// # Errors
    /// An I/O or parquet error naming the file; the journals then still exist and the cell is not
    /// complete.
    pub fn finish(mut self) -> Result<Manifest, ResultsError> {
        self.flush()?;
        let rows = RowCounts {
            rounds: self.rounds.rows,
            prompts: self.prompts.rows,
            updates: self.updates.rows,
            heads: self.heads.rows,
        };
        convert(&self.rounds, &self.dir)?;
        convert(&self.prompts, &self.dir)?;
        convert(&self.updates, &self.dir)?;
        convert(&self.heads, &self.dir)?;
        let mut manifest = self.manifest.clone();
        manifest.rows = Some(rows);
        end(&mut manifest, CellStatus::Complete, self.seconds());
        manifest.write(&self.dir)?;
        self.ended = true;
        remove(&self.rounds.path)?;
        remove(&self.prompts.path)?;
        remove(&self.updates.path)?;
        remove(&self.heads.path)?;
        Ok(manifest)
    }

    /// Ends a failed cell and records the error. Its journals stay.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn fail(mut self, error: &str) -> Result<(), ResultsError> {
        self.flush()?;
        self.manifest.error = Some(error.to_owned());
        let seconds = self.seconds();
        end(&mut self.manifest, CellStatus::Failed, seconds);
        self.ended = true;
        self.manifest.write(&self.dir)
    }

    fn flush(&mut self) -> Result<(), ResultsError> {
        self.rounds.flush()?;
        self.prompts.flush()?;
        self.updates.flush()?;
        self.heads.flush()
    }
}

impl Drop for CellWriter {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The error cannot be reported; the journals hold the rows either way.
        let _ = self.flush();
        let seconds = self.seconds();
        end(&mut self.manifest, CellStatus::Interrupted, seconds);
        let _ = self.manifest.write(&self.dir);
    }
}

/// Writes the manifest of a cell that has begun.
fn running(manifest: &Manifest, dir: &Path) -> Result<Manifest, ResultsError> {
    let mut manifest = manifest.clone();
    manifest.status = CellStatus::Running;
    manifest.error = None;
    manifest.finished = None;
    manifest.seconds = None;
    manifest.rows = None;
    manifest.write(dir)?;
    Ok(manifest)
}

fn end(manifest: &mut Manifest, status: CellStatus, seconds: f64) {
    manifest.status = status;
    manifest.finished = Some(utc_now());
    manifest.seconds = Some((seconds * 1e3).round() / 1e3);
}

/// Writes a table, unless it has no rows and is not `prompts`.
fn convert<R: Row>(journal: &Journal<R>, dir: &Path) -> Result<(), ResultsError> {
    let rows = read_journal::<R>(&journal.path)?;
    if rows.len() as u64 != journal.rows {
        return Err(ResultsError::RowCount {
            path: journal.path.clone(),
            found: rows.len() as u64,
            expected: journal.rows,
        });
    }
    if rows.is_empty() && R::TABLE != PromptRow::TABLE {
        return Ok(());
    }
    write_table(dir, &rows)
}

fn clear<R: Row>(dir: &Path) -> Result<(), ResultsError> {
    remove(&journal_path(dir, R::TABLE))?;
    remove(&table_path::<R>(dir))
}

/// Removes a file that may be missing.
pub(crate) fn remove(path: &Path) -> Result<(), ResultsError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(ResultsError::io("remove", path, source))
        }
        _ => Ok(()),
    }
}
