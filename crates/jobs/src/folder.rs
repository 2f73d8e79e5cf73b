//! Where the files of a run are. No other place knows their names.
//!
//! ```text
//! ROOT/experiment.json             the experiment and its jobs
//! ROOT/.machine-HOST.lock          whether a timed job runs on HOST
//! ROOT/STAGE/CELL/lock             who runs the job
//! ROOT/STAGE/CELL/manifest.json    how far it got, written last
//! ROOT/STAGE/CELL/prompts.jsonl    the answers so far, while it runs
//! ROOT/STAGE/CELL/checkpoint.json  where it goes on after a stop, beside what was learnt until there
//! ROOT/STAGE/CELL/error.txt        why it failed
//! ROOT/slurm/                      batch scripts, lists of cells, logs
//! ROOT/report/                     tables and pages
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{create_folder, entries, is_part};
use crate::{JobId, JobsError};

const LOCK: &str = "lock";
/// Says where a job that was stopped goes on.
const CHECKPOINT: &str = "checkpoint.json";
/// What its file and the folder of its state begin with.
const CHECKPOINTS: &str = "checkpoint";
/// What the names of journals end with.
const JOURNALS: &str = ".jsonl";

/// The folder of a run: one experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRoot {
    path: PathBuf,
}

impl RunRoot {
    /// The folder `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with the experiment and its jobs.
    pub fn record(&self) -> PathBuf {
        self.path.join("experiment.json")
    }

    /// The folder of tables and pages.
    pub fn report(&self) -> PathBuf {
        self.path.join("report")
    }

    /// The folder of what was given to Slurm.
    pub fn slurm(&self) -> PathBuf {
        self.path.join("slurm")
    }

    /// The folder of logs that Slurm's tasks write.
    pub fn slurm_logs(&self) -> PathBuf {
        self.slurm().join("logs")
    }

    /// The file that keeps timed jobs alone on a machine.
    pub fn machine_lock(&self, host: &str) -> PathBuf {
        self.path.join(format!(".machine-{host}.lock"))
    }

    /// A job's folder, which need not exist.
    pub fn folder(&self, id: &JobId) -> JobFolder {
        JobFolder {
            id: id.clone(),
            path: self.path.join(id.stage()).join(id.cell()),
        }
    }

    /// Folders of jobs that exist, whoever planned them: those that have a manifest, sorted.
    ///
    /// # Errors
    /// [`JobsError::Io`] where a folder cannot be read.
    pub fn cells(&self) -> Result<Vec<JobId>, JobsError> {
        let mut cells = Vec::new();
        for stage in entries(&self.path)? {
            let folder = self.path.join(&stage);
            if !folder.is_dir() {
                continue;
            }
            for cell in entries(&folder)? {
                // What cannot be a job's name is none of ours.
                let Ok(id) = JobId::new(&stage.to_string_lossy(), &cell.to_string_lossy()) else {
                    continue;
                };
                if self.folder(&id).manifest().is_file() {
                    cells.push(id);
                }
            }
        }
        Ok(cells)
    }

    /// Whether there is nothing in the folder but what a run leaves that ended before it began.
    pub(crate) fn is_unused(&self) -> Result<bool, JobsError> {
        let ours = |name: &std::ffi::OsString| {
            let text = name.to_string_lossy();
            is_part(name) || (text.starts_with(".machine-") && text.ends_with(".lock"))
        };
        Ok(entries(&self.path)?.iter().all(ours))
    }
}

/// The folder of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFolder {
    id: JobId,
    path: PathBuf,
}

impl JobFolder {
    /// The job.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How far the job got, by whom and from what. Written by the job; `complete` is its last
    /// write.
    pub fn manifest(&self) -> PathBuf {
        self.path.join("manifest.json")
    }

    /// Answers so far, one a line, while the job runs.
    pub fn journal(&self) -> PathBuf {
        self.path.join("prompts.jsonl")
    }

    /// Why the job failed.
    pub fn error(&self) -> PathBuf {
        self.path.join("error.txt")
    }

    /// Prompts after which the job goes on from the checkpoint of an earlier attempt, if there is one.
    pub(crate) fn resumes_after(&self) -> Option<u64> {
        #[derive(serde::Deserialize)]
        struct Done {
            done: u64,
        }
        let text = fs::read_to_string(self.path.join(CHECKPOINT)).ok()?;
        serde_json::from_str(&text).ok().map(|Done { done }| done)
    }

    /// Held by who runs the job. Never removed: two files would be two locks.
    pub fn lock(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// Whether the folder holds anything but its lock.
    pub(crate) fn is_empty(&self) -> Result<bool, JobsError> {
        Ok(entries(&self.path)?.iter().all(|name| name == LOCK))
    }

    /// Creates the folder.
    pub(crate) fn create(&self) -> Result<(), JobsError> {
        create_folder(&self.path)
    }

    /// Removes what an earlier attempt left: everything but the lock and, where there is one, its
    /// checkpoint with the journals that belong to it. The caller holds the lock.
    pub(crate) fn clear(&self) -> Result<(), JobsError> {
        let resumable = self.path.join(CHECKPOINT).is_file();
        let kept = |name: &str| {
            name == LOCK || resumable && (name.starts_with(CHECKPOINTS) || name.ends_with(JOURNALS))
        };
        for name in entries(&self.path)? {
            if kept(&name.to_string_lossy()) {
                continue;
            }
            let path = self.path.join(&name);
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir());
            let removed = if is_folder {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.map_err(|source| JobsError::io("remove", &path, source))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_keeps_the_lock_and_what_links_point_at() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        let root = RunRoot::new(dir.path().join("run"));
        let folder = root.folder(&JobId::new("stream", "seed=1").unwrap());
        fs::create_dir_all(folder.path().join("state/deep")).unwrap();
        fs::write(folder.lock(), "").unwrap();
        fs::write(folder.manifest(), "{}").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&outside, folder.path().join("link")).unwrap();
        folder.clear().unwrap();
        assert_eq!(entries(folder.path()).unwrap(), ["lock"]);
        assert!(outside.join("precious").exists());
    }

    #[test]
    fn clearing_keeps_a_checkpoint_with_its_journals() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunRoot::new(dir.path()).folder(&JobId::new("stream", "seed=1").unwrap());
        fs::create_dir_all(folder.path().join("checkpoint/5")).unwrap();
        fs::create_dir_all(folder.path().join("state")).unwrap();
        for name in [
            "lock",
            "checkpoint.json",
            "prompts.jsonl",
            "manifest.json",
            "error.txt",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        folder.clear().unwrap();
        let left = ["checkpoint", "checkpoint.json", "lock", "prompts.jsonl"];
        assert_eq!(entries(folder.path()).unwrap(), left);
        fs::remove_file(folder.path().join("checkpoint.json")).unwrap();
        folder.clear().unwrap();
        assert_eq!(entries(folder.path()).unwrap(), ["lock"]);
    }

    #[test]
    fn cells_are_folders_with_a_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::new(dir.path());
        for (stage, cell) in [
            ("stream", "seed=2"),
            ("stream", "seed=1"),
            ("held-out", "a"),
        ] {
            let folder = root.folder(&JobId::new(stage, cell).unwrap());
            folder.create().unwrap();
            if cell != "a" {
                fs::write(folder.manifest(), "{}").unwrap();
            }
        }
        fs::create_dir_all(root.slurm_logs()).unwrap();
        fs::write(root.record(), "{}").unwrap();
        let cells: Vec<_> = root.cells().unwrap().iter().map(JobId::to_string).collect();
        assert_eq!(cells, ["stream/seed=1", "stream/seed=2"]);
    }
}
