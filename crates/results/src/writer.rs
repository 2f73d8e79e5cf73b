//! Recording a cell, from scratch and once.

use crate::journal::{Journal, JournalLength, journal_path, read_journal};
use crate::machine::utc_now;
use crate::parquet::{table_path, write_table};
use crate::{
    CellStatus, HeadRow, MANIFEST_FILE, Manifest, NGRAMS_FILE, NgramRow, PromptRow, ResultsError,
    RoundRow, Row, RowCounts, UpdateRow, part_path, write_atomically,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How long the journals of a cell were at some moment, and how many seconds it had taken.
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
/// Rows go to journals that are handed to the operating system after every prompt, so that a
/// running cell can be watched. [`finish`](Self::finish) turns them into parquet and writes the
/// manifest last: a folder whose manifest says `complete` has everything. [`create`](Self::create)
/// clears away what an unfinished cell left; [`resume`](Self::resume) goes on with it from where its
/// journals had a known [length](Self::lengths). Dropped without `finish`, the folder is marked
/// `interrupted`.
#[derive(Debug)]
pub struct CellWriter {
    dir: PathBuf,
    manifest: Manifest,
    begun: Instant,
    /// Seconds of the processes before this one.
    earlier_s: f64,
    rounds: Journal<RoundRow>,
    prompts: Journal<PromptRow>,
    updates: Journal<UpdateRow>,
    heads: Journal<HeadRow>,
    ended: bool,
}

impl CellWriter {
    /// Creates the folder, clears away the files of an unfinished attempt, and writes the manifest
    /// with status `running`. Other files in the folder (locks, logs, states) are left alone.
    ///
    /// # Errors
    /// [`ResultsError::Complete`] where the cell is done; a manifest of another version; an I/O
    /// error otherwise.
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
        remove(&part_path(&dir.join(MANIFEST_FILE)))?;
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

    /// Goes on with a cell whose journals are cut back to `lengths`.
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

    /// How long the journals are now; everything recorded so far is handed to the operating system.
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

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest, to fill in what is known only later (inputs, padding, latencies).
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

    /// Records a prompt and hands everything recorded so far to the operating system.
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

    /// Turns the journals into parquet, writes the manifest as `complete` and returns it.
    ///
    /// # Errors
    /// An I/O or parquet error naming the file; the journals are then still there and the cell is
    /// not complete.
    pub fn finish(mut self) -> Result<Manifest, ResultsError> {
        self.flush()?;
        let rows = RowCounts {
            rounds: self.rounds.rows(),
            prompts: self.prompts.rows(),
            updates: self.updates.rows(),
            heads: self.heads.rows(),
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
        remove(self.rounds.path())?;
        remove(self.prompts.path())?;
        remove(self.updates.path())?;
        remove(self.heads.path())?;
        Ok(manifest)
    }

    /// Ends a cell that failed and notes why. Its journals stay to be looked at.
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
        // Nobody is left to report an error to; the journals hold the rows either way.
        let _ = self.flush();
        let seconds = self.seconds();
        end(&mut self.manifest, CellStatus::Interrupted, seconds);
        let _ = self.manifest.write(&self.dir);
    }
}

/// The manifest of a cell that has begun, written.
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

/// Writes a table, or none where there is no row.
fn convert<R: Row>(journal: &Journal<R>, dir: &Path) -> Result<(), ResultsError> {
    let rows = read_journal::<R>(journal.path())?;
    if rows.len() as u64 != journal.rows() {
        return Err(ResultsError::RowCount {
            path: journal.path().to_path_buf(),
            found: rows.len() as u64,
            expected: journal.rows(),
        });
    }
    if rows.is_empty() && R::TABLE != PromptRow::TABLE {
        return Ok(());
    }
    write_table(dir, &rows)
}

fn clear<R: Row>(dir: &Path) -> Result<(), ResultsError> {
    let table = table_path::<R>(dir);
    remove(&journal_path(dir, R::TABLE))?;
    remove(&part_path(&table))?;
    remove(&table)
}

fn remove(path: &Path) -> Result<(), ResultsError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(ResultsError::io("remove", path, source))
        }
        _ => Ok(()),
    }
}
