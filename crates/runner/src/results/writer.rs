//! Recording a run.

use super::journal::{Journal, read_journal};
use super::parquet::write_table;
use super::{
    HeadRow, Manifest, Progress, PromptRow, ResultsError, RoundRow, Row, RowCounts, RunStatus,
    UpdateRow,
};
use std::path::{Path, PathBuf};

/// Writes the results folder of one run.
///
/// Dropped without [`finish`](Self::finish), the folder keeps its journals and is marked `interrupted`.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    manifest: Manifest,
    rounds: Journal<RoundRow>,
    prompts: Journal<PromptRow>,
    updates: Journal<UpdateRow>,
    heads: Journal<HeadRow>,
    finished: bool,
}

impl RunWriter {
    /// Creates the folder and writes the manifest with status `running`.
    ///
    /// # Errors
    /// [`ResultsError::FolderExists`] when `dir` exists with anything in it; an I/O error otherwise.
    pub fn create(dir: &Path, manifest: &Manifest) -> Result<Self, ResultsError> {
        let io = |source| ResultsError::Io {
            action: "create",
            path: dir.to_path_buf(),
            source,
        };
        if dir.exists() && std::fs::read_dir(dir).map_err(io)?.next().is_some() {
            return Err(ResultsError::FolderExists {
                path: dir.to_path_buf(),
            });
        }
        std::fs::create_dir_all(dir).map_err(io)?;
        let mut manifest = manifest.clone();
        manifest.status = RunStatus::Running;
        manifest.finished = None;
        manifest.rows = None;
        manifest.write(dir)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            manifest,
            rounds: Journal::create(dir)?,
            prompts: Journal::create(dir)?,
            updates: Journal::create(dir)?,
            heads: Journal::create(dir)?,
            finished: false,
        })
    }

    /// Goes on in the folder of a run that did not finish, from the last [`checkpoint`](Self::checkpoint): rows
    /// after it are dropped. `manifest` is what a new run would write; the one in the folder is kept.
    ///
    /// # Errors
    /// [`ResultsError::Complete`] or [`ResultsError::OtherRun`] (configuration, program or inputs differ) where
    /// there is nothing to go on with, [`ResultsError::Busy`] while another process records; as for
    /// [`create`](Self::create) and reading a folder otherwise.
    pub fn resume(dir: &Path, manifest: &Manifest) -> Result<Self, ResultsError> {
        let mut found = Manifest::read(dir)?;
        let path = || dir.to_path_buf();
        if found.status == RunStatus::Complete {
            return Err(ResultsError::Complete { path: path() });
        }
        let differences = [
            (
                found.config_sha256 != manifest.config_sha256,
                "configuration",
            ),
            (found.build != manifest.build, "program"),
            (found.inputs != manifest.inputs, "model or data set"),
        ];
        if let Some((_, what)) = differences.into_iter().find(|(differs, _)| *differs) {
            return Err(ResultsError::OtherRun { path: path(), what });
        }
        let rows = found.progress.map_or(RowCounts::default(), |p| p.rows);
        let (rounds, prompts, updates, heads) = (
            Journal::resume(dir, rows.rounds)?,
            Journal::resume(dir, rows.prompts)?,
            Journal::resume(dir, rows.updates)?,
            Journal::resume(dir, rows.heads)?,
        );
        found.status = RunStatus::Running;
        found.finished = None;
        found.write(dir)?;
        Ok(Self {
            dir: path(),
            manifest: found,
            rounds,
            prompts,
            updates,
            heads,
            finished: false,
        })
    }

    /// Stretches done before this writer was opened.
    pub fn done(&self) -> usize {
        self.manifest.progress.map_or(0, |progress| progress.done)
    }

    /// Notes that one more stretch of the run is done: [`resume`](Self::resume) starts after it.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn checkpoint(&mut self) -> Result<(), ResultsError> {
        self.flush()?;
        self.manifest.progress = Some(Progress {
            done: self.done() + 1,
            rows: self.counts(),
        });
        self.manifest.write(&self.dir)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
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
        self.updates.push(row)?;
        self.updates.flush()
    }

    /// Records a step of an acceptance head.
    ///
    /// # Errors
    /// An I/O error naming the journal.
    pub fn push_head(&mut self, row: &HeadRow) -> Result<(), ResultsError> {
        self.heads.push(row)?;
        self.heads.flush()
    }

    /// Turns the journals into parquet, finalises the manifest and returns it. The status is written last: a
    /// folder that says `complete` has all its tables.
    ///
    /// # Errors
    /// An I/O or parquet error naming the file; the journals are then still there and the status stays as it was.
    pub fn finish(mut self, status: RunStatus) -> Result<Manifest, ResultsError> {
        self.flush()?;
        let rows = self.counts();
        convert(&self.rounds, &self.dir)?;
        convert(&self.prompts, &self.dir)?;
        convert(&self.updates, &self.dir)?;
        if rows.heads > 0 {
            convert(&self.heads, &self.dir)?;
        }
        let mut manifest = self.manifest.clone();
        manifest.status = status;
        manifest.finished = Some(super::machine::utc_now());
        manifest.rows = Some(rows);
        manifest.progress = None;
        manifest.write(&self.dir)?;
        self.finished = true;
        for path in [
            self.rounds.path(),
            self.prompts.path(),
            self.updates.path(),
            self.heads.path(),
        ] {
            std::fs::remove_file(path).map_err(|source| ResultsError::Io {
                action: "remove",
                path: path.to_path_buf(),
                source,
            })?;
        }
        Ok(manifest)
    }

    /// Ends a run that failed: its journals stay, so that it can go on once the cause is gone.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn fail(mut self) -> Result<(), ResultsError> {
        self.flush()?;
        self.manifest.status = RunStatus::Failed;
        self.manifest.finished = Some(super::machine::utc_now());
        self.finished = true;
        self.manifest.write(&self.dir)
    }

    fn counts(&self) -> RowCounts {
        RowCounts {
            rounds: self.rounds.rows(),
            prompts: self.prompts.rows(),
            updates: self.updates.rows(),
            heads: self.heads.rows(),
        }
    }

    fn flush(&mut self) -> Result<(), ResultsError> {
        self.rounds.flush()?;
        self.prompts.flush()?;
        self.updates.flush()?;
        self.heads.flush()
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Nobody is left to report an error to; the journals hold the rows either way.
        let _ = self.flush();
        self.manifest.status = RunStatus::Interrupted;
        self.manifest.finished = Some(super::machine::utc_now());
        let _ = self.manifest.write(&self.dir);
    }
}

fn convert<R: Row>(journal: &Journal<R>, dir: &Path) -> Result<(), ResultsError> {
    let read = read_journal::<R>(journal.path())?;
    if read.rows.len() as u64 != journal.rows() {
        return Err(ResultsError::RowCount {
            path: journal.path().to_path_buf(),
            found: read.rows.len() as u64,
            expected: journal.rows(),
        });
    }
    write_table(dir, &read.rows)
}
