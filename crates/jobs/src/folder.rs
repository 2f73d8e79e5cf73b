//! Layout of a run's folder. The names of its files are defined here, except those in `slurm/`.
//!
//! ```text
//! ROOT/experiment.json             the experiment and its jobs
//! ROOT/.machine-HOST.lock          lock of timed jobs on HOST
//! ROOT/STAGE/CELL/lock             lock of the process that runs the job
//! ROOT/STAGE/CELL/manifest.json    status of the job; `complete` is its last write
//! ROOT/STAGE/CELL/prompts.jsonl    the answers so far, while it runs
//! ROOT/STAGE/CELL/checkpoint.json  position from which a stopped job resumes, beside the learnt state
//! ROOT/STAGE/CELL/error.txt        error of a failed job
//! ROOT/slurm/                      batch scripts, lists of cells, logs
//! ROOT/report/                     tables and pages
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use results::{EXPERIMENT_FILE, MANIFEST_FILE};

use crate::files::{create_folder, entries};
use crate::{JobId, JobsError};

const LOCK: &str = "lock";
/// File with the position from which a stopped job resumes.
const CHECKPOINT: &str = "checkpoint.json";
/// Common prefix of the checkpoint's file and of the folder of its state.
const CHECKPOINTS: &str = "checkpoint";
/// Common suffix of the names of journals.
const JOURNALS: &str = ".jsonl";

/// The folder of a run, which holds one experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRoot {
    path: PathBuf,
}

impl RunRoot {
    /// The run in the folder `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File with the experiment and its jobs.
    pub fn record(&self) -> PathBuf {
        self.path.join(EXPERIMENT_FILE)
    }

    /// Folder of scripts, lists and logs for Slurm.
    pub fn slurm(&self) -> PathBuf {
        self.path.join("slurm")
    }

    /// Folder of the logs that Slurm's tasks write.
    pub fn slurm_logs(&self) -> PathBuf {
        self.slurm().join("logs")
    }

    /// Lock file that keeps timed jobs alone on a machine.
    pub fn machine_lock(&self, host: &str) -> PathBuf {
        self.path.join(format!(".machine-{host}.lock"))
    }

    /// Folder of a job, which need not exist.
    pub fn folder(&self, id: &JobId) -> JobFolder {
        JobFolder {
            id: id.clone(),
            path: self.path.join(id.stage()).join(id.cell()),
        }
    }

    /// The jobs whose folders have a manifest, sorted, also jobs that are not part of the
    /// experiment.
    ///
    /// # Errors
    /// [`JobsError::Io`] if a folder cannot be read.
    pub fn cells(&self) -> Result<Vec<JobId>, JobsError> {
        let mut cells = Vec::new();
        for stage in entries(&self.path)? {
            let folder = self.path.join(&stage);
            if !folder.is_dir() {
                continue;
            }
            for cell in entries(&folder)? {
                // A folder whose name is not valid for a job was not created by a run.
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

    /// True if the folder holds nothing but locks and partial files of a run that ended before it
    /// wrote `experiment.json`.
    pub(crate) fn is_unused(&self) -> Result<bool, JobsError> {
        let ours = |name: &std::ffi::OsString| {
            let text = name.to_string_lossy();
            let lock = text.starts_with(".machine-") && text.ends_with(".lock");
            // What `results::write_atomically` may leave.
            lock || text.ends_with(".part")
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
    /// Name of the job.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File with the job's status, program and configuration. The job writes it; `complete` is its
    /// last write.
    pub fn manifest(&self) -> PathBuf {
        self.path.join(MANIFEST_FILE)
    }

    /// File of the answers so far, one per line, while the job runs.
    pub fn journal(&self) -> PathBuf {
        self.path.join("prompts.jsonl")
    }

    /// File with the error of a failed job.
    pub fn error(&self) -> PathBuf {
        self.path.join("error.txt")
    }

    /// Number of prompts after which the job resumes from a checkpoint; `None` if there is none.
    pub(crate) fn resumes_after(&self) -> Option<u64> {
        #[derive(serde::Deserialize)]
        struct Done {
            done: u64,
        }
        let text = fs::read_to_string(self.path.join(CHECKPOINT)).ok()?;
        serde_json::from_str(&text).ok().map(|Done { done }| done)
    }

    /// Lock file, held by the process that runs the job. It is never removed: a new file would be a
    /// second lock.
    pub fn lock(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// True if the folder holds nothing but its lock.
    pub(crate) fn is_empty(&self) -> Result<bool, JobsError> {
        Ok(entries(&self.path)?.iter().all(|name| name == LOCK))
    }

    pub(crate) fn create(&self) -> Result<(), JobsError> {
        create_folder(&self.path)
    }

    /// Removes the files of an earlier attempt: everything but the lock and, if there is one, the
    /// checkpoint with its journals. The caller holds the lock.
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
